package agent

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// consume is a logical consumer that answers keepalives and confirms nothing: a fast shutdown waits for it for ever.
func (a *testAgent) consume(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connection, err := pgconn.Connect(ctx, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres replication=database",
		a.paths.Run, a.cluster.ports.Postgres))
	require.NoError(t, err)
	_, err = connection.Exec(ctx, "CREATE_REPLICATION_SLOT never TEMPORARY LOGICAL pgoutput").ReadAll()
	require.NoError(t, err)
	connection.Frontend().SendQuery(&pgproto3.Query{
		String: "START_REPLICATION SLOT never LOGICAL 0/0 (proto_version '1', publication_names 'never')",
	})
	require.NoError(t, connection.Frontend().Flush())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			message, err := connection.ReceiveMessage(ctx)
			if err != nil {
				return
			}
			if data, ok := message.(*pgproto3.CopyData); ok && data.Data[0] == 'k' && data.Data[17] == 1 {
				reply := make([]byte, 34)
				reply[0] = 'r'
				for i := range 3 {
					binary.BigEndian.PutUint64(reply[1+8*i:], 1) // received, and no further
				}
				connection.Frontend().Send(&pgproto3.CopyData{Data: reply})
				_ = connection.Frontend().Flush()
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done; _ = connection.Close(context.Background()) })
}

