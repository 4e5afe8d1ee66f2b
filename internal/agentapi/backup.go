package agentapi

import (
	"strconv"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/backup"
)

const (
	// PathBackup takes a BackupRequest: 202 if it has begun, how it goes is in the Status; 409 and why if it cannot.
	PathBackup = "/v1/backup"
	// PathBackupCancel takes a BackupRequest of which only the ID counts: the backup of that ID ends. 202 in any case.
	PathBackupCancel = "/v1/backup/cancel"
	// PathBackupRemove takes a RemovalRequest: 202 if it has begun, how it goes is in the Status; 409 and why if it cannot.
	PathBackupRemove = "/v1/backup/remove"
)

// Kinds of repositories.
const (
	// RepositoryFolder is a folder of this machine.
	RepositoryFolder = "folder"
	// RepositoryHost is a repository host, which has a folder.
	RepositoryHost = "host"
	// RepositoryS3, RepositoryGCS and RepositoryAzure are buckets. In the spec the fields of a bucket have these names.
	RepositoryS3    = "s3"
	RepositoryGCS   = "gcs"
	RepositoryAzure = "azure"
)

// Types of keys that a bucket is opened with.
const (
	// KeyService is a service account's, of GCS.
	KeyService = "service"
	// KeyShared is a storage account's, KeySAS a shared access signature, of Azure.
	KeyShared = "shared"
	KeySAS    = "sas"
	// KeyAuto is none: the Pod has an identity.
	KeyAuto = "auto"
)

// Repository is where backups and WAL are. Its secrets are mounted as files.
type Repository struct {
	// Kind is one of the above.
	Kind string `json:"kind"`
	// Path in the bucket or the folder.
	Path string `json:"path"`
	// Host is a repository host's name.
	Host string `json:"host,omitempty"`
	// Endpoint, Bucket and PathStyle are a bucket's, Region one's of S3, Account one's of Azure.
	Endpoint  string `json:"endpoint,omitempty"`
	Account   string `json:"account,omitempty"`
	Bucket    string `json:"bucket,omitempty"`
	Region    string `json:"region,omitempty"`
	PathStyle bool   `json:"pathStyle,omitempty"`
	// KeyType is one of the above; S3 knows one type only. CredentialsSecret and CredentialsKey are for messages.
	KeyType           string `json:"keyType,omitempty"`
	CredentialsSecret string `json:"credentialsSecret,omitempty"`
	CredentialsKey    string `json:"credentialsKey,omitempty"`
	// Encrypted says that there is a passphrase; EncryptionSecret is for messages.
	Encrypted        bool   `json:"encrypted,omitempty"`
	EncryptionSecret string `json:"encryptionSecret,omitempty"`
}

// BackupConfig is how the cluster is backed up.
type BackupConfig struct {
	Repository Repository `json:"repository"`
	// RetentionDays is for how many days every moment stays recoverable.
	RetentionDays int `json:"retentionDays"`
}

// Recovery makes the first instance's data from a backup.
type Recovery struct {
	Repository Repository    `json:"repository"`
	Target     backup.Target `json:"target"`
}

// BackupRequest asks for a backup.
type BackupRequest struct {
	// ID is the attempt's: a request of the same ID as the backup that runs, or ran last, is answered as if it was begun just now.
	ID string `json:"id"`
	// Name is the PostgresBackup's, which is noted in the repository.
	Name string `json:"name"`
	// Type of the backup; empty: Method decides, and FullEverySeconds.
	Type             backup.Type `json:"type,omitempty"`
	Method           backup.Type `json:"method,omitempty"`
	FullEverySeconds int64       `json:"fullEverySeconds,omitempty"`
	// Primary begins and ends the backup. Standby is whose data is read; empty: the primary's.
	Primary string `json:"primary"`
	Standby string `json:"standby,omitempty"`
}

// BackupRun is a backup that runs, or the last one that ran, in this process.
type BackupRun struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Type     backup.Type `json:"type"`
	Instance string      `json:"instance"`
	Started  time.Time   `json:"started"`
	// Ended is when it ended; nil before. Error is why it failed; empty if it did not, and then Result is what there is.
	Ended  *time.Time     `json:"ended,omitempty"`
	Error  string         `json:"error,omitempty"`
	Result *backup.Backup `json:"result,omitempty"`
}

// RemovalRequest asks for a backup to be removed from the repository.
type RemovalRequest struct {
	// ID is the attempt's: a request of the same ID as the removal that runs, or ran last, is answered as if it was begun just now.
	ID string `json:"id"`
	// Stanza is that of the present PostgreSQL system, Label the backup's in it.
	Stanza string `json:"stanza"`
	Label  string `json:"label"`
}

