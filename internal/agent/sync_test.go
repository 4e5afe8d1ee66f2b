package agent

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/conf"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
)

func TestSyncNames(t *testing.T) {
	t.Parallel()
	for text, set := range map[string]*election.SyncSet{
		"": nil, `ANY 1 ("db-2")`: {Number: 1, Names: []string{"db-2"}}, `ANY 2 ("db-2","db-10","db-3")`: {Number: 2, Names: []string{"db-2", "db-10", "db-3"}},
	} {
		assert.Equal(t, text, syncNames(set))
		parsed, err := parseSyncNames(text)
		require.NoError(t, err)
		assert.Equal(t, set, parsed)
	}
	assert.Equal(t, "ANY 1 (db-2,db-3,db-10)", syncText(&election.SyncSet{Number: 1, Names: []string{"db-10", "db-3", "db-2"}}))
	assert.Empty(t, syncText(nil))
	assert.Empty(t, syncNames(&election.SyncSet{Names: []string{"db-2"}}), "of nobody")
	_, err := parseSyncNames("*")
	require.Error(t, err)
}

// write begins to write a row as the application does; the channel has the end of it.
func (a *testAgent) write(t *testing.T, n int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), long)
	t.Cleanup(cancel)
	go func() {
		connection, err := pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", a.paths.Run, a.cluster.ports.Postgres))
		if err == nil {
			_, err = connection.Exec(ctx, "INSERT INTO t VALUES ($1::int)", n)
			_ = connection.Close(context.Background())
		}
		done <- err
	}()
	return done
}

// awaitSync waits until PostgreSQL and the lease have the set.
func (a *testAgent) awaitSync(t *testing.T, set string) {
	t.Helper()
	a.await(2*long, "with "+set, func(s agentapi.Status) bool {
		return s.Sync == set && a.cluster.lease.annotation(naming.AnnotationSync) == set
	})
}

// TestAgent_synchronous is about commits that wait. Its parts build on each other.
func TestAgent_synchronous(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3)
	mode := func(mode agentapi.SyncMode) {
		c.change(func(c *agentapi.Config) { c.Availability.Synchronous = agentapi.Synchronous{Mode: mode, Number: 1} })
	}
	mode(agentapi.SyncRequired)
	one, two, three := c.start("db-1"), c.start("db-2"), c.start("db-3")
	one.awaitReady(agentapi.RolePrimary)
	for _, standby := range []*testAgent{two, three} {
		standby.awaitReady(agentapi.RoleStandby)
	}
	one.awaitSync(t, "ANY 1 (db-2,db-3)")
	assert.Equal(t, "required", c.lease.annotation(naming.AnnotationSyncMode))
	assert.Equal(t, []string{"db-2", "db-3"}, one.status().SyncStandbys)
	two.answers("SHOW synchronous_standby_names", `ANY 1 ("db-1","db-3")`)
	one.ask("CREATE TABLE t (n int)")

	if c.major < 17 { // from which on there is no ALTER SYSTEM
		one.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
		one.ask("SELECT pg_reload_conf()::text")
		one.answers("SELECT count(*)::text FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'", "0")
		one.awaitSync(t, "ANY 1 (db-2,db-3)")
	}

	three.stop()
	one.awaitSync(t, "ANY 1 (db-2)")
	require.NoError(t, <-one.write(t, 1))

	two.stop()
	waiting := one.write(t, 2)
	status := one.await(long, "blocked", func(s agentapi.Status) bool { return s.Problem != nil && s.Problem.Reason == reasonSyncBlocked })
	assert.Contains(t, status.Problem.Message, "until 1 standbys confirm")
	select {
	case err := <-waiting:
		require.Fail(t, "a commit was acknowledged that no standby has", "%v", err)
	case <-time.After(2 * syncSettle):
	}
	c.start("db-2")
	require.NoError(t, <-waiting)
	one.awaitSync(t, "ANY 1 (db-2)")

	mode(agentapi.SyncPreferred)
	two.stop()
	waiting = one.write(t, 3)
	require.NoError(t, <-waiting, "it goes on when the set has shrunk")
	require.Eventually(t, func() bool { return c.lease.annotation(naming.AnnotationSync) == "ANY 0 ()" }, long, often)
	one.await(long, "degraded", func(s agentapi.Status) bool {
		return s.Problem != nil && s.Problem.Reason == reasonSyncDegraded && s.Ready
	})

	mode(agentapi.SyncRequired)
	c.start("db-2")
	c.start("db-3")
	one.awaitSync(t, "ANY 1 (db-2,db-3)")
	one.await(long, "content", func(s agentapi.Status) bool { return s.Problem == nil })

	c.lease.give("db-2")
	two.awaitReady(agentapi.RolePrimary)
	assert.NotEmpty(t, two.ask("SHOW synchronous_standby_names"), "from the beginning")
	require.NoError(t, <-two.write(t, 4))
	one.awaitFollowing(two)
	two.awaitSync(t, "ANY 1 (db-1,db-3)")
	assert.Equal(t, "4", two.ask("SELECT count(*)::text FROM t"))

	mode(agentapi.SyncNone)
	two.await(long, "asynchronous", func(s agentapi.Status) bool { return s.Sync == "" && c.lease.annotation(naming.AnnotationSync) == "" })
	assert.Equal(t, "none", c.lease.annotation(naming.AnnotationSyncMode))
	two.answers("SHOW synchronous_standby_names", "")
}

