package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/carry"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// upgradeBound bounds what a major upgrade takes on a slow machine.
const upgradeBound = 5 * time.Minute

// newUpgradeCluster is a cluster of the earlier major, on a machine that has both.
func newUpgradeCluster(t *testing.T, members, from, to int) *testCluster {
	t.Helper()
	for _, major := range []int{from, to} {
		if _, err := os.Stat(fmt.Sprintf("/usr/lib/postgresql/%d/bin/postgres", major)); err != nil {
			t.Skipf("no PostgreSQL %d in /usr/lib/postgresql", major)
		}
	}
	c := newTestCluster(t, members)
	c.major = from
	c.config.Version = fmt.Sprint(from)
	carried := filepath.Join(c.dir, "carried")
	_, err := carry.Copy(carry.Options{Root: "/", Major: from, To: carried})
	require.NoError(t, err)
	for _, a := range c.agents {
		a.paths.Carried = carried
	}
	c.writeConfig()
	return c
}

// writer inserts rows, one after another, into whichever server takes them, and notes those that were acknowledged.
type writer struct {
	cluster *testCluster
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu     sync.Mutex
	acked  []int
	pauses []time.Duration
}

func (c *testCluster) write() *writer {
	ctx, stop := context.WithCancel(context.Background())
	w := &writer{cluster: c, stop: stop}
	c.t.Cleanup(w.end)
	w.done.Go(func() { w.run(ctx) })
	return w
}

func (w *writer) end() { w.stop(); w.done.Wait() }

func (w *writer) run(ctx context.Context) {
	var connection *pgx.Conn
	last, names := time.Now(), []string{"db-1", "db-2", "db-3"}
	for n := 0; ctx.Err() == nil; {
		if connection == nil {
			connection = w.connect(ctx, names)
			continue
		}
		if _, err := connection.Exec(ctx, "INSERT INTO written (n) VALUES ($1)", n); err != nil {
			_ = connection.Close(context.Background())
			connection = nil
			n++ // whether it was written is not known
			continue
		}
		w.mu.Lock()
		w.acked = append(w.acked, n)
		if pause := time.Since(last); pause > 100*time.Millisecond {
			w.pauses = append(w.pauses, pause)
		}
		w.mu.Unlock()
		last = time.Now()
		n++
	}
	if connection != nil {
		_ = connection.Close(context.Background())
	}
}

// connect finds the server that takes writes, as the label on its Pod says.
func (w *writer) connect(ctx context.Context, names []string) *pgx.Conn {
	for _, name := range names {
		a := w.cluster.agents[name]
		if a == nil || w.cluster.labels.role(naming.Pod(name)) != naming.RolePrimary {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		connection, err := pgx.Connect(bounded, fmt.Sprintf("host=%s port=%d user=app dbname=app password=app-secret sslmode=require", a.address, w.cluster.ports.Postgres))
		cancel()
		if err == nil {
			return connection
		}
	}
	time.Sleep(10 * time.Millisecond) //nolint:forbidigo // it is a client that tries again
	return nil
}

func (w *writer) acknowledged() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int(nil), w.acked...)
}

// has says how many of the acknowledged rows the instance lacks, and how many there are twice.
func (w *writer) assertIn(a *testAgent, acked []int) {
	w.cluster.t.Helper()
	require.EventuallyWithT(w.cluster.t, func(t *assert.CollectT) {
		missing, err := a.query("app", "SELECT count(*) FROM unnest($1::int[]) n WHERE NOT EXISTS (SELECT FROM written w WHERE w.n = n)", acked)
		assert.NoError(t, err)
		assert.Equal(t, "0", missing, "acknowledged rows that are missing")
	}, long, often)
	twice, err := a.query("app", "SELECT count(*) FROM (SELECT n FROM written GROUP BY n HAVING count(*) > 1) d")
	require.NoError(w.cluster.t, err)
	assert.Equal(w.cluster.t, "0", twice, "rows that are there twice")
}

// repod is a new Pod of the instance.
func (c *testCluster) repod(name string) *testAgent {
	c.agents[name].stop()
	return c.start(name)
}