// freeze stops a process of the server as if it hung, and lets it go on in the end.
func (a *testAgent) freeze(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

// process is the PID of the server's process of that type.
func (a *testAgent) process(t *testing.T, kind string) int {
	t.Helper()
	pid, err := strconv.Atoi(a.ask("SELECT pid FROM pg_stat_activity WHERE backend_type = $1", kind))
	require.NoError(t, err)
	return pid
}

// TestAgent_bounds: whatever waits has an end, and says before what it waits for. Its parts build on each other: each begins and ends
// with a primary and a standby that streams.
func TestAgent_bounds(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	c.change(func(c *agentapi.Config) { c.Parameters = map[string]string{"max_standby_streaming_delay": "-1"} })
	for _, name := range c.names() {
		c.agents[name].stopBound = 100 * time.Second
		c.start(name)
	}
	primary := c.settled()[0]
	primary.ask("CREATE PUBLICATION never")
	primary.ask("CREATE TABLE t AS SELECT generate_series(1, 1000) AS n")
	for _, part := range []struct {
		name string
		test func(t *testing.T, primary, standby *testAgent)
	}{
		{"a restart that waits for a consumer", testRestartBound},
		{"the end of a Pod that waits for a consumer", testEndBound},
		{"a promotion that a query holds up", testPromotionHeldUp},
		{"a replay that stands still", testReplayStands},
		{"a postmaster that stands still", testHung},
		{"a rewind that waits for a checkpoint", testCheckpointBound},
	} {
		agents := c.settled()
		t.Run(part.name, func(t *testing.T) { part.test(t, agents[0], agents[1]) })
	}
}

func testRestartBound(t *testing.T, primary, _ *testAgent) {
	c := primary.cluster
	c.change(func(c *agentapi.Config) { c.Availability.CrashRestartSeconds = 60 }) // it is to come back, however slow the machine is
	primary.await(short, "told", func(s agentapi.Status) bool { return s.ConfigGeneration == c.config.Generation })
	primary.consume(t)
	began := time.Now()
	restarted(t, primary)
	t.Logf("restarted in %s", time.Since(began))
	assert.Greater(t, time.Since(began), fastStopBound, "it did wait for the consumer")
	assert.Equal(t, primary.name, c.lease.holder())
	c.change(func(c *agentapi.Config) { c.Availability.CrashRestartSeconds = 0 })
}

func testEndBound(t *testing.T, primary, standby *testAgent) {
	primary.ask("INSERT INTO t VALUES (-42)")
	primary.consume(t)
	began := time.Now()
	primary.stop()
	t.Logf("stopped in %s", time.Since(began))
	assert.Less(t, time.Since(began), 40*time.Second, "another instance could take over")
	assert.Equal(t, standby.name, primary.cluster.lease.holder())
	standby.awaitReady(agentapi.RolePrimary)
	assert.Equal(t, "1", standby.ask("SELECT count(*)::text FROM t WHERE n = -42"))
	primary.cluster.start(primary.name)
}

// testPromotionHeldUp: what was asked of a standby does not keep the cluster without a primary.
func testPromotionHeldUp(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	asked := make(chan error, 1)
	go func() {
		connection, err := pgconn.Connect(context.Background(), fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres",
			standby.paths.Run, c.ports.Postgres))
		if err == nil {
			_, err = connection.Exec(context.Background(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t; SELECT pg_sleep(600)").ReadAll()
		}
		asked <- err
	}()
	standby.answers("SELECT count(*)::text FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND query LIKE '%sleep(600)'", "1")
	primary.ask("DELETE FROM t")
	primary.ask("VACUUM t")
	standby.answers("SELECT wait_event FROM pg_stat_activity WHERE backend_type = 'startup'", "RecoveryConflictSnapshot")
	began := time.Now()
	c.lease.give(standby.name)
	standby.await(short, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("promoted in %s", time.Since(began))
	require.Error(t, <-asked)
	standby.answers("SHOW max_standby_streaming_delay", "-1")
}

func testReplayStands(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	standby.freeze(t, standby.process(t, "startup"))
	logged := standby.since()
	began := time.Now()
	c.lease.give(standby.name)
	status := standby.await(short, "saying what it waits for", func(s agentapi.Status) bool { return s.Problem != nil })
	assert.Equal(t, reasonServer, status.Problem.Reason)
	assert.Contains(t, status.Problem.Message, "PostgreSQL does not end recovery")
	require.Eventually(t, func() bool { return c.lease.holder() == primary.name }, 2*long, often, "it hands over")
	t.Logf("handed over after %s", time.Since(began))
	assert.Contains(t, logged(), "holder-failing")
}

// testHung: a primary that stands still is replaced, and says so before.
func testHung(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	pid := primary.agent.server.Snapshot().PID
	began := time.Now()
	primary.freeze(t, pid) // its backends go on, and nobody new comes in
	status := primary.await(2*short, "saying that it does not answer", func(s agentapi.Status) bool { return s.Problem != nil && !s.Ready })
	t.Logf("said so after %s", time.Since(began))
	assert.Equal(t, reasonServer, status.Problem.Reason)
	assert.Contains(t, status.Problem.Message, "PostgreSQL does not answer new connections")
	require.Eventually(t, func() bool { return c.lease.holder() == standby.name }, 2*long, often)
	t.Logf("handed over after %s", time.Since(began))
	assert.Greater(t, time.Since(began), hungBound)
	assert.True(t, ended(pid), "it is stopped first")
	standby.awaitReady(agentapi.RolePrimary)
}

// testCheckpointBound: data whose rewind waits for a checkpoint that does not come is copied.
func testCheckpointBound(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	standby.stop()
	primary.ask("INSERT INTO t SELECT generate_series(1, 1000)")
	c.lease.give(standby.name)
	require.Eventually(t, func() bool { return !primary.agent.server.Snapshot().Running }, short, often)
	primary.stop()
	c.start(standby.name)
	standby.awaitReady(agentapi.RolePrimary)

	checkpointer := standby.process(t, "checkpointer")
	standby.freeze(t, checkpointer)
	primary.checkpointBound = time.Second
	logged := primary.since()
	c.start(primary.name)
	require.Eventually(t, func() bool { return strings.Contains(logged(), "Copying the data again") }, long, often)
	assert.Contains(t, logged(), "the checkpoint on "+standby.name+", which rewinding needs, did not end within 1s")
	assert.Equal(t, 3, strings.Count(logged(), `"msg":"Rewinding"`))
	require.NoError(t, syscall.Kill(checkpointer, syscall.SIGCONT))
	primary.awaitSame(t, standby)
}
