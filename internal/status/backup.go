package status

import (
	"cmp"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// archivingGrace is for how long archiving may fail before that is told: a repository host that is restarted is back by then.
	archivingGrace = time.Minute
	// overdueGrace is how much later than the schedule says a backup may end.
	overdueGrace = 2 * time.Hour
)

// Backup is the status of a PostgresBackup after a decision.
func Backup(before v1.PostgresBackupStatus, w backup.Wish, d backup.Decision, c *v1.PostgresCluster) v1.PostgresBackupStatus {
	s := *before.DeepCopy()
	now := metav1.NewTime(w.Now)
	switch d.Step {
	case backup.Wait:
		s.Phase, s.Reason, s.Message = v1.BackupPending, v1.ReasonWaitingForCluster, d.Message
		switch {
		case d.Others:
			s.Reason = v1.ReasonWaitingForBackup
		case s.Attempts > 0 && before.Reason == v1.ReasonBackupFailed:
			s.Reason, s.Message = before.Reason, before.Message
		}
	case backup.Begin:
		s.Phase, s.Reason, s.Attempts, s.Runner = v1.BackupRunning, v1.ReasonBackupStarted, s.Attempts+1, d.Runner
		s.Instance, s.StartedAt, s.FinishedAt = cmp.Or(d.Place.Standby, d.Place.Primary), &now, nil
		s.Message = fmt.Sprintf("Reading the data of %s", s.Instance)
	case backup.Follow, backup.Cancel:
		s.Message = cmp.Or(d.Message, s.Message)
	case backup.Retry:
		s.Phase, s.Reason, s.FinishedAt = v1.BackupPending, v1.ReasonBackupFailed, &now
		s.Message = fmt.Sprintf("Attempt %d failed and is tried again: %s", s.Attempts, d.Message)
	case backup.GiveUp:
		s.Phase, s.Reason, s.Message, s.FinishedAt = v1.BackupFailed, v1.ReasonBackupFailed, d.Message, &now
	case backup.Complete:
		complete(&s, d.Result, c)
	}
	return s
}

// complete is the status of a backup that is in the repository.
func complete(s *v1.PostgresBackupStatus, b *backup.Backup, c *v1.PostgresCluster) {
	stopped := metav1.NewTime(b.Stopped)
	s.Phase, s.Reason, s.Message = v1.BackupCompleted, v1.ReasonBackupCompleted, fmt.Sprintf("The backup %s is in the repository", b.Label)
	if b.Damaged {
		s.Message += ". Pages with wrong checksums were found: the data of the instance is damaged"
	}
	s.Type, s.Label, s.FinishedAt = v1.BackupType(b.Type), b.Label, &stopped
	s.StartLSN, s.StopLSN, s.Timeline = b.StartLSN, b.StopLSN, b.Timeline
	s.Size, s.RepositorySize = bytes(b.Size), bytes(b.RepositorySize)
	if c != nil {
		s.Version, s.SystemIdentifier = c.Status.Version, c.Status.SystemIdentifier
	}
}

// bytes is a size for people: rounded to what can be read.
func bytes(n int64) *resource.Quantity {
	const unit, digits = 1 << 10, 10000
	scale := int64(1)
	for n/scale > digits {
		scale *= unit
	}
	return resource.NewQuantity((n+scale/2)/scale*scale, resource.BinarySI)
}