// TestUpgrade: a cluster goes from 15 to 17 under writes, and back: nothing that was acknowledged is lost.
func TestUpgrade(t *testing.T) { //nolint:paralleltest // it takes the machine
	c := newUpgradeCluster(t, 3, 15, 17)
	c.config.Lease.DurationSeconds = 60 // it is not to run out while the API server is away
	c.writeConfig()
	first, second, third := c.start("db-1"), c.start("db-2"), c.start("db-3")
	first.awaitReady(agentapi.RolePrimary)
	second.awaitReady(agentapi.RoleStandby)
	third.awaitReady(agentapi.RoleStandby)
	for _, statement := range []string{
		"CREATE TABLE written (n int)", `CREATE TABLE "Other Things" (id bigserial PRIMARY KEY, t text)`,
		`INSERT INTO "Other Things" (t) SELECT 'x' FROM generate_series(1, 1000)`,
		"ALTER TABLE written OWNER TO app", `ALTER TABLE "Other Things" OWNER TO app`,
	} {
		_, err := first.query("app", statement)
		require.NoError(t, err)
	}
	w := c.write()

	c.change(func(config *agentapi.Config) {
		config.Upgrade = &agentapi.Upgrade{ID: "a1b2c1", From: "15", To: "17", Seed: "db-3"}
		config.Members[2].Version = "17"
	})
	third = c.repod("db-3")
	third.await(upgradeBound, "following", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Seed != nil && s.Upgrade.Seed.Stage == agentapi.SeedFollowing && s.Upgrade.Seed.Streaming &&
			s.Upgrade.Seed.LagBytes != nil && *s.Upgrade.Seed.LagBytes < 1<<20
	})
	assert.Empty(t, c.labels.role(naming.Pod("db-3")), "it is in no Service")
	_, err := third.app("app-secret", "require", "SELECT 1")
	require.Error(t, err, "nobody gets into the detached server")

	c.change(func(config *agentapi.Config) { config.Members[1].Version = "17" })
	second = c.repod("db-2")
	second.await(upgradeBound, "following the seed", func(s agentapi.Status) bool { return s.Ready && s.Streaming })

	request := agentapi.UpgradeSwitchoverRequest{ID: "a1b2c1", Target: "db-3", To: "17", MaxPauseMillis: 20000, Reverse: true}
	c.lease.cut(true, false)
	status := switchAsked(t, c, first, request)
	c.lease.cut(false, false)
	assert.Contains(t, status.Refused, "the Lease cannot be moved just now", "without the API server")
	assert.Zero(t, status.PauseMillis)
	switchTo(t, c, first, request)
	third.awaitReady(agentapi.RolePrimary)
	assert.Equal(t, "17", c.lease.annotation(naming.AnnotationVersion))
	second.await(long, "a standby of 17", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RoleStandby && s.Streaming })
	acked := w.acknowledged()
	require.Eventually(t, func() bool { return len(w.acknowledged()) > len(acked)+50 }, long, often, "writes go on")
	w.assertIn(third, w.acknowledged())

	c.change(func(config *agentapi.Config) {
		config.Version, config.Members[0].Version, config.Upgrade.Origin = "17", "15", "db-1"
		config.SystemIdentifier = third.status().SystemIdentifier
	})
	first.await(upgradeBound, "following back", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Back != nil && s.Upgrade.Back.Streaming
	})
	assert.Empty(t, c.labels.role(naming.Pod("db-1")))
	w.assertIn(first, w.acknowledged())

	switchTo(t, c, third, agentapi.UpgradeSwitchoverRequest{ID: "a1b2c1", Target: "db-1", To: "15", MaxPauseMillis: 20000})
	first.awaitReady(agentapi.RolePrimary)
	acked = w.acknowledged()
	require.Eventually(t, func() bool { return len(w.acknowledged()) > len(acked)+50 }, long, often, "writes go on")
	w.end()
	w.assertIn(first, w.acknowledged())
	t.Logf("%d rows; writes paused: %v", len(w.acknowledged()), w.pauses)
}

// switchTo asks for a switchover to another version and waits for its end.
func switchTo(t *testing.T, c *testCluster, from *testAgent, request agentapi.UpgradeSwitchoverRequest) {
	t.Helper()
	ready := c.agents[request.Target].watchReady()
	status := switchAsked(t, c, from, request)
	require.Empty(t, status.Refused)
	t.Logf("to %s: paused for %d ms", request.To, status.PauseMillis)
	c.agents[request.Target].awaitReady(agentapi.RolePrimary)
	assert.Empty(t, ready(), "Services send clients there from before the pause on, without a gap")
}

// switchAsked asks for a switchover to another version, and says how it ended.
func switchAsked(t *testing.T, c *testCluster, from *testAgent, request agentapi.UpgradeSwitchoverRequest) agentapi.UpgradeSwitchoverStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	asked := time.Now()
	require.NoError(t, c.client(naming.OperatorUser).UpgradeSwitchover(ctx, from.address, request))
	status := from.await(upgradeBound, "done with the switchover", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Switchover != nil && s.Upgrade.Switchover.To == request.To && s.Upgrade.Switchover.Ended != nil &&
			!s.Upgrade.Switchover.Since.Before(asked)
	})
	return *status.Upgrade.Switchover
}

// watchReady watches whether the instance is ready for the kubelet; what it returns ends that, and says why it was not any more after
// it had been.
func (a *testAgent) watchReady() (lost func() []string) {
	ctx, stop := context.WithCancel(context.Background())
	a.cluster.t.Cleanup(stop)
	var watching sync.WaitGroup
	var reasons []string
	watching.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for was := false; ctx.Err() == nil; <-ticker.C {
			reason := a.agent.health.Ready()
			if was && reason != "" {
				reasons = append(reasons, reason)
			}
			was = reason == ""
		}
	})
	return func() []string { stop(); watching.Wait(); return reasons }
}

