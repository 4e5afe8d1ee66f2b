package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// TestAgent_fullDisk fills the volume of a primary: the agent goes on, says what is wrong, and serves again when there is room.
func TestAgent_fullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	c := newTestCluster(t, 1)
	a := c.agents["db-1"]
	if err := syscall.Mount("tmpfs", a.paths.Data, "tmpfs", 0, "size=256m,mode=777"); err != nil {
		t.Skip("mounting a small file system: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(a.paths.Data, syscall.MNT_DETACH) })
	t.Cleanup(a.stop)
	c.start("db-1")
	a.awaitReady(agentapi.RolePrimary)
	_, err := a.query("postgres", "CREATE TABLE t (text text)")
	require.NoError(t, err)

	require.Eventually(t, a.agent.volume.HasReserve, short, often)

	filler := filepath.Join(a.paths.Data, "filler")
	fill(t, filler)
	a.await(short, "warning", func(s agentapi.Status) bool { return s.Problem != nil && s.Problem.Reason == reasonDiskFull && s.Ready })
	require.Eventually(t, func() bool { // WAL cannot grow: PostgreSQL ends with PANIC
		_, _ = a.query("postgres", "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, 20)")
		return strings.Contains(a.log.String(), "Giving up the reserve")
	}, long, often)
	status := a.await(long, "serving readers", func(s agentapi.Status) bool {
		return s.Problem != nil && s.Problem.Reason == reasonDiskFull && s.Ready && strings.Contains(s.Problem.Message, "read-only")
	})
	require.Contains(t, status.Problem.Message, "No space left on device")
	require.Equal(t, "0", a.ask("SELECT count(*)::text FROM t"))
	_, err = a.query("postgres", "INSERT INTO t VALUES ('there is no room')")
	require.ErrorContains(t, err, "read-only transaction")
	_, err = a.query("postgres", "CHECKPOINT")
	require.NoError(t, err)

	// Whoever writes nevertheless fills what is left: it fails, stays the primary, and says why.
	require.Eventually(t, func() bool {
		_, _ = a.query("postgres", "SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)) FROM generate_series(1, 20)")
		return !a.status().Ready
	}, long, often)
	code, _ := a.get("/livez")
	require.Equal(t, 200, code)
	require.Equal(t, "db-1", c.lease.holder())
	require.Equal(t, reasonDiskFull, a.status().Problem.Reason)

	require.NoError(t, os.Remove(filler))
	a.await(long, "content", func(s agentapi.Status) bool { return s.Ready && s.Problem == nil })
	require.True(t, a.agent.volume.HasReserve())
	_, err = a.query("postgres", "INSERT INTO t VALUES ('there is room')")
	require.NoError(t, err)
}

// fill takes all the room there is.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	block := make([]byte, 1<<20)
	for size := len(block); size >= 512; {
		if _, err := file.Write(block[:size]); err != nil {
			size /= 2
		}
	}
}