// backups adds what there is to say of backups. What is not known now stays as it was.
func backups(in Input, s *v1.PostgresClusterStatus) {
	b, before := in.Facts.Backup, in.Previous
	if b == nil {
		if in.Facts.Deleting {
			s.LastBackup, s.FirstRecoverable, s.LastArchived, s.Backup = before.LastBackup, before.FirstRecoverable, before.LastArchived, before.Backup
			return
		}
		apimeta.RemoveStatusCondition(&s.Conditions, v1.ConditionContinuousArchiving)
		apimeta.RemoveStatusCondition(&s.Conditions, v1.ConditionBackupHealthy)
		return
	}
	s.LastBackup, s.FirstRecoverable, s.LastArchived = before.LastBackup, before.FirstRecoverable, before.LastArchived
	s.Backup = &v1.BackupStatus{}
	if before.Backup != nil {
		s.Backup = before.Backup.DeepCopy()
	}
	s.Backup.NextScheduled = moment(b.Next)
	schedule(b.Course, s.Backup)
	if archive, known := b.Archive.Get(); known && archive.LastAt != nil {
		s.LastArchived, s.Backup.LastArchivedWAL = moment(*archive.LastAt), archive.LastWAL
	}
	report, _ := b.Repository.Get()
	if report.Known {
		s.Backup.Stanza, s.Backup.Count = report.Stanza, int32(len(report.Backups)) //nolint:gosec // at most some thousands
		s.FirstRecoverable, s.LastBackup = moment(backup.FirstRecoverable(report.Backups)), nil
		s.Backup.Label, s.Backup.Name, s.Backup.Type, s.Backup.Size = "", "", "", nil
		if newest, ok := backup.Newest(report.Backups); ok {
			s.LastBackup = moment(newest.Stopped)
			s.Backup.Label, s.Backup.Name, s.Backup.Type, s.Backup.Size = newest.Label, newest.Name, v1.BackupType(newest.Type), bytes(newest.Size)
		}
	}
	s.Backup.Verification = verification(b.Verification, s.Backup.Verification)
	for _, c := range []metav1.Condition{archiving(b, in.Facts.Now), backupHealthy(in.Facts, s)} {
		c.ObservedGeneration = in.Facts.Generation
		c.LastTransitionTime = metav1.NewTime(in.Facts.Now)
		if len(c.Message) > maxMessage {
			c.Message = c.Message[:maxMessage]
		}
		apimeta.SetStatusCondition(&s.Conditions, c)
	}
}

// schedule adds the times at which a backup was due and none was begun.
func schedule(course backup.Course, s *v1.BackupStatus) {
	s.WaitingSince = moment(course.Waits)
	if course.Missed > 0 {
		s.Missed += int32(course.Missed) //nolint:gosec // of a month at most
		s.LastMissed = moment(course.Last)
	}
}

// missed says of the last backup that was missed what there is to know.
func missed(s *v1.BackupStatus) string {
	message := fmt.Sprintf("The backup that was due at %s was not made: Kubernetes did not begin its Job within %.0f hours, or the one before had not ended when the next was due",
		s.LastMissed.UTC().Format(time.RFC3339), backup.StartingDeadline.Hours())
	if s.NextScheduled != nil {
		message += "; the next is due at " + s.NextScheduled.UTC().Format(time.RFC3339)
	}
	return message
}

// missedEvents say that backups were missed since the last pass.
func missedEvents(previous, s *v1.BackupStatus) []Event {
	if s == nil || previous == nil || s.Missed <= previous.Missed {
		return nil
	}
	message := missed(s)
	if count := s.Missed - previous.Missed; count > 1 {
		message = fmt.Sprintf("%d backups were missed, the last being: %s", count, message)
	}
	return []Event{{Warning: true, Reason: v1.ReasonScheduleMissed, Action: "Backup", Message: message}}
}

func moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// ArchivingPatience is how long archiving may still fail until that is told; zero: it does not fail, or that is told.
func ArchivingPatience(f facts.Cluster) time.Duration {
	if f.Backup == nil {
		return 0
	}
	archive, known := f.Backup.Archive.Get()
	if !known || archive.Failing == nil {
		return 0
	}
	if left := archivingGrace + time.Second - f.Now.Sub(*archive.Failing); left > 0 {
		return left
	}
	return 0
}

// SchedulePatience is in how long the next backup, if it is not begun, will be late or missed; zero: none is due.
func SchedulePatience(f facts.Cluster) time.Duration {
	if f.Backup == nil || f.Backup.Course.Recheck.IsZero() {
		return 0
	}
	return max(f.Backup.Course.Recheck.Sub(f.Now), time.Second)
}