// RemovalRun is the removal of a backup that runs, or the last one that ran, in this process.
type RemovalRun struct {
	ID      string    `json:"id"`
	Label   string    `json:"label"`
	Started time.Time `json:"started"`
	// Ended is when it ended; nil before. Error is why it failed; empty if it did not.
	Ended *time.Time `json:"ended,omitempty"`
	Error string     `json:"error,omitempty"`
}

// Archive is how a primary's WAL goes into the repository.
type Archive struct {
	LastWAL string     `json:"lastWAL,omitempty"`
	LastAt  *time.Time `json:"lastAt,omitempty"`
	// FailedAt is when archiving failed for the last time since the last success; nil if it did not. Failing is since when.
	FailedAt *time.Time `json:"failedAt,omitempty"`
	Failing  *time.Time `json:"failing,omitempty"`
	// Error is what the repository said.
	Error string `json:"error,omitempty"`
	// KeptPercent is how much of the volume is WAL that waits to be archived, while archiving fails, and FreePercent what is free there.
	// Both are rounded down to a multiple of 5, so that they change seldom.
	KeptPercent int `json:"keptPercent,omitempty"`
	FreePercent int `json:"freePercent,omitempty"`
}

// FillsVolume says that WAL that waits has taken as much room as is left, or more: if archiving fails for as long again, the volume is full.
func (a *Archive) FillsVolume() bool { return a.KeptPercent > 0 && a.FreePercent <= a.KeptPercent }

// WithoutPositions is the archive without what changes all the time.
func (a *Archive) WithoutPositions() *Archive {
	if a == nil {
		return nil
	}
	archive := Archive{Failing: a.Failing, Error: a.Error, KeptPercent: a.KeptPercent, FreePercent: a.FreePercent}
	if a.LastAt != nil {
		archive.LastWAL = "some"
	}
	return &archive
}

// RepositoryReport is what a repository has, as who uses it sees it.
type RepositoryReport struct {
	// Stanza of the cluster's present PostgreSQL system.
	Stanza string `json:"stanza,omitempty"`
	// Ready says that backups can be made.
	Ready bool `json:"ready"`
	// Error is why not, or why it is not known what there is.
	Error string `json:"error,omitempty"`
	// Unsupported says that the image has no engine.
	Unsupported bool `json:"unsupported,omitempty"`
	// Known says that Backups are all that there are of the stanza.
	Known   bool            `json:"known"`
	Backups []backup.Backup `json:"backups,omitempty"`
	// Timeline is what a recovery follows; zero: that is not known, or there is only the first.
	Timeline int64 `json:"timeline,omitempty"`
	// Gap is WAL that is missing after the newest good backup, and has been for a while; nil: none is.
	Gap *backup.Gap `json:"gap,omitempty"`
	// Unsure says that WAL seems to be missing, and that it is not known yet whether it only comes late.
	Unsure bool `json:"unsure,omitempty"`
	// At is when that was read.
	At time.Time `json:"at,omitzero"`
}

// Due says whether a backup is needed before the next of the schedule, since the newest written cannot be recovered from those that there are; and
// what its name is to have, so that there is one for each cause: the timeline that none leads to, the first WAL that is missing, or nothing for the
// first of all.
func (r *RepositoryReport) Due() (mark string, due bool) {
	switch anew := r.Anew(); {
	case !r.Known:
		return "", false
	case len(r.Backups) == 0:
		return "", true
	case anew > 0:
		return strconv.FormatInt(anew, 10), true
	case r.Gap != nil:
		return strings.ToLower(r.Gap.WAL), true
	}
	return "", false
}

// Anew is the timeline that a first backup is needed of, since none that there is leads there; zero: there is one, or none at all.
func (r *RepositoryReport) Anew() int64 {
	if _, ok := backup.Newest(r.Backups); ok || len(r.Backups) == 0 {
		return 0
	}
	return r.Timeline
}

// Verification is what came of the verification of a backup, as its Pod says when it ends.
type Verification struct {
	// Label is that of the backup, Name that of its PostgresBackup; empty: none was found, or it was made for none.
	Label   string    `json:"label,omitempty"`
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Error is why the backup is no good, or could not be verified; empty: it is good.
	Error string `json:"error,omitempty"`
	// Checked is what was checked beside the recovery, Skipped what was not, and why.
	Checked []string `json:"checked,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
}
