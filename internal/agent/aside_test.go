package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// newWrittenCluster is a cluster of PostgreSQL 15 with three instances, and a writer.
func newWrittenCluster(t *testing.T) (*testCluster, *writer) {
	t.Helper()
	c := newUpgradeCluster(t, 3, 15, 17)
	first, second, third := c.start("db-1"), c.start("db-2"), c.start("db-3")
	first.awaitReady(agentapi.RolePrimary)
	second.awaitReady(agentapi.RoleStandby)
	third.awaitReady(agentapi.RoleStandby)
	for _, statement := range []string{"CREATE TABLE written (n int)", "ALTER TABLE written OWNER TO app"} {
		_, err := first.query("app", statement)
		require.NoError(t, err)
	}
	return c, c.write()
}

// seed tells the agents that db-3 is the seed of an upgrade of that ID.
func (c *testCluster) seed(id string) {
	c.change(func(config *agentapi.Config) {
		config.Upgrade = &agentapi.Upgrade{ID: id, From: "15", To: "17", Seed: "db-3"}
		config.Members[2].Version = "17"
	})
}

func stageOf(s agentapi.Status) agentapi.SeedStage {
	if s.Upgrade == nil || s.Upgrade.Seed == nil {
		return ""
	}
	return s.Upgrade.Seed.Stage
}

func follows(s agentapi.Status) bool {
	return stageOf(s) == agentapi.SeedFollowing && s.Upgrade.Seed.Streaming && s.Upgrade.Seed.LagBytes != nil && *s.Upgrade.Seed.LagBytes < 1<<20
}

// nothingLeft looks that a server has nothing of an upgrade any more.
func (a *testAgent) nothingLeft() {
	t := a.cluster.t
	t.Helper()
	a.answers(`SELECT (SELECT count(*) FROM pg_roles WHERE rolname = 'pgsteward_upgrade')
		+ (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'logical') + (SELECT count(*) FROM pg_subscription)`, "0")
	left, err := a.query("app", `SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_event_trigger)
		+ (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgsteward%') + (SELECT count(*) FROM pg_class WHERE relreplident = 'f')`)
	require.NoError(t, err)
	assert.Equal(t, "0", left)
}

// volumeHas waits until the instance's volume has the data of that major and no other, and no marker.
func (a *testAgent) volumeHas(major string) {
	t := a.cluster.t
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		entries, err := os.ReadDir(filepath.Join(a.paths.Data, "pgdata"))
		require.NoError(t, err)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		assert.Equal(t, []string{major}, names)
		assert.NoFileExists(t, filepath.Join(a.paths.Data, "pgsteward", naming.FileUpgradeMarker))
	}, long, often)
}

