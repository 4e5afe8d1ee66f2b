package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// upgrading is a cluster of three whose third instance was chosen as the first of 17.
func upgrading(status v1.UpgradeStatus, third *given.MemberBuilder) *given.ClusterBuilder {
	status.From, status.To, status.ID, status.Seed, status.Source = "16", "17", "a1b2c1", "prod-db-3", "prod-db-1"
	return given.Cluster("prod-db").HasSystem().Wants("17").
		Upgrade(facts.Upgrade{Window: time.Hour, MaxPause: 5 * time.Second, Method: v1.UpgradeAutomatic}, &status).
		With(given.Member(1).Primary().Ready().Runs("16"), given.Member(2).Standby().Ready().Runs("16"), third)
}

func following(lag int64) agentapi.UpgradeStatus {
	return agentapi.UpgradeStatus{ID: "a1b2c1", Seed: &agentapi.SeedStatus{Stage: agentapi.SeedFollowing, Streaming: true, LagBytes: &lag, Analyzed: true}}
}

// TestRaisedVersion: nothing is restarted because the version was raised; the choice is stored before anybody is told.
func TestRaisedVersion(t *testing.T) {
	t.Parallel()
	healthy := func() *given.ClusterBuilder {
		return given.Cluster("prod-db").HasSystem().Wants("17").Upgrade(facts.Upgrade{Window: time.Hour}, nil)
	}
	d := plan.Decide(healthy().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()).Facts())
	assert.Equal(t, "upgrade-waits", d.Rule)
	assert.Equal(t, plan.None{}, d.Action)
	assert.Nil(t, d.Upgrade)
	assert.Equal(t, v1.UpgradePreflight, d.UpgradeStatus.Phase)
	assert.Equal(t, []plan.Member{{Name: "prod-db-1", Ordinal: 1}, {Name: "prod-db-2", Ordinal: 2}, {Name: "prod-db-3", Ordinal: 3}}, d.Members)

	d = plan.Decide(healthy().With(given.Member(1).Primary().Ready(), given.Member(2).Standby()).Facts())
	assert.Equal(t, "create", d.Rule, "what is missing is made first")
	for _, m := range d.Members {
		assert.Empty(t, m.Version, "with the live version")
	}
}

// single is a cluster of one instance that is to go from 16 to 17; with a surge it shall have two.
func single(status v1.UpgradeStatus, members ...*given.MemberBuilder) facts.Cluster {
	status.From, status.To = "16", "17"
	replicas := 1
	if status.Surge {
		replicas = 2
	}
	return given.Cluster("prod-db").HasSystem().Replicas(replicas).Wants("17").
		Upgrade(facts.Upgrade{Window: time.Hour, Method: v1.UpgradeAutomatic}, &status).With(members...).Facts()
}

