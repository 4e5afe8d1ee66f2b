package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestAgent_comingBack is about a primary that lost its place, and comes back. Its parts build on each other.
func TestAgent_comingBack(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	one, two := c.start("db-1"), c.start("db-2")
	one.awaitReady(agentapi.RolePrimary)
	two.awaitReady(agentapi.RoleStandby)
	one.ask("CREATE TABLE t (n int)")

	none, failing, hanging := "", fakeRewind(t, "echo 'no such luck' >&2; exit 1"), fakeRewind(t, "sleep 600")
	for _, part := range []struct {
		name string
		test func(t *testing.T, primary, standby *testAgent)
		// next is the pg_rewind of an instance that is started in this part: it is the primary in the next one.
		next *string
	}{
		{"follows without more ado after a clean stop", testBackClean, nil},
		{"is rewound after it has diverged", testBackDiverged, &none},
		{"is copied if there is no pg_rewind", testBackNoProgram, &failing},
		{"is copied if rewinding fails", testBackRewindFails, &hanging},
		{"is copied if rewinding was cut off", testBackRewindCutOff, nil},
		{"is copied if its control file is damaged", testBackNoControl, nil},
		{"is copied if its data is damaged", testBackDamaged, nil},
	} {
		primary, standby := one, two
		if c.lease.holder() == two.name {
			primary, standby = two, one
		}
		standby.rewind = part.next
		if !t.Run(part.name, func(t *testing.T) { part.test(t, primary, standby) }) {
			break
		}
	}
}

// since is what the agent has logged from that moment on.
func (a *testAgent) since() func() string {
	before := len(a.log.String())
	return func() string { return a.log.String()[before:] }
}

// awaitFollowing waits until the instance follows the other.
func (a *testAgent) awaitFollowing(other *testAgent) agentapi.Status {
	a.cluster.t.Helper()
	// a rewind that cannot be is followed by a copy
	return a.await(3*long, "following "+other.name, func(s agentapi.Status) bool {
		return s.Ready && s.Role == agentapi.RoleStandby && s.Streaming && s.Upstream == other.name && s.Timeline == other.status().Timeline
	})
}

// testBackClean leaves the primary as a standby of the other one.
func testBackClean(t *testing.T, primary, standby *testAgent) {
	c := primary.cluster
	logged := primary.since()
	primary.stop()
	c.lease.give(standby.name)
	status := standby.awaitReady(agentapi.RolePrimary) // it was handed over, or is given
	start, err := postgres.ParseLSN(status.TimelineStart)
	require.NoError(t, err)
	assert.Positive(t, start)
	assert.Equal(t, []agentapi.TimelineEnd{{Timeline: 1, End: status.TimelineStart}}, status.History)
	c.start(primary.name)
	primary.awaitFollowing(standby)
	assert.NotContains(t, logged(), "Rewinding")
	assert.NotContains(t, logged(), "Copying")
}

// diverge has the primary write what the standby never receives, and makes the standby primary. The primary's server has
// crashed then; what has become of it is up to the caller.
func diverge(t *testing.T, primary, standby *testAgent) {
	t.Helper()
	c := primary.cluster
	standby.stop()
	primary.ask("INSERT INTO t SELECT generate_series(1, 1000)")
	primary.ask("SELECT pg_switch_wal()")
	primary.ask("INSERT INTO t SELECT generate_series(1, 1000)")
	c.lease.give(standby.name)
	require.Eventually(t, func() bool { return !primary.agent.server.Snapshot().Running }, short, often)
	c.start(standby.name)
	standby.awaitReady(agentapi.RolePrimary)
	standby.ask("INSERT INTO t VALUES (0)")
}

// awaitSame waits until the instance follows the other and has the same rows.
func (a *testAgent) awaitSame(t *testing.T, other *testAgent) {
	t.Helper()
	a.awaitFollowing(other)
	const rows = "SELECT count(*) || ' ' || coalesce(sum(n), 0) FROM t"
	other.ask("INSERT INTO t VALUES (0)")
	a.answers(rows, other.ask(rows))
}