// TestUpgradeSeed: a seed whose Pod is made anew in every stage comes to its end; when its source is not the primary any more the attempt is
// over, and after that everything is as it was, and another attempt succeeds.
func TestUpgradeSeed(t *testing.T) { //nolint:paralleltest // it takes the machine
	c, w := newWrittenCluster(t)
	first, second := c.agents["db-1"], c.agents["db-2"]
	c.seed("a1")
	third := c.repod("db-3")
	for _, stage := range []agentapi.SeedStage{
		agentapi.SeedPreparing, agentapi.SeedReplaying, agentapi.SeedConverting, agentapi.SeedJoining, agentapi.SeedFollowing,
	} {
		status := third.await(upgradeBound, string(stage), func(s agentapi.Status) bool {
			return order(stageOf(s)) >= order(stage)
		})
		t.Logf("a new Pod in stage %s (%s)", stageOf(status), status.Upgrade.Seed.Step)
		third = c.repod("db-3")
	}
	status := third.await(upgradeBound, "following", follows)
	assert.Equal(t, agentapi.MethodPhysical, status.Upgrade.Seed.Method, status.Upgrade.Seed.Why)
	assert.True(t, status.Upgrade.Seed.Analyzed)
	assert.Equal(t, agentapi.Role(""), status.Role)
	w.assertIn(third, w.acknowledged())

	ctx := t.Context()
	require.NoError(t, c.client(naming.OperatorUser).Switchover(ctx, first.address, agentapi.SwitchoverRequest{Target: "db-2"}))
	second.awaitReady(agentapi.RolePrimary)
	status = third.await(upgradeBound, "failed", func(s agentapi.Status) bool { return stageOf(s) == agentapi.SeedFailed })
	require.NotNil(t, status.Upgrade.Seed.Problem)
	assert.Equal(t, "the primary was db-1 and is db-2 now: the slots from which the upgrade follows are gone", status.Upgrade.Seed.Problem.Message)

	c.change(func(config *agentapi.Config) { config.Upgrade, config.Members[2].Version = nil, "" })
	third = c.repod("db-3")
	third.awaitReady(agentapi.RoleStandby)
	third.volumeHas("15")
	second.nothingLeft()
	first.awaitReady(agentapi.RoleStandby)

	c.seed("a2")
	third = c.repod("db-3")
	third.await(upgradeBound, "following", follows)
	w.end()
	w.assertIn(third, w.acknowledged())

	// Called off: the server of the primary is the one that was cleaned after the first attempt.
	c.change(func(config *agentapi.Config) { config.Upgrade, config.Members[2].Version = nil, "" })
	c.repod("db-3").awaitReady(agentapi.RoleStandby)
	second.nothingLeft()
}

func order(stage agentapi.SeedStage) int {
	for i, s := range []agentapi.SeedStage{
		"", agentapi.SeedPreparing, agentapi.SeedReplaying, agentapi.SeedConverting, agentapi.SeedCopying, agentapi.SeedJoining, agentapi.SeedFollowing,
	} {
		if s == stage {
			return i
		}
	}
	return -1
}

// TestUpgradeRetire: when the window for the way back is over all are standbys of the new version, and nothing is left of the upgrade.
func TestUpgradeRetire(t *testing.T) { //nolint:paralleltest // it takes the machine
	c, w := newWrittenCluster(t)
	c.seed("b1")
	third := c.repod("db-3")
	third.await(upgradeBound, "following", follows)
	c.change(func(config *agentapi.Config) { config.Members[1].Version = "17" })
	second := c.repod("db-2")
	second.await(upgradeBound, "following the seed", func(s agentapi.Status) bool { return s.Ready && s.Streaming })
	switchTo(t, c, c.agents["db-1"], agentapi.UpgradeSwitchoverRequest{ID: "b1", Target: "db-3", To: "17", MaxPauseMillis: 20000, Reverse: true})
	third.awaitReady(agentapi.RolePrimary)
	c.change(func(config *agentapi.Config) {
		config.Version, config.Members[0].Version, config.Upgrade.Origin = "17", "15", "db-1"
		config.SystemIdentifier = third.status().SystemIdentifier
	})
	first := c.agents["db-1"]
	first.await(upgradeBound, "following back", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Back != nil && s.Upgrade.Back.Streaming
	})
	first = c.repod("db-1")
	first.await(upgradeBound, "following back again", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Back != nil && s.Upgrade.Back.Streaming
	})
	w.assertIn(first, w.acknowledged())

	c.change(func(config *agentapi.Config) { config.Upgrade.Retire = true })
	third.await(upgradeBound, "retired", func(s agentapi.Status) bool { return s.Upgrade != nil && s.Upgrade.Retired })
	third.nothingLeft()
	c.change(func(config *agentapi.Config) { config.Members[0].Version = "17" })
	first = c.repod("db-1")
	first.awaitReady(agentapi.RoleStandby)
	c.change(func(config *agentapi.Config) {
		config.Upgrade = nil
		for i := range config.Members {
			config.Members[i].Version = ""
		}
	})
	second.awaitReady(agentapi.RoleStandby)
	for _, a := range []*testAgent{first, second, third} {
		a.volumeHas("17")
	}
	w.end()
	for _, a := range []*testAgent{first, second, third} {
		w.assertIn(a, w.acknowledged())
	}
}
