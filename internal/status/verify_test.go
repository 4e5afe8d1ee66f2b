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

// TestVerification: what came of a verification is told once, makes BackupHealthy false if it failed, and stays when its Pod is gone.
func TestVerification(t *testing.T) {
	t.Parallel()
	week := 7 * 24 * time.Hour
	good := backup.Backup{Label: "20261130-020000F", Stopped: given.Now.Add(-time.Hour)}
	pass := func(previous v1.PostgresClusterStatus, known *facts.Verification) (v1.PostgresClusterStatus, []string, metav1.Condition) {
		in := after(previous, healthy())
		in.Facts.Backup = &facts.Backup{
			Repository:   facts.Know(agentapi.RepositoryReport{Ready: true, Known: true, Backups: []backup.Backup{good}}),
			Verification: known,
		}
		s := status.Compute(in)
		var reasons []string
		for _, event := range status.Events(in, s) {
			if event.Action == "Verify" {
				reasons = append(reasons, event.Reason)
				assert.Equal(t, event.Reason == v1.ReasonVerificationFailed, event.Warning)
				assert.Equal(t, s.Backup.Verification.Message, event.Message)
			}
		}
		return s, reasons, *apimeta.FindStatusCondition(s.Conditions, v1.ConditionBackupHealthy)
	}
	next := given.Now.Add(24 * time.Hour).Truncate(time.Second)
	wanted := func(last *agentapi.Verification) *facts.Verification {
		return &facts.Verification{Interval: week, Next: next, Since: given.Now.Add(-time.Hour), Last: last}
	}
	ended := func(ago time.Duration, problem string) *agentapi.Verification {
		return &agentapi.Verification{
			Label: good.Label, Name: "nightly", Started: given.Now.Add(-ago - time.Minute), Ended: given.Now.Add(-ago), Error: problem,
			Checked: []string{"tables", "pages"}, Skipped: []string{"moons: there are none"},
		}
	}

	s, events, condition := pass(v1.PostgresClusterStatus{}, wanted(nil))
	assert.Empty(t, events)
	assert.Equal(t, metav1.ConditionTrue, condition.Status, "it is not due yet")
	assert.Equal(t, &v1.VerificationStatus{NextScheduled: &metav1.Time{Time: next}}, s.Backup.Verification)

	s, events, condition = pass(s, wanted(ended(30*time.Minute, "")))
	assert.Equal(t, []string{v1.ReasonBackupVerified}, events)
	assert.Equal(t, metav1.ConditionTrue, condition.Status)
	v := s.Backup.Verification
	assert.Equal(t, v1.VerificationSucceeded, v.Phase)
	assert.Equal(t, "The backup nightly was restored, and recovered to its end; checked: tables, pages; not checked: moons: there are none", v.Message)
	assert.Equal(t, v.FinishedAt, v.LastSucceeded)
	succeeded := v.LastSucceeded

	s, events, condition = pass(s, wanted(ended(10*time.Minute, "bytes are missing")))
	assert.Equal(t, []string{v1.ReasonVerificationFailed}, events)
	assert.Equal(t, metav1.ConditionFalse, condition.Status)
	assert.Equal(t, v1.ReasonVerificationFailed, condition.Reason)
	v = s.Backup.Verification
	assert.Equal(t, v1.VerificationFailed, v.Phase)
	assert.Contains(t, condition.Message, "The backup nightly did not pass its verification at ")
	assert.Contains(t, condition.Message, ": bytes are missing")
	assert.Equal(t, succeeded, v.LastSucceeded)
	assert.Equal(t, good.Label, v.Label)

	for _, last := range []*agentapi.Verification{nil, ended(10*time.Minute, "bytes are missing"), ended(30*time.Minute, "")} {
		again, events, condition := pass(s, wanted(last))
		assert.Empty(t, events, "it was said")
		assert.Equal(t, v, again.Backup.Verification)
		assert.Equal(t, v1.ReasonVerificationFailed, condition.Reason)
	}

	mended, events, condition := pass(s, wanted(ended(time.Minute, "")))
	assert.Equal(t, []string{v1.ReasonBackupVerified}, events)
	assert.Equal(t, metav1.ConditionTrue, condition.Status)
	require.True(t, mended.Backup.Verification.LastSucceeded.After(succeeded.Time))

	none, events, condition := pass(s, nil)
	assert.Empty(t, events)
	assert.Nil(t, none.Backup.Verification, "nobody asks for it any more")
	assert.Equal(t, metav1.ConditionTrue, condition.Status)
}

// TestVerificationWithoutABackup: it is said that there was nothing to verify.
func TestVerificationWithoutABackup(t *testing.T) {
	t.Parallel()
	in := after(v1.PostgresClusterStatus{}, healthy())
	in.Facts.Backup = &facts.Backup{Verification: &facts.Verification{
		Last: &agentapi.Verification{Started: given.Now, Ended: given.Now, Error: "the repository has no backup"},
	}}
	message := status.Compute(in).Backup.Verification.Message
	assert.Contains(t, message, "No backup could be verified at ")
	assert.Contains(t, message, ": the repository has no backup")
}

// TestVerificationOverdue: that none comes to its end is told too, but not of a cluster that is suspended.
func TestVerificationOverdue(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	finished := metav1.NewTime(given.Now.Add(-8 * day))
	for what, test := range map[string]struct {
		since   time.Duration
		before  *v1.VerificationStatus
		suspend bool
		reason  string
	}{
		"asked for lately":      {since: 8 * day, reason: v1.ReasonBackupUpToDate},
		"asked for long ago":    {since: 10 * day, reason: v1.ReasonVerificationOverdue},
		"there was one since":   {since: 10 * day, before: &v1.VerificationStatus{Phase: v1.VerificationSucceeded, FinishedAt: &finished}, reason: v1.ReasonBackupUpToDate},
		"the cluster is asleep": {since: 10 * day, suspend: true, reason: v1.ReasonBackupUpToDate},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			in := after(v1.PostgresClusterStatus{Backup: &v1.BackupStatus{Verification: test.before}}, healthy())
			in.Facts.Suspend = test.suspend
			in.Facts.Backup = &facts.Backup{
				Repository:   facts.Know(agentapi.RepositoryReport{Ready: true, Known: true, Backups: []backup.Backup{{Label: "x", Stopped: given.Now}}}),
				Verification: &facts.Verification{Interval: 7 * day, Since: given.Now.Add(-test.since)},
			}
			condition := apimeta.FindStatusCondition(status.Compute(in).Conditions, v1.ConditionBackupHealthy)
			assert.Equal(t, test.reason, condition.Reason)
		})
	}
}