// TestSurge: one instance gets a second one for the time of the upgrade, when nothing else speaks against it, and only for that time.
func TestSurge(t *testing.T) {
	t.Parallel()
	found := func(findings ...agentapi.Finding) *given.MemberBuilder {
		return given.Member(1).Primary().Ready().Runs("16").Upgrades(agentapi.UpgradeStatus{Preflight: &agentapi.Preflight{To: "17", Findings: findings}})
	}
	blocker := agentapi.Finding{Severity: agentapi.SeverityBlocker, Check: "LargeObjects", Message: "there are large objects"}
	for name, test := range map[string]struct {
		facts   facts.Cluster
		rule    string
		members int
		action  plan.Action
		phase   v1.UpgradePhase
		surge   bool
		seed    string
		says    string // the condition UpgradePreflight
	}{
		"a blocker comes first": {
			facts: single(v1.UpgradeStatus{Phase: v1.UpgradePreflight}, found(blocker)),
			rule:  "upgrade-waits", members: 1, phase: v1.UpgradePreflight, says: "there are large objects",
		},
		"the choice is stored before it is acted on": {
			facts: single(v1.UpgradeStatus{Phase: v1.UpgradePreflight}, found()),
			rule:  "upgrade-waits", members: 1, phase: v1.UpgradePreflight, surge: true, says: "Nothing that was found",
		},
		"then the second is made": {
			facts: single(v1.UpgradeStatus{Phase: v1.UpgradePreflight, Surge: true}, found()),
			rule:  "create", members: 2, phase: v1.UpgradePreflight, surge: true, says: "does not exist yet",
		},
		"it is waited for": {
			facts: single(v1.UpgradeStatus{Phase: v1.UpgradePreflight, Surge: true}, found(), given.Member(2).PodProblem("Unschedulable", "no node has room")),
			rule:  "settle", members: 2, phase: v1.UpgradePreflight, surge: true, says: "prod-db-2 does not answer the operator (no node has room)",
		},
		"it becomes the first of the new version": {
			facts: single(v1.UpgradeStatus{Phase: v1.UpgradePreflight, Surge: true}, found(), given.Member(2).Standby().Ready().Runs("16")),
			rule:  "upgrade", members: 2, phase: v1.UpgradePrepareSource, surge: true, seed: "prod-db-2", says: "Nothing that was found",
		},
		"afterwards the old primary goes, with its volume as the deletion policy says": {
			facts: func() facts.Cluster {
				f := single(v1.UpgradeStatus{Phase: v1.UpgradeDone}, given.Member(1).Standby().Ready().Runs("17"), given.Member(2).Primary().Ready().Runs("17"))
				f.Live = "17"
				return f
			}(),
			rule: "scale-in", members: 1, action: plan.RemoveInstance{Instance: "prod-db-1"}, phase: v1.UpgradeDone,
		},
		"if it came to nothing, the second": {
			facts: func() facts.Cluster {
				f := single(v1.UpgradeStatus{Phase: v1.UpgradeRolledBack}, given.Member(1).Primary().Ready().Runs("16"), given.Member(2).Standby().Ready().Runs("16"))
				f.Version = "16"
				return f
			}(),
			rule: "scale-in", members: 1, action: plan.RemoveInstance{Instance: "prod-db-2"}, phase: v1.UpgradeRolledBack,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(test.facts)
			if test.action == nil {
				test.action = plan.None{}
			}
			assert.Equal(t, test.rule, d.Rule, d.Message)
			assert.Len(t, d.Members, test.members)
			assert.Equal(t, test.action, d.Action)
			assert.Equal(t, test.phase, d.UpgradeStatus.Phase)
			assert.Equal(t, test.surge, d.UpgradeStatus.Surge)
			assert.Equal(t, test.seed, d.UpgradeStatus.Seed)
			if test.says != "" {
				require.NotNil(t, d.Preflight)
				assert.Contains(t, d.Preflight.Message, test.says)
			}
		})
	}
}

// TestBackupBefore: a cluster that is backed up is backed up once more before its upgrade begins, and the upgrade waits for that, unless somebody has
// said that it shall not (then nothing is wanted).
func TestBackupBefore(t *testing.T) {
	t.Parallel()
	const name = "prod-db-before-17-1"
	for what, test := range map[string]struct {
		wanted  *facts.WantedBackup
		asks    string
		begins  bool
		says    string
		problem bool
	}{
		"it is asked for":     {&facts.WantedBackup{Name: name}, name, false, "a backup is made first, PostgresBackup " + name, false},
		"it waits itself":     {&facts.WantedBackup{Name: name, Asked: true, Message: "the repository is being prepared"}, "", false, "is under way: the repository is being prepared", false},
		"it is under way":     {&facts.WantedBackup{Name: name, Asked: true, Phase: v1.BackupRunning}, "", false, "is under way. To upgrade without it, set the annotation " + naming.AnnotationSkipUpgradeBackup, false},
		"it failed":           {&facts.WantedBackup{Name: name, Asked: true, Phase: v1.BackupFailed, Message: "no space"}, "", false, "failed: no space. To try again, delete that PostgresBackup", true},
		"it is there":         {&facts.WantedBackup{Name: name, Asked: true, Phase: v1.BackupCompleted}, "", true, "", false},
		"there shall be none": {nil, "", true, "", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := upgrading(v1.UpgradeStatus{Phase: v1.UpgradePreflight}, given.Member(3).Standby().Ready().Runs("16")).Facts()
			f.Instances[0] = given.Cluster("prod-db").With(given.Member(1).Primary().Ready().Runs("16").Upgrades(agentapi.UpgradeStatus{Preflight: &agentapi.Preflight{To: "17"}})).Facts().Instances[0]
			f.Backup = &facts.Backup{BeforeUpgrade: test.wanted}
			d := plan.Decide(f)
			assert.Equal(t, test.asks, d.Backup)
			assert.Equal(t, test.begins, d.UpgradeStatus.Phase == v1.UpgradePrepareSource, d.Message)
			require.NotNil(t, d.Preflight)
			assert.Contains(t, d.Preflight.Message, test.says)
			assert.Equal(t, test.problem, len(d.Refused) > 0)
		})
	}
}

