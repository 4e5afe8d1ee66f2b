package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Removal is the status of a PostgresBackup that is being deleted, after a verdict on its backup.
func Removal(before v1.PostgresBackupStatus, now time.Time, verdict backup.Verdict) v1.PostgresBackupStatus {
	s := *before.DeepCopy()
	if s.Removal == nil {
		s.Removal = &v1.BackupRemoval{}
	}
	at := metav1.NewTime(now)
	without := fmt.Sprintf(". To let the PostgresBackup go, and leave the backup in the repository, set its annotation %s=true", naming.AnnotationKeepInRepository)
	switch verdict.Removal {
	case backup.Held:
		s.Reason, s.Message, s.Removal.FailingSince = v1.ReasonBackupNeeded, "The backup stays, since "+verdict.Message+without, nil
	case backup.Queued:
		s.Reason, s.Message, s.Removal.FailingSince = v1.ReasonWaitingForBackup, "To be removed from the repository: "+verdict.Message, nil
	case backup.Remove:
		s.Reason, s.Message = v1.ReasonRemovingBackup, "Removing the backup "+s.Label+" from the repository"
		s.Removal.Runner, s.Removal.StartedAt = verdict.Runner, &at
		s.Removal.Attempts++
	case backup.Hindered:
		s.Reason = v1.ReasonBackupRemovalFailed
		if verdict.Message != "" {
			s.Message = "The backup cannot be removed from the repository yet: " + verdict.Message + without
		}
		if s.Removal.FailingSince == nil {
			s.Removal.FailingSince = &at
		}
	case backup.Removing, backup.Removed, backup.Left:
	}
	return s
}
