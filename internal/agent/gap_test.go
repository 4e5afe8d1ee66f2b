package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestGap: the archive has lost a file of WAL. A recovery to the end says so instead of ending there as if that were all; who wishes just that gives
// the position, and who names a time or a position before it is not concerned.
func TestGap(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	repository := withRepository(t, c)
	primary := startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	stanza := primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool {
		return s.Repository != nil && s.Repository.Ready
	}).Repository.Stanza
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	require.Empty(t, primary.backUp("first", backup.Full, "db-1", "").Error)
	var files []string
	for _, insert := range []string{"INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (4)", "INSERT INTO t VALUES (8)"} {
		_, err := primary.query("postgres", insert)
		require.NoError(t, err)
		files = append(files, primary.ask("SELECT pg_walfile_name(pg_current_wal_lsn())"))
		primary.archived()
	}
	primary.stop()
	lost, err := filepath.Glob(filepath.Join(repository.Path, "archive", stanza, "*", "*", files[1]+"-*"))
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.NoError(t, os.Remove(lost[0]))
	gap, ok := postgres.ParseSegment(files[1])
	require.True(t, ok)

	t.Run("to the end", func(t *testing.T) {
		testRefusedRecovery(t, repository, backup.Target{}, "WAL "+files[1]+" is missing in the archive, and the next, ")
	})
	t.Run("to the gap", func(t *testing.T) { testRecovery(t, repository, backup.Target{LSN: gap.Start().String()}, "3") })
	t.Run("to the backup", func(t *testing.T) { testRecovery(t, repository, backup.Target{Immediate: true}, "1") })
	t.Run("beyond", func(t *testing.T) {
		beyond := postgres.Segment{Timeline: 1, Number: gap.Number + 1}.Start()
		testRefusedRecovery(t, repository, backup.Target{LSN: beyond.String()}, "WAL "+files[1]+" is missing in the archive")
	})
}
