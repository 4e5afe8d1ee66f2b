package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/status"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestArchivingPatience: what is not told yet is told without anything else having happened.
func TestArchivingPatience(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time {
		at := now.Add(-d)
		return &at
	}
	for what, test := range map[string]struct {
		backup *facts.Backup
		want   time.Duration
	}{
		"no backups":        {nil, 0},
		"nobody is heard":   {&facts.Backup{}, 0},
		"it works":          {&facts.Backup{Archive: facts.Know(agentapi.Archive{LastAt: ago(time.Second)})}, 0},
		"it fails":          {&facts.Backup{Archive: facts.Know(agentapi.Archive{Failing: ago(20 * time.Second)})}, 41 * time.Second},
		"it fails for long": {&facts.Backup{Archive: facts.Know(agentapi.Archive{Failing: ago(2 * time.Minute)})}, 0},
	} {
		require.Equal(t, test.want, status.ArchivingPatience(facts.Cluster{Now: now, Backup: test.backup}), what)
	}
}

// TestWALFillsVolume: before WAL that waits fills the volume there is a warning of its own, with what the repository said.
func TestWALFillsVolume(t *testing.T) {
	t.Parallel()
	failing := given.Now.Add(-10 * time.Minute)
	archive := agentapi.Archive{Failing: &failing, Error: "unable to connect to 's3.shop.svc'", KeptPercent: 20, FreePercent: 50}
	tell := func(previous v1.PostgresClusterStatus) (v1.PostgresClusterStatus, []status.Event) {
		in := after(previous, healthy())
		in.Facts.Backup = &facts.Backup{Archive: facts.Know(archive)}
		s := status.Compute(in)
		return s, status.Events(in, s)
	}
	before, _ := tell(v1.PostgresClusterStatus{})
	condition := apimeta.FindStatusCondition(before.Conditions, v1.ConditionContinuousArchiving)
	assert.Equal(t, v1.ReasonArchivingFailed, condition.Reason)
	assert.NotContains(t, condition.Message, "fills the volume")

	archive.KeptPercent, archive.FreePercent = 35, 35
	s, events := tell(before)
	condition = apimeta.FindStatusCondition(s.Conditions, v1.ConditionContinuousArchiving)
	assert.Equal(t, v1.ReasonWALFillsVolume, condition.Reason)
	for _, word := range []string{"35 % are WAL that waits, 35 % are free", "spec.storage.size", "unable to connect to 's3.shop.svc'"} {
		assert.Contains(t, condition.Message, word)
	}
	require.Len(t, events, 1)
	assert.True(t, events[0].Warning)
	assert.Equal(t, v1.ReasonWALFillsVolume, events[0].Reason)

	archive.KeptPercent, archive.FreePercent = 40, 30
	_, events = tell(s)
	assert.Empty(t, events, "the condition has the figures; one warning is enough")
}

// TestAbandonedBackups: backups that lead to where the cluster is no more are none to be had.
func TestAbandonedBackups(t *testing.T) {
	t.Parallel()
	left := backup.Backup{Label: "20261129-120000F", Stopped: given.Now.Add(-time.Hour), Abandoned: true}
	older := backup.Backup{Label: "20261128-120000F", Stopped: given.Now.Add(-24 * time.Hour)}
	tell := func(backups ...backup.Backup) v1.PostgresClusterStatus {
		in := after(v1.PostgresClusterStatus{}, healthy())
		in.Facts.Backup = &facts.Backup{Repository: facts.Know(agentapi.RepositoryReport{Ready: true, Known: true, Timeline: 2, Backups: backups})}
		return status.Compute(in)
	}
	s := tell(older, left)
	assert.Equal(t, older.Label, s.Backup.Label)
	assert.True(t, s.FirstRecoverable.Time.Equal(older.Stopped))
	assert.True(t, apimeta.IsStatusConditionTrue(s.Conditions, v1.ConditionBackupHealthy))

	s = tell(left)
	condition := apimeta.FindStatusCondition(s.Conditions, v1.ConditionBackupHealthy)
	assert.Equal(t, v1.ReasonNoBackup, condition.Reason)
	assert.Contains(t, condition.Message, "No good backup leads to timeline 2")
	assert.Nil(t, s.LastBackup)
	assert.Nil(t, s.FirstRecoverable)
}

