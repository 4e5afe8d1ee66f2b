package plan

import (
	"fmt"
	"slices"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// finalBackup is what is left to do for the backup that a cluster leaves behind; false: nothing, and its instances may go. What has begun
// to go is not held up: it could not be backed up any more.
func finalBackup(f *facts.Cluster, d Decision) (Decision, bool) {
	b := f.FinalBackup
	going := slices.ContainsFunc(f.Instances, func(i facts.Instance) bool { return i.Deleting })
	if b == nil || b.Phase == v1.BackupCompleted || going || len(f.Instances) == 0 {
		return d, false
	}
	without := fmt.Sprintf("To delete the cluster without a last backup, set its annotation %s=true", naming.AnnotationSkipFinalBackup)
	d.Reason = v1.ReasonFinalBackup
	switch {
	case !b.Asked:
		d.Action, d.Message = MakeFinalBackup{Name: b.Name}, "Making a last backup, as spec.deletion.finalBackup says"
	case b.Phase == v1.BackupFailed:
		d.Reason = v1.ReasonFinalBackupFailed
		d.Message = fmt.Sprintf("The cluster stays and goes on, since its last backup, PostgresBackup %s, failed: %s. To try again, delete that PostgresBackup. %s", b.Name, b.Message, without)
	case b.Phase != v1.BackupRunning && f.Now.Sub(f.DeletedAt) > deletionPatience:
		d.Reason = v1.ReasonFinalBackupFailed
		d.Message = fmt.Sprintf("The cluster stays and goes on, since its last backup, PostgresBackup %s, cannot begin: %s. %s", b.Name, b.Message, without)
	default:
		d.Message = fmt.Sprintf("Waiting for the last backup, PostgresBackup %s", b.Name)
	}
	return d, true
}
