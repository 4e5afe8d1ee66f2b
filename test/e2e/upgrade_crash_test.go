//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// boundCrash is for a major upgrade in which every second step begins again.
const boundCrash = 15 * time.Minute

// TestUpgradeCrash: Pods are killed in the middle of a major upgrade, the seed's, the primary's and the operator's: it comes to its end, and no row
// that was acknowledged is lost.
func TestUpgradeCrash(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 3, v1.UpgradeSpec{RollbackWindow: "1m"})
	u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Availability.Synchronous.Mode = v1.SynchronousPreferred })
	u.waitSound(t)
	seed := func(s v1.PostgresClusterStatus) { u.deletePod(t, naming.Pod(s.Upgrade.Seed), true) }
	primary := func(s v1.PostgresClusterStatus) {
		pod := naming.Pod(s.CurrentPrimary)
		u.requireSynchronous(t)
		u.deletePod(t, pod, true)
	}
	kills := []struct {
		phase v1.UpgradePhase
		what  string
		kill  func(v1.PostgresClusterStatus)
	}{
		{v1.UpgradePrepareSource, "the operator's Pods", func(v1.PostgresClusterStatus) { killOperator(t) }},
		{v1.UpgradeSeedStandby, "the primary's Pod", primary},
		{v1.UpgradeSeedStandby, "the seed's Pod", seed}, // of the attempt that has begun since, if the primary is another one now
		{v1.UpgradeCatchUp, "the seed's Pod", seed},
		{v1.UpgradeRollStandbys, "the seed's Pod", seed},
		{v1.UpgradeObserve, "the primary's Pod", primary},
	}

	u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Version = "17" })
	began := time.Now()
	for phase := v1.UpgradePhase(""); phase != v1.UpgradeDone; time.Sleep(tick / 5) {
		status := u.get(t).Status
		if status.Upgrade == nil {
			continue
		}
		if s := status.Upgrade; s.Phase != phase {
			phase = s.Phase
			t.Logf("%5.1f s: attempt %d, %s: %s (last failure: %q)", time.Since(began).Seconds(), s.Attempt, phase, s.Message, s.LastFailure)
		}
		require.NotEqual(t, v1.UpgradeFailed, phase, status.Upgrade.Message)
		require.Less(t, time.Since(began), boundCrash, "the upgrade is in phase %s: %s", phase, status.Upgrade.Message)
		if len(kills) > 0 && kills[0].phase == phase {
			t.Logf("%5.1f s: killing %s", time.Since(began).Seconds(), kills[0].what)
			kills[0].kill(status)
			kills = kills[1:]
		}
	}
	t.Logf("MEASURED: from 15 to 17 with Pods killed: Done after %.0f s, in attempt %d", time.Since(began).Seconds(), u.get(t).Status.Upgrade.Attempt)
	require.Empty(t, kills, "all of them were killed")
	u.requireDone(t, "17")
	u.writer.stop(t)
	u.writer.requireKept(t)
}

// killOperator kills all Pods of the operator.
func killOperator(t *testing.T) {
	t.Helper()
	for _, name := range operatorPods(t) {
		mustKubectl(t, "-n", operatorNamespace, "delete", "pod", name, "--force", "--grace-period=0")
	}
}

// TestUpgradeSynchronous: five instances, whose commits have to wait for a standby. There, and after the loss of the new primary, for good: no row
// that was acknowledged is lost, and commits waited for a standby on both sides.
func TestUpgradeSynchronous(t *testing.T) {
	t.Parallel()
	u := startUpgraded(t, "15", 5, v1.UpgradeSpec{})
	u.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Availability.Synchronous.Mode = v1.SynchronousRequired })
	u.waitSound(t)
	u.requireSynchronous(t)
	u.to(t, "17", v1.UpgradeObserve, v1.UpgradeRevert, v1.UpgradeFailed)
	u.requireServes(t, "17")
	u.requirePause(t, "15 to 17, five instances, synchronous")
	u.requireSynchronous(t)
	lost := u.get(t).Status.CurrentPrimary
	u.deletePod(t, naming.Pod(lost), true)
	eventually(t, boundSettle, "another instance of 17 is the primary", func(collect *assert.CollectT) {
		require.NotEqual(collect, lost, u.get(collect).Status.CurrentPrimary)
	})
	u.waitPhase(t, v1.UpgradeDone, 0, v1.UpgradeRevert, v1.UpgradeFailed, v1.UpgradeRolledBack)
	u.requireDone(t, "17")
	u.requireSynchronous(t)
	require.Len(t, u.get(t).Status.Instances, 5)
	u.writer.stop(t)
	for _, refused := range u.writer.requireKept(t) {
		t.Log("refused: ", refused)
	}
}

// requireSynchronous: commits on the primary wait for a standby, and there is one.
func (u upgraded) requireSynchronous(t *testing.T) {
	t.Helper()
	eventually(t, boundSettle, "commits wait for a standby", func(collect *assert.CollectT) {
		require.Equal(collect, "t", u.superuser(collect, u.primaryPod(collect), `SELECT current_setting('synchronous_standby_names') <> ''
			AND EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`))
	})
}
