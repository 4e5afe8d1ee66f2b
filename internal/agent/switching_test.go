package agent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// hang is somebody who asks for WAL and never says that it has come.
func (a *testAgent) hang(t *testing.T) {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres replication=database", a.paths.Run, a.cluster.ports.Postgres))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	c.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + a.ask("SELECT pg_current_wal_flush_lsn()::text")})
	require.NoError(t, c.Frontend().Flush())
	a.answers("SELECT count(*)::text FROM pg_stat_replication WHERE state = 'streaming'", "1")
}

// TestStopForSwitch: somebody who receives WAL and does not confirm it does not make the pause of a switch longer, and the server still stops in an
// orderly way.
func TestStopForSwitch(t *testing.T) { //nolint:paralleltest // it takes the machine
	c := newTestCluster(t, 1)
	first := c.start("db-1")
	first.awaitReady(agentapi.RolePrimary)
	first.ask("CREATE TABLE t AS SELECT 42 AS n")
	first.hang(t)
	volume := datadir.NewVolume(first.paths.Data, c.major, nil)
	first.agent.switching.set(func(s *switching) { s.holds = true })
	began := time.Now()
	require.NoError(t, first.agent.stopForSwitch(t.Context(), volume, lingerBound))
	assert.Less(t, time.Since(began), fastStopBound/2)
	found, err := volume.Inspect()
	require.NoError(t, err)
	assert.True(t, found.Control.StoppedCleanly())

	first.agent.switching.set(func(s *switching) { s.stopped = false })
	first.answers("SELECT n::text FROM t", "42")
}