// TestSyncInForce: a first set is in force only when the checkpointer has had time for it.
func TestSyncInForce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := &Agent{log: slog.New(slog.DiscardHandler), instance: instance{conf: &conf.Files{}}}
	set := &election.SyncSet{Number: 1, Names: []string{"db-2"}}
	look := func(after time.Duration, names string, free bool) bool {
		now = now.Add(after)
		a.syncFlag.note(time.Time{}, now, names, free)
		return a.syncInForce(&world{now: now, state: &sql.State{SyncNames: names, CheckpointerFree: free,
			Senders: []sql.Sender{{Name: "db-2", Streaming: true, Candidate: names != ""}}}})
	}
	a.syncing.use = set
	assert.False(t, look(0, "", false), "not read yet")
	assert.False(t, look(time.Second, syncNames(set), false), "just read")
	assert.False(t, look(time.Minute, syncNames(set), false), "the checkpointer is busy")
	assert.True(t, look(time.Second, syncNames(set), true))
	assert.True(t, look(time.Second, syncNames(set), false), "busy again, with the flag set")
	a.syncing.use = nil
	look(time.Second, "", false)
	assert.True(t, look(time.Minute, "", false), "nobody is to be waited for")
	a.syncing.use = set
	look(time.Second, syncNames(set), false)
	assert.False(t, look(time.Minute, syncNames(set), false), "the flag is to be set again")
}

// TestSyncFlag: a standby is promoted only when its checkpointer has read that commits are to wait.
func TestSyncFlag(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
	flag := syncFlag{}
	flag.note(start, at(1), "names", true)
	assert.False(t, flag.set, "it may not have looked yet")
	flag.note(start, at(2), "names", false)
	assert.False(t, flag.set, "it is busy")
	flag.note(start, at(3), "other names", true)
	assert.True(t, flag.set)
	flag.note(start, at(4), "names", false)
	assert.True(t, flag.set, "only who it waits for has changed")
	flag.note(start, at(5), "", true)
	flag.note(start, at(6), "names", false)
	assert.False(t, flag.set, "there was nobody to wait for")
	flag.note(start, at(7), "names", true)
	assert.True(t, flag.set)
	flag.note(at(8), at(9), "names", false)
	assert.False(t, flag.set, "another run of the server")
}

// TestForce: a takeover by force counts until this Pod has held the Lease once, whatever the configuration says after that, and in
// whatever run of the agent.
func TestForce(t *testing.T) {
	t.Parallel()
	volume := datadir.NewVolume(t.TempDir(), 17, func(string) error { return nil })
	require.NoError(t, volume.Prepare())
	start := func() *Agent {
		return &Agent{
			log: slog.New(slog.DiscardHandler), options: Options{Instance: "db-2", PodUID: "pod-2"},
			instance: instance{volume: volume, config: &agentapi.Config{ForceFailover: "db-2"}},
		}
	}
	of := func(holder, pod string) *world {
		return &world{view: lease.View{Holding: pod == "pod-2", Record: lease.Record{Holder: holder, HolderPod: pod}}}
	}
	a := start()
	assert.False(t, a.isForced(), "the volume was not read yet")
	a.noteForce(of("db-1", "pod-1"))
	assert.True(t, a.isForced())
	a.noteForce(of("db-2", "another pod of it"))
	assert.True(t, a.isForced())
	a.noteForce(of("db-2", "pod-2"))
	assert.False(t, a.isForced(), "it is done")
	waiting := &world{decision: election.Decision{Action: election.Wait, Reason: "waiting"}}
	a.explainForce(waiting)
	assert.Contains(t, waiting.decision.Reason, naming.AnnotationForceFailover)
	a.keepForce()
	a = start()
	a.noteForce(of("db-3", "pod-3"))
	assert.False(t, a.isForced(), "done, in an earlier run of the agent")
	a.config.ForceFailover = ""
	a.noteForce(of("db-3", "pod-3"))
	a.keepForce()
	a = start()
	a.config.ForceFailover = "db-2"
	a.noteForce(of("db-3", "pod-3"))
	assert.True(t, a.isForced(), "wished anew")
}