// TestSurge_another: the second instance stays when another version is wanted before the upgrade has begun.
func TestSurge_another(t *testing.T) {
	t.Parallel()
	f := single(v1.UpgradeStatus{Phase: v1.UpgradePreflight, Surge: true}, given.Member(1).Primary().Ready().Runs("16"), given.Member(2).Standby().Ready().Runs("16"))
	f.Version = "18"
	status := plan.Decide(f).UpgradeStatus
	assert.Equal(t, "18", status.To)
	assert.True(t, status.Surge)
}

// TestTold: what the status stores is what instances are told; the old programs come along to the first of the new version only.
func TestTold(t *testing.T) {
	t.Parallel()
	f := upgrading(v1.UpgradeStatus{Phase: v1.UpgradeRollStandbys, Rolled: []string{"prod-db-2"}}, given.Member(3).Detached().ReadyAside().Runs("17").Upgrades(following(0))).Facts()
	d := plan.Decide(f)
	assert.Equal(t, &agentapi.Upgrade{ID: "a1b2c1", From: "16", To: "17", Seed: "prod-db-3"}, d.Upgrade)
	assert.Equal(t, []plan.Member{
		{Name: "prod-db-1", Ordinal: 1}, {Name: "prod-db-2", Ordinal: 2, Version: "17"}, {Name: "prod-db-3", Ordinal: 3, Version: "17", Carry: "16"},
	}, d.Members)
	assert.Equal(t, plan.None{}, d.Action, "the StatefulSet of prod-db-2 would make the old Pod again")

	f.Instances[1].Pod.TemplateVersion = "17"
	assert.Equal(t, plan.RestartInstance{Instance: "prod-db-2", PodUID: "uid-of-prod-db-2-0"}, plan.Decide(f).Action)
}

// TestTold_check: the preflight is told which version the new image has, as far as that is known.
func TestTold_check(t *testing.T) {
	t.Parallel()
	f := upgrading(v1.UpgradeStatus{Phase: v1.UpgradePreflight}, given.Member(3).Standby().Ready().Runs("16")).Facts()
	f.Upgrade.Versions = map[string]string{"17": "17.12", "18": "18.6"}
	assert.Equal(t, "17.12", plan.Decide(f).Upgrade.ToVersion)
	f.Upgrade.Versions = nil
	assert.Empty(t, plan.Decide(f).Upgrade.ToVersion)

	f = given.Cluster("prod-db").HasSystem().Wants("16").Upgrade(facts.Upgrade{Check: "18", Versions: map[string]string{"18": "18.6"}}, nil).
		With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()).Facts()
	assert.Equal(t, &agentapi.Upgrade{From: "16", To: "18", ToVersion: "18.6", Check: true, OneWay: true}, plan.Decide(f).Upgrade)
	f.Upgrade.Window = time.Hour
	assert.False(t, plan.Decide(f).Upgrade.OneWay)
}

// TestUpgradeHoldsOthers: scaling and rolling wait while an upgrade is under way, and what is told can be acted upon.
func TestUpgradeHoldsOthers(t *testing.T) {
	t.Parallel()
	f := upgrading(v1.UpgradeStatus{Phase: v1.UpgradeCatchUp}, given.Member(3).Detached().ReadyAside().Runs("17").Upgrades(following(100<<20))).Replicas(2).Facts()
	d := plan.Decide(f)
	assert.Equal(t, "upgrade", d.Rule)
	assert.Equal(t, plan.None{}, d.Action)
	assert.Len(t, d.Members, 3)
	assert.Equal(t, v1.UpgradeCatchUp, d.UpgradeStatus.Phase)
	assert.NotZero(t, d.Recheck)
}