func testBackDiverged(t *testing.T, primary, standby *testAgent) {
	logged := primary.since()
	diverge(t, primary, standby)
	primary.awaitSame(t, standby)
	assert.Contains(t, logged(), "The data is rewound")
	assert.NotContains(t, logged(), "Copying")
	assert.Nil(t, primary.status().Problem)
}

// programs are PostgreSQL's, with the pg_rewind that the test wants.
func (a *testAgent) programs(ctx context.Context, children *supervise.Children, major int) (datadir.Programs, error) {
	programs, err := datadir.FindPrograms(ctx, children, major)
	if a.rewind != nil {
		programs.Rewind = *a.rewind
	}
	return programs, err
}

func testBackNoProgram(t *testing.T, primary, standby *testAgent) {
	logged := primary.since()
	diverge(t, primary, standby)
	primary.awaitSame(t, standby)
	assert.Contains(t, logged(), "the image has no pg_rewind")
	assert.Contains(t, logged(), "Copying data")
}

// fakeRewind agrees to the trial, and then does as told.
func fakeRewind(t *testing.T, body string) string {
	t.Helper()
	directory, err := os.MkdirTemp("/tmp", "pgs") // where PostgreSQL's user may look
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	require.NoError(t, os.Chmod(directory, 0o755))
	path := filepath.Join(directory, "pg_rewind")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\ncase \"$*\" in *--dry-run*) exit 0;; esac\n"+body), 0o755))
	return path
}

func testBackRewindFails(t *testing.T, primary, standby *testAgent) {
	logged := primary.since()
	diverge(t, primary, standby)
	primary.awaitSame(t, standby)
	assert.Contains(t, logged(), "no such luck")
	assert.Contains(t, logged(), "Copying data")
	assert.NoFileExists(t, primary.dataDir()+".rewinding")
}

func testBackRewindCutOff(t *testing.T, primary, standby *testAgent) {
	diverge(t, primary, standby)
	require.Eventually(t, func() bool {
		_, err := os.Stat(primary.dataDir() + ".rewinding")
		return err == nil
	}, long, often)
	status := primary.await(short, "being rewound", func(s agentapi.Status) bool { return s.State == agentapi.StateSeeding && !s.HasData })
	assert.False(t, status.DataKnown, "nobody may conclude anything from it")
	primary.stop()
	primary.rewind = nil
	logged := primary.since()
	primary.cluster.start(primary.name)
	primary.awaitSame(t, standby)
	assert.Contains(t, logged(), "Copying data")
	assert.Equal(t, 1, strings.Count(logged(), "Starting PostgreSQL"), "what was torn was never started")
}

func testBackNoControl(t *testing.T, primary, standby *testAgent) {
	standby.stop()
	require.NoError(t, os.Truncate(filepath.Join(standby.dataDir(), postgres.ControlFile), 100))
	logged := standby.since()
	standby.cluster.start(standby.name)
	standby.await(short, "saying why", func(s agentapi.Status) bool {
		return s.Problem != nil && strings.Contains(s.Problem.Message, "control file not readable") && !s.DataKnown
	})
	standby.awaitSame(t, primary)
	assert.Contains(t, logged(), "Copying data")
}

func testBackDamaged(t *testing.T, primary, standby *testAgent) {
	standby.stop()
	label := filepath.Join(standby.dataDir(), "backup_label")
	require.NoError(t, os.WriteFile(label, []byte("nonsense\n"), 0o600))
	own(t, label)
	logged := standby.since()
	standby.cluster.start(standby.name)
	standby.awaitSame(t, primary)
	assert.Contains(t, logged(), "its data is damaged")
	assert.Contains(t, logged(), "Copying data")
}

// TestAgent_noteRewind: a checkpoint that does not end in time is waited for again, but not for ever.
func TestAgent_noteRewind(t *testing.T) {
	t.Parallel()
	a := New(Options{Output: &syncBuffer{}})
	for i := range checkpointsAtMost {
		assert.Empty(t, a.reclone, i)
		a.back.rewind, a.back.rewinding = "it diverged", true
		a.noteSeed(sql.ErrCheckpointSlow)
	}
	assert.Contains(t, a.reclone, "the checkpoint did not end in time")
	assert.Empty(t, a.back.rewind)
}