// TestGapIsTold: WAL that is missing is told, and stays told while somebody else who has just begun to look is not sure yet.
func TestGapIsTold(t *testing.T) {
	t.Parallel()
	good := backup.Backup{Label: "L", Type: backup.Full, Stopped: given.Now.Add(-time.Hour)}
	tell := func(before v1.PostgresClusterStatus, report agentapi.RepositoryReport) *metav1.Condition {
		report.Ready, report.Known, report.Backups = true, true, []backup.Backup{good}
		in := after(before, healthy())
		in.Facts.Backup = &facts.Backup{Repository: facts.Know(report)}
		s := status.Compute(in)
		return apimeta.FindStatusCondition(s.Conditions, v1.ConditionBackupHealthy)
	}
	unsure := agentapi.RepositoryReport{Unsure: true}
	assert.Equal(t, metav1.ConditionTrue, tell(v1.PostgresClusterStatus{}, unsure).Status, "files come beside each other")
	told := tell(v1.PostgresClusterStatus{}, agentapi.RepositoryReport{Gap: &backup.Gap{WAL: "00000001000000000000000A", LSN: "0/A000000", Files: 2, Next: "00000001000000000000000C"}})
	assert.Equal(t, metav1.ConditionFalse, told.Status)
	assert.Equal(t, v1.ReasonArchiveIncomplete, told.Reason)
	assert.Contains(t, told.Message, "2 files of WAL from 00000001000000000000000A on are missing")
	before := v1.PostgresClusterStatus{Conditions: []metav1.Condition{*told}}
	assert.Equal(t, told.Message, tell(before, unsure).Message)
	assert.Equal(t, v1.ReasonBackupUpToDate, tell(before, agentapi.RepositoryReport{}).Reason)
}

// TestMissedSchedule: what was missed is told once, counts on, and makes the backups unhealthy until there is a newer one.
func TestMissedSchedule(t *testing.T) {
	t.Parallel()
	due := given.Now.Add(-8 * time.Hour)
	tell := func(before v1.PostgresClusterStatus, course backup.Course, stopped time.Time) (v1.PostgresClusterStatus, []status.Event) {
		in := after(before, healthy())
		in.Facts.Backup = &facts.Backup{Interval: 24 * time.Hour, Next: given.Now.Add(16 * time.Hour), Course: course, Repository: facts.Know(agentapi.RepositoryReport{
			Ready: true, Known: true, Backups: []backup.Backup{{Label: "L", Type: backup.Full, Stopped: stopped}},
		})}
		s := status.Compute(in)
		return s, status.Events(in, s)
	}
	yesterday := due.Add(-24 * time.Hour)
	before, _ := tell(v1.PostgresClusterStatus{}, backup.Course{}, yesterday)
	waits, events := tell(before, backup.Course{Waits: due}, yesterday)
	assert.Empty(t, events, "it may yet be made")
	assert.True(t, waits.Backup.WaitingSince.Time.Equal(due))

	s, events := tell(waits, backup.Course{Missed: 2, Last: due}, yesterday)
	assert.Nil(t, s.Backup.WaitingSince)
	assert.EqualValues(t, 2, s.Backup.Missed)
	require.Len(t, events, 1)
	assert.Equal(t, v1.ReasonScheduleMissed, events[0].Reason)
	assert.True(t, events[0].Warning)
	assert.Contains(t, events[0].Message, "2 backups were missed, the last being: The backup that was due at "+due.Format(time.RFC3339))
	condition := apimeta.FindStatusCondition(s.Conditions, v1.ConditionBackupHealthy)
	assert.Equal(t, v1.ReasonScheduleMissed, condition.Reason)
	assert.Equal(t, metav1.ConditionFalse, condition.Status)

	s, events = tell(s, backup.Course{}, yesterday)
	assert.Empty(t, events)
	assert.EqualValues(t, 2, s.Backup.Missed)
	s, _ = tell(s, backup.Course{}, given.Now.Add(-time.Hour))
	assert.True(t, apimeta.IsStatusConditionTrue(s.Conditions, v1.ConditionBackupHealthy), "there is a newer one")
}

// TestSchedulePatience: a backup that is not begun is told without anything else having happened.
func TestSchedulePatience(t *testing.T) {
	t.Parallel()
	patience := func(b *facts.Backup) time.Duration {
		return status.SchedulePatience(facts.Cluster{Now: given.Now, Backup: b})
	}
	assert.Zero(t, patience(nil))
	assert.Zero(t, patience(&facts.Backup{}))
	assert.Equal(t, time.Hour, patience(&facts.Backup{Course: backup.Course{Recheck: given.Now.Add(time.Hour)}}))
	assert.Equal(t, time.Second, patience(&facts.Backup{Course: backup.Course{Recheck: given.Now.Add(-time.Hour)}}))
}