// TestUpgradeInPlace: writes stop while a standby that has everything is converted. What logical replication does not carry comes along.
// If the standby cannot be converted, the old version has the writes again; then it is made anew, and goes through.
func TestUpgradeInPlace(t *testing.T) { //nolint:paralleltest // it takes the machine
	c := newUpgradeCluster(t, 2, 15, 17)
	first, second := c.start("db-1"), c.start("db-2")
	first.awaitReady(agentapi.RolePrimary)
	second.awaitReady(agentapi.RoleStandby)
	for _, statement := range []string{
		"CREATE TABLE written (n int)", "ALTER TABLE written OWNER TO app", "SELECT lo_from_bytea(4711, 'large')", "CREATE SEQUENCE s START 42",
	} {
		_, err := first.query("app", statement)
		require.NoError(t, err)
	}
	w := c.write()
	streaming := func(id string) {
		c.change(func(config *agentapi.Config) {
			config.Upgrade = &agentapi.Upgrade{ID: id, From: "15", To: "17", Seed: "db-2", Method: agentapi.MethodInPlace}
			config.Members[1].Version = "17"
		})
		second = c.repod("db-2")
		second.await(upgradeBound, "streaming", func(s agentapi.Status) bool {
			return s.Upgrade != nil && s.Upgrade.Seed != nil && s.Upgrade.Seed.Stage == agentapi.SeedStreaming && s.Upgrade.Seed.Streaming &&
				s.Upgrade.Seed.LagBytes != nil && *s.Upgrade.Seed.LagBytes < 1<<20
		})
	}

	// What pg_upgrade refuses, and was not there when the seed looked.
	streaming("a1b2c1")
	_, err := first.query("app", "CREATE TABLE odd (kind regcollation)")
	require.NoError(t, err)
	request := agentapi.UpgradeSwitchoverRequest{ID: "a1b2c1", Target: "db-2", To: "17", MaxPauseMillis: upgradeBound.Milliseconds(), Offline: true}
	require.NoError(t, c.client(naming.OperatorUser).UpgradeSwitchover(t.Context(), first.address, request))
	status := first.await(upgradeBound, "done with the switchover", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Switchover != nil && s.Upgrade.Switchover.Ended != nil
	})
	assert.Contains(t, status.Upgrade.Switchover.Refused, "public.odd.kind", "pg_upgrade's own words")
	first.awaitReady(agentapi.RolePrimary)
	acked := w.acknowledged()
	require.Eventually(t, func() bool { return len(w.acknowledged()) > len(acked)+50 }, long, often, "writes go on")
	_, err = first.query("app", "DROP TABLE odd")
	require.NoError(t, err)

	// The primary's agent is started anew in the pause: it has the writes again, and what the seed makes is of no use.
	streaming("a1b2c3")
	request.ID = "a1b2c3"
	require.NoError(t, c.client(naming.OperatorUser).UpgradeSwitchover(t.Context(), first.address, request))
	second.await(upgradeBound, "converting", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Seed != nil && s.Upgrade.Seed.Stage == agentapi.SeedConverting
	})
	first = c.repod("db-1")
	first.awaitReady(agentapi.RolePrimary)
	assert.Equal(t, "15", c.lease.annotation(naming.AnnotationVersion))
	acked = w.acknowledged()
	require.Eventually(t, func() bool { return len(w.acknowledged()) > len(acked)+50 }, long, often, "writes go on")

	streaming("a1b2c2")
	request.ID = "a1b2c2"
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	require.NoError(t, c.client(naming.OperatorUser).UpgradeSwitchover(ctx, first.address, request))
	status = first.await(upgradeBound, "done with the switchover", func(s agentapi.Status) bool {
		return s.Upgrade != nil && s.Upgrade.Switchover != nil && s.Upgrade.ID == "a1b2c2" && s.Upgrade.Switchover.Ended != nil && s.Upgrade.Switchover.Since.After(status.Upgrade.Switchover.Since)
	})
	require.Empty(t, status.Upgrade.Switchover.Refused)
	second.awaitReady(agentapi.RolePrimary)
	assert.Equal(t, "17", c.lease.annotation(naming.AnnotationVersion))
	c.change(func(config *agentapi.Config) {
		config.Version, config.Members[0].Version, config.Upgrade.Origin, config.Upgrade.Retire = "17", "15", "db-1", true
		config.SystemIdentifier = second.status().SystemIdentifier
	})
	acked = w.acknowledged()
	require.Eventually(t, func() bool { return len(w.acknowledged()) > len(acked)+50 }, long, often, "writes go on")
	w.end()
	w.assertIn(second, w.acknowledged())
	for query, want := range map[string]string{
		"SELECT convert_from(lo_get(4711), 'UTF8')": "large", "SELECT nextval('s')::text": "42",
		"SELECT (current_setting('server_version_num')::int / 10000)::text": "17",
	} {
		got, err := second.query("app", query)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	second.await(upgradeBound, "retired", func(s agentapi.Status) bool { return s.Upgrade != nil && s.Upgrade.Retired })
	t.Logf("%d rows; writes paused: %v", len(w.acknowledged()), w.pauses)
}
