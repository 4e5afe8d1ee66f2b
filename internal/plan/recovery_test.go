package plan_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// attempt is that of the wish in recoverable.
var attempt = fmt.Sprintf("first-%x", given.Now.Unix())

// recoverable is a healthy cluster with backups since a day ago, and the wish to go back an hour.
func recoverable(change func(*facts.Cluster)) facts.Cluster {
	f := healthyThree().Facts()
	at := f.Now.Add(-time.Hour)
	f.Backup = &facts.Backup{Repository: facts.Know(agentapi.RepositoryReport{
		Ready: true, Known: true, Backups: []backup.Backup{{Label: "L", Type: backup.Full, Stopped: f.Now.Add(-24 * time.Hour)}},
	})}
	f.Recovery.Wish = &backup.InPlace{Name: "first", Target: backup.Target{Time: &at}}
	for n := range f.Instances {
		said, _ := f.Instances[n].Report.Get()
		said.KnowsInPlace = true
		f.Instances[n].Report = facts.Know(said)
	}
	change(&f)
	return f
}

// says has all instances know that floor, and the first one say that of the recovery.
func says(f *facts.Cluster, floor int64, report *agentapi.InPlaceReport) {
	for n := range f.Instances {
		said, known := f.Instances[n].Report.Get()
		if !known {
			continue
		}
		said.Floor, said.Timeline = floor, 1
		if f.Instances[n].Name == f.Holder {
			said.InPlace = report
		}
		f.Instances[n].Report = facts.Know(said)
	}
}

// TestDecideRecovery: a recovery in place goes from step to step, and tells the agents no more than the status says.
func TestDecideRecovery(t *testing.T) {
	t.Parallel()
	f := recoverable(func(*facts.Cluster) {})
	pass := func(phase v1.RecoveryPhase) plan.Decision {
		t.Helper()
		d := plan.Decide(f)
		require.NotNil(t, d.Recovery)
		require.Equal(t, phase, d.Recovery.Phase, d.Recovery.Message)
		assert.Equal(t, plan.None{}, d.Action)
		f.Recovery.Status = d.Recovery
		return d
	}
	d := pass(v1.RecoverySafetyBackup)
	assert.Equal(t, "recovery", d.Rule)
	assert.Empty(t, d.Backup, "the status is not written yet")
	assert.Nil(t, d.InPlace)

	f.Recovery.Safety = &facts.WantedBackup{Name: naming.RecoveryBackup(f.Name, attempt)}
	assert.Equal(t, "prod-db-before-recovery-"+attempt, pass(v1.RecoverySafetyBackup).Backup)
	f.Recovery.Safety.Asked, f.Recovery.Safety.Phase = true, v1.BackupRunning
	assert.Empty(t, pass(v1.RecoverySafetyBackup).Backup)
	f.Recovery.Safety.Phase = v1.BackupCompleted
	assert.Nil(t, pass(v1.RecoveryPreparing).InPlace)
	f.Recovery.Safety = nil

	d = pass(v1.RecoveryPreparing)
	assert.Equal(t, &agentapi.InPlace{Name: attempt, Target: f.Recovery.Wish.Target}, d.InPlace)
	assert.Nil(t, d.Floor)
	says(&f, 0, &agentapi.InPlaceReport{Name: "other", Stage: agentapi.InPlaceFailed, Error: "of another"})
	pass(v1.RecoveryPreparing)
	report := &agentapi.InPlaceReport{Name: attempt, Stage: agentapi.InPlacePrepared, Timeline: 4}
	says(&f, 0, report)
	pass(v1.RecoveryAnnouncing)
	d = pass(v1.RecoveryAnnouncing)
	assert.Equal(t, &agentapi.Floor{SystemIdentifier: given.System, Timeline: 4}, d.Floor)
	assert.False(t, d.InPlace.Replace)

	says(&f, 4, report)
	assert.False(t, pass(v1.RecoveryReplacing).InPlace.Replace)
	assert.True(t, pass(v1.RecoveryReplacing).InPlace.Replace)
	says(&f, 4, &agentapi.InPlaceReport{Name: attempt, Stage: agentapi.InPlaceReplaced, Timeline: 4})
	pass(v1.RecoveryRejoining)
	pass(v1.RecoveryRejoining)
	for n := range f.Instances {
		said, _ := f.Instances[n].Report.Get()
		said.Timeline = 4
		f.Instances[n].Report = facts.Know(said)
	}
	d = pass(v1.RecoveryCompleted)
	assert.NotNil(t, d.Recovery.FinishedAt)
	d = pass(v1.RecoveryCompleted)
	assert.Equal(t, "done", d.Rule, "it is done once")
	assert.Nil(t, d.InPlace)
	assert.Equal(t, int64(4), d.Floor.Timeline, "what was scaled away before may come back")

	f.Recovery.Wish = &backup.InPlace{Name: "second", WithoutBackup: true, Target: f.Recovery.Wish.Target}
	pass(v1.RecoveryPreparing)
	says(&f, 4, &agentapi.InPlaceReport{Name: f.Recovery.Status.Attempt, Stage: agentapi.InPlaceFailed, Error: "no room"})
	d = pass(v1.RecoveryFailed)
	assert.Equal(t, int64(4), d.Floor.Timeline)
	require.Len(t, d.Refused, 1)
	assert.Contains(t, d.Refused[0].Why, "no room")
	assert.Len(t, pass(v1.RecoveryFailed).Refused, 1, "as long as it is wished")
	f.Recovery.Wish = nil
	assert.Empty(t, pass(v1.RecoveryFailed).Refused)
}

