package agent

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestSavedWAL: a primary hands over while the repository cannot be used, and the next one has removed most of the WAL that waits, since it does
// not need it. When the repository is back the former primary archives what it has, and all is recovered.
func TestSavedWAL(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 2)
	repository := withRepository(t, c)
	c.change(func(config *agentapi.Config) {
		config.Parameters = map[string]string{"wal_keep_size": "0", "min_wal_size": "32MB", "max_wal_size": "32MB"}
	})
	first, second := startForBackups(c, "db-1"), startForBackups(c, "db-2")
	first.awaitReady(agentapi.RolePrimary)
	second.awaitReady(agentapi.RoleStandby)
	first.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := first.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	require.Empty(t, first.backUp("first", backup.Full, "db-1", "").Error)

	require.NoError(t, os.Rename(repository.Path, repository.Path+".away"))
	require.NoError(t, os.WriteFile(repository.Path, []byte("no folder"), 0o644))
	var waiting []string
	for n := 2; n <= 7; n++ {
		_, err := first.query("postgres", fmt.Sprintf("INSERT INTO t VALUES (%d)", n))
		require.NoError(t, err)
		waiting = append(waiting, first.ask("SELECT pg_walfile_name(pg_switch_wal())"))
	}
	first.await(backupBound, "failing to archive", func(s agentapi.Status) bool { return s.Archive != nil && s.Archive.Failing != nil })
	require.EventuallyWithT(t, func(t *assert.CollectT) { // a restartpoint removes what the standby and its slots do not need
		for _, statement := range []string{"SELECT pg_logical_emit_message(false, 'x', 'x')", "CHECKPOINT"} {
			_, err := first.query("postgres", statement)
			assert.NoError(t, err)
		}
		_, err := second.query("postgres", "CHECKPOINT")
		assert.NoError(t, err)
		oldest, err := second.query("postgres", "SELECT min(name) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'")
		assert.NoError(t, err)
		assert.Greater(t, oldest, waiting[3])
	}, backupBound, time.Second)

	require.NoError(t, c.client(naming.OperatorUser).Switchover(t.Context(), first.address, agentapi.SwitchoverRequest{Target: "db-2"}))
	second.awaitReady(agentapi.RolePrimary)
	first.awaitReady(agentapi.RoleStandby)
	_, err = first.query("postgres", "CHECKPOINT")
	require.NoError(t, err)
	_, err = second.query("postgres", "INSERT INTO t VALUES (100)")
	require.NoError(t, err)

	require.NoError(t, os.Remove(repository.Path))
	require.NoError(t, os.Rename(repository.Path+".away", repository.Path))
	second.archived()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		left, err := first.agent.volume.SavedWAL(first.agent.backups.stanza)
		assert.NoError(t, err)
		assert.Empty(t, left)
	}, backupBound, often)
	first.stop()
	second.stop()
	testRecovery(t, repository, backup.Target{}, "128")
}
