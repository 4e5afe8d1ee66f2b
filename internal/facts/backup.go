package facts

import (
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// Backup is what is known of a cluster's backups.
type Backup struct {
	// Interval is about how long two scheduled backups are apart; zero: there is no schedule. Next is when the next one is due.
	Interval time.Duration
	Next     time.Time
	// Course is what became of the times at which backups were due, since what the status accounts for.
	Course backup.Course
	// Repository is the newest word on the repository; unknown while nobody is heard that uses it.
	Repository Known[agentapi.RepositoryReport]
	// Archive is how the primary's archiver gets on; unknown while the primary is not heard.
	Archive Known[agentapi.Archive]
	// Host is the Pod of the repository host; nil: there is none, or it is not wanted. Missing says that one is wanted. HostReport is what
	// it says, and Image the image that it is to have: that of the primary's Pod; empty while neither that nor an earlier one is known.
	Host       *Pod
	Missing    bool
	HostReport Known[agentapi.Status]
	Image      string
	// Asked are the cluster's PostgresBackups that have not ended; Failed is the last that ended, if that failed.
	Asked  []string
	Failed *FailedBackup
	// Expired are PostgresBackups whose backup is not in the repository any more, or that failed longer ago than backups are kept.
	Expired []BackupRecord
	// First is the name of the PostgresBackup to be made at once, since without it the newest cannot be recovered; empty: none is, it was, or it is not known.
	First string
	// BeforeUpgrade is the backup that a major upgrade waits for before it begins; nil: it waits for none.
	BeforeUpgrade *WantedBackup
	// Verification is what is known of the verification of backups; nil: none is wanted.
	Verification *Verification
}

// Verification is what is known of the verification of backups.
type Verification struct {
	// Interval is about how long two are apart, Next when the next one is due.
	Interval time.Duration
	Next     time.Time
	// Since is since when they are made; zero: they are not yet.
	Since time.Time
	// Last is what came of the one that ended last, as far as its Pod is still there; nil: there is none.
	Last *agentapi.Verification
}

// WantedBackup is a backup that something waits for: a deletion, or a major upgrade.
type WantedBackup struct {
	// Name is that of its PostgresBackup. Asked says that it exists; Phase and Message are its status.
	Name    string
	Asked   bool
	Phase   v1.BackupPhase
	Message string
}

// BackupRecord is a PostgresBackup that is to go.
type BackupRecord struct{ Name, UID string }

// FailedBackup is a backup that was given up.
type FailedBackup struct {
	Name, Message string
	At            time.Time
}