// TestDecideRecoveryRefused: what cannot be, or not now, is refused before anything is done.
func TestDecideRecoveryRefused(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		change func(*facts.Cluster)
		why    string
	}{
		"no backups":   {func(f *facts.Cluster) { f.Backup = nil }, "no spec.backup"},
		"suspended":    {func(f *facts.Cluster) { f.Suspend = true }, "suspended"},
		"an upgrade":   {func(f *facts.Cluster) { f.Upgrade.Status = &v1.UpgradeStatus{Phase: v1.UpgradeCatchUp} }, "major upgrade"},
		"a switchover": {func(f *facts.Cluster) { f.Switchover = &v1.SwitchoverStatus{Phase: v1.SwitchoverInProgress} }, "switchover"},
		"no primary":   {func(f *facts.Cluster) { f.Holder = "" }, "primary does not serve"},
		"fenced":       {func(f *facts.Cluster) { f.Fenced = []string{f.Holder} }, "fenced"},
		"a silent instance": {func(f *facts.Cluster) {
			f.Instances[2].Report, f.Instances[2].UnheardFor = facts.Known[agentapi.Status]{}, time.Minute
		}, "prod-db-3 is not heard"},
		"an old agent": {func(f *facts.Cluster) {
			said, _ := f.Instances[1].Report.Get()
			said.KnowsInPlace = false
			f.Instances[1].Report = facts.Know(said)
		}, "the agent of prod-db-2 is older"},
		"no repository": {func(f *facts.Cluster) {
			f.Backup.Repository = facts.Know(agentapi.RepositoryReport{Error: "no such bucket"})
		}, "no such bucket"},
		"the future":       {func(f *facts.Cluster) { f.Recovery.Wish.Target.Time = new(f.Now.Add(time.Hour)) }, "in the future"},
		"before the first": {func(f *facts.Cluster) { f.Recovery.Wish.Target.Time = new(f.Now.Add(-48 * time.Hour)) }, "before the first moment"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(recoverable(test.change))
			require.NotNil(t, d.Recovery)
			assert.Equal(t, v1.RecoveryRefused, d.Recovery.Phase)
			assert.Contains(t, d.Recovery.Message, test.why)
			assert.Nil(t, d.InPlace)
			assert.NotEqual(t, "recovery", d.Rule)
		})
	}
}