// TestSwitchVersion: the live primary is asked once; what it answers is stored.
func TestSwitchVersion(t *testing.T) {
	t.Parallel()
	given3 := given.Member(3).Detached().ReadyAside().Runs("17").Upgrades(following(0))
	f := upgrading(v1.UpgradeStatus{Phase: v1.UpgradeRollStandbys, Rolled: []string{"prod-db-2"}}, given3).Facts()
	f.Instances[1] = given.Cluster("prod-db").With(given.Member(2).Standby().ReadyAside().Runs("17")).Facts().Instances[0]
	d := plan.Decide(f)
	asked, ok := d.Action.(plan.SwitchVersion)
	require.True(t, ok, "%+v", d)
	assert.Equal(t, "prod-db-1", asked.From)
	assert.Equal(t, agentapi.UpgradeSwitchoverRequest{ID: "a1b2c1", Target: "prod-db-3", To: "17", MaxPauseMillis: 5000, Reverse: true}, asked.Request)
	require.NotNil(t, d.UpgradeStatus.AskedAt)

	refused := d.Declined(v1.ReasonSwitchoverRefused, "a prepared transaction", given.Now)
	assert.Nil(t, refused.UpgradeStatus.AskedAt)
	assert.Equal(t, "a prepared transaction", refused.UpgradeStatus.LastFailure)
	assert.Equal(t, metav1.NewTime(given.Now.Add(30*time.Second)), *refused.UpgradeStatus.RetryAt)
	assert.Nil(t, d.Unanswered().UpgradeStatus.AskedAt)

	f.Upgrade.Status = d.UpgradeStatus
	again := plan.Decide(f)
	assert.Equal(t, plan.None{}, again.Action, "it was asked")

	third := given.Member(3).Detached().ReadyAside().Runs("17").Upgrades(agentapi.UpgradeStatus{ID: "a1b2c1", Seed: &agentapi.SeedStatus{Stage: agentapi.SeedFollowing}})
	f.Instances[2] = given.Cluster("prod-db").With(third).Facts().Instances[0]
	again = plan.Decide(f)
	assert.Equal(t, v1.UpgradeSwitchingOver, again.UpgradeStatus.Phase, "that the target follows no more is part of it")
	assert.Equal(t, f.Upgrade.Status.ProgressAt, again.UpgradeStatus.ProgressAt)

	// The version is put back while the writes move: the seed stays what it is until it is known who has them.
	f.Version = "16"
	back := plan.Decide(f)
	assert.Equal(t, v1.UpgradeSwitchingOver, back.UpgradeStatus.Phase)
	assert.Equal(t, "prod-db-3", back.UpgradeStatus.Seed)
	f.Upgrade.Status = plan.Decide(f).UpgradeStatus.DeepCopy()
	f.Upgrade.Status.AskedAt = nil // the primary refused
	assert.Equal(t, v1.UpgradeRevert, plan.Decide(f).UpgradeStatus.Phase)
}

// TestSwitchoverRefused: one that comes to nothing again and again is a problem, since standbys of the live version may be few until it succeeds.
func TestSwitchoverRefused(t *testing.T) {
	t.Parallel()
	for refusals, want := range map[int32]bool{1: false, 3: true} {
		f := upgrading(v1.UpgradeStatus{
			Phase: v1.UpgradeAwaitSwitchover, Rolled: []string{"prod-db-2"}, Refusals: refusals, LastFailure: "a large object",
			RetryAt: &metav1.Time{Time: given.Now.Add(time.Minute)},
		}, given.Member(3).Detached().ReadyAside().Runs("17").Upgrades(following(0))).Facts()
		f.Instances[1] = given.Cluster("prod-db").With(given.Member(2).Standby().ReadyAside().Runs("17")).Facts().Instances[0]
		d := plan.Decide(f)
		assert.Equal(t, want, slices.ContainsFunc(d.Refused, func(r plan.Refusal) bool {
			return r.Reason == v1.ReasonUpgradeBlocked && strings.Contains(r.Why, "3 times: a large object")
		}), "%d: %+v", refusals, d)
	}
}

// TestUnlabelledPods: Pods that an earlier operator made have no version on them; during an upgrade they are of the old one.
func TestUnlabelledPods(t *testing.T) {
	t.Parallel()
	f := given.Cluster("prod-db").HasSystem().Wants("17").Live("17").
		Upgrade(facts.Upgrade{Window: time.Hour}, &v1.UpgradeStatus{From: "16", To: "17", ID: "x", Seed: "prod-db-2", Source: "prod-db-1", Phase: v1.UpgradeSwitchingOver}).
		With(given.Member(1).Standby(), given.Member(2).Primary().Ready().Runs("17")).Facts()
	assert.True(t, f.Aside(f.Instances[0]))
	assert.False(t, f.Aside(f.Instances[1]))
}