// archiving is the condition ContinuousArchiving.
func archiving(b *facts.Backup, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1.ConditionContinuousArchiving, Status: metav1.ConditionFalse}
	report, _ := b.Repository.Get()
	archive, known := b.Archive.Get()
	failing := known && archive.Failing != nil && now.Sub(*archive.Failing) > archivingGrace
	switch {
	case report.Unsupported:
		c.Reason, c.Message = v1.ReasonBackupsUnsupported, report.Error
	case failing:
		c.Reason = v1.ReasonArchivingFailed
		c.Message = "WAL has not been archived since " + archive.Failing.UTC().Format(time.RFC3339) + ", and is kept by the primary"
		if archive.FillsVolume() {
			c.Reason = v1.ReasonWALFillsVolume
			c.Message += fmt.Sprintf(", where it fills the volume: %d %% are WAL that waits, %d %% are free. Mend the repository, or make spec.storage.size greater; a full volume stops writes",
				archive.KeptPercent, archive.FreePercent)
		}
		c.Message += ": " + cmp.Or(archive.Error, report.Error, "PostgreSQL's archive_command fails")
	case known && archive.LastAt != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1.ReasonArchiving, "WAL is archived"
	case report.Error != "":
		c.Reason, c.Message = v1.ReasonRepositoryUnavailable, report.Error
	case !known:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1.ReasonPrimaryNotReady, "The primary's agent is not heard"
	default:
		c.Reason, c.Message = v1.ReasonArchivingStarting, "Nothing has been archived yet"
	}
	return c
}

// backupHealthy is the condition BackupHealthy.
func backupHealthy(f facts.Cluster, s *v1.PostgresClusterStatus) metav1.Condition {
	b, now := f.Backup, f.Now
	c := metav1.Condition{Type: v1.ConditionBackupHealthy, Status: metav1.ConditionFalse}
	verified := s.Backup.Verification
	before := apimeta.FindStatusCondition(s.Conditions, v1.ConditionBackupHealthy)
	report, _ := b.Repository.Get()
	switch {
	case report.Error != "":
		c.Reason, c.Message = v1.ReasonRepositoryUnavailable, report.Error
	case b.Failed != nil && (s.LastBackup == nil || b.Failed.At.After(s.LastBackup.Time)):
		c.Reason, c.Message = v1.ReasonBackupFailed, fmt.Sprintf("PostgresBackup %s failed: %s", b.Failed.Name, b.Failed.Message)
	case s.LastBackup == nil && report.Anew() > 0:
		c.Reason = v1.ReasonNoBackup
		c.Message = fmt.Sprintf("No good backup leads to timeline %d, on which the cluster is: until there is another, what was written since cannot be recovered", report.Anew())
	case report.Unsure && before != nil && before.Reason == v1.ReasonArchiveIncomplete: // who looks has just begun to
		c.Reason, c.Message = before.Reason, before.Message
	case report.Gap != nil:
		c.Reason = v1.ReasonArchiveIncomplete
		c.Message = fmt.Sprintf("%s: what was written since the last backup can be recovered up to %s only, until there is another backup", report.Gap, report.Gap.LSN)
	case s.LastBackup == nil:
		c.Reason, c.Message = v1.ReasonNoBackup, "There is no backup yet, so that nothing can be recovered"
	case verified != nil && verified.Phase == v1.VerificationFailed:
		c.Reason, c.Message = v1.ReasonVerificationFailed, verified.Message
	case b.Interval > 0 && s.Backup.LastMissed != nil && s.LastBackup.Before(s.Backup.LastMissed):
		c.Reason, c.Message = v1.ReasonScheduleMissed, missed(s.Backup)
	case b.Interval > 0 && now.Sub(s.LastBackup.Time) > b.Interval+overdueGrace:
		c.Reason, c.Message = v1.ReasonBackupOverdue, fmt.Sprintf("The last backup ended at %s, longer ago than the schedule says", s.LastBackup.UTC().Format(time.RFC3339))
	case !f.Suspend && verificationOverdue(b.Verification, verified, now):
		c.Reason, c.Message = v1.ReasonVerificationOverdue, "No backup has been verified for longer than spec.backup.verify says: see the Jobs and Pods of CronJob "+naming.VerifyJob(f.Name)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1.ReasonBackupUpToDate, "The last backup, "+s.Backup.Label+", ended at "+s.LastBackup.UTC().Format(time.RFC3339)
	}
	return c
}

// backupProblems are those of backups that somebody should mend.
func backupProblems(f *facts.Cluster) []facts.Problem {
	if f.Backup == nil {
		return nil
	}
	var all []facts.Problem
	c := archiving(f.Backup, f.Now)
	switch c.Reason {
	case v1.ReasonArchivingFailed, v1.ReasonWALFillsVolume, v1.ReasonBackupsUnsupported, v1.ReasonRepositoryUnavailable:
		all = append(all, facts.Problem{Reason: c.Reason, Message: "Backups: " + c.Message})
	}
	return all
}