// TestDecideRecoveryEnds: until the data is replaced a recovery can be left at any moment; then only the primary's word counts.
func TestDecideRecoveryEnds(t *testing.T) {
	t.Parallel()
	prepared := &agentapi.InPlaceReport{Name: attempt, Stage: agentapi.InPlacePrepared, Timeline: 4}
	for what, test := range map[string]struct {
		phase  v1.RecoveryPhase
		change func(*facts.Cluster)
		want   v1.RecoveryPhase
		words  string
	}{
		"the backup failed": {v1.RecoverySafetyBackup, func(f *facts.Cluster) {
			f.Recovery.Safety = &facts.WantedBackup{Name: "b", Asked: true, Phase: v1.BackupFailed, Message: "no space"}
		}, v1.RecoveryFailed, "no space"},
		"backups switched off": {v1.RecoveryPreparing, func(f *facts.Cluster) { f.Backup = nil }, v1.RecoveryFailed, "spec.backup was removed"},
		"nothing said of it":   {v1.RecoveryPreparing, func(f *facts.Cluster) { f.Recovery.Status.ChangedAt.Time = f.Now.Add(-time.Hour) }, v1.RecoveryFailed, "said nothing of it"},
		"silence while it is announced": {v1.RecoveryAnnouncing, func(f *facts.Cluster) {
			f.Instances[0].Report = facts.Known[agentapi.Status]{}
		}, v1.RecoveryAnnouncing, "not heard just now"},
		"old data was forced": {v1.RecoveryRejoining, func(f *facts.Cluster) {
			says(f, 4, &agentapi.InPlaceReport{Name: attempt, Stage: agentapi.InPlaceFailed, Error: "has no recovered data"})
		}, v1.RecoveryFailed, "has no recovered data"},
		"called off":                       {v1.RecoveryPreparing, func(f *facts.Cluster) { f.Recovery.Wish = nil }, v1.RecoveryFailed, "called off"},
		"another target":                   {v1.RecoveryPreparing, func(f *facts.Cluster) { f.Recovery.Wish.Target.Exclusive = true }, v1.RecoveryFailed, "called off"},
		"called off by another":            {v1.RecoveryAnnouncing, func(f *facts.Cluster) { f.Recovery.Wish.Name = "second" }, v1.RecoveryFailed, "called off"},
		"a failover while it is announced": {v1.RecoveryAnnouncing, func(f *facts.Cluster) { says(f, 4, nil) }, v1.RecoveryFailed, "does not have the recovered data any more"},
		"somebody does not confirm": {v1.RecoveryAnnouncing, func(f *facts.Cluster) {
			says(f, 0, prepared)
			f.Recovery.Status.ChangedAt.Time = f.Now.Add(-time.Hour)
		}, v1.RecoveryFailed, "did not confirm"},
		"called off too late": {v1.RecoveryReplacing, func(f *facts.Cluster) { f.Recovery.Wish = nil }, v1.RecoveryReplacing, "not heard"},
		"silence for hours":   {v1.RecoveryReplacing, func(f *facts.Cluster) { f.Recovery.Status.ChangedAt.Time = f.Now.Add(-9 * time.Hour) }, v1.RecoveryReplacing, "no other instance takes over"},
		"it did not come up": {v1.RecoveryReplacing, func(f *facts.Cluster) {
			says(f, 4, &agentapi.InPlaceReport{Name: attempt, Stage: agentapi.InPlaceFailed, Error: "did not come up"})
		}, v1.RecoveryFailed, "did not come up"},
		"a standby does not follow": {v1.RecoveryRejoining, func(f *facts.Cluster) { f.Recovery.Status.ChangedAt.Time = f.Now.Add(-2 * time.Hour) }, v1.RecoveryCompleted, "did not follow"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(recoverable(func(f *facts.Cluster) {
				f.Recovery.Status = &v1.RecoveryStatus{Name: "first", Attempt: attempt, Target: f.Recovery.Wish.Target.String(), Phase: test.phase, Timeline: 4, SystemIdentifier: given.System}
				f.Recovery.Status.ChangedAt.Time = f.Now
				test.change(f)
			}))
			require.Equal(t, test.want, d.Recovery.Phase, d.Recovery.Message)
			assert.Contains(t, d.Recovery.Message, test.words)
		})
	}
}

// TestDecideRecoveryWaits: an operator that has just begun refuses nothing for want of news.
func TestDecideRecoveryWaits(t *testing.T) {
	t.Parallel()
	f := recoverable(func(f *facts.Cluster) { f.Instances[0].Report = facts.Known[agentapi.Status]{} })
	assert.Nil(t, plan.Decide(f).Recovery)
	f.Instances[0].UnheardFor = time.Minute
	assert.Equal(t, v1.RecoveryRefused, plan.Decide(f).Recovery.Phase)
}
