package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// TestAbandonedBackup: a cluster is recovered, into its old stanza, to a position before its second backup. That backup leads to where the
// cluster is no more: it is told, and another recovery to the end begins with the first. With the timeline that was left it can be used.
func TestAbandonedBackup(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	repository := withRepository(t, c)
	primary := startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	require.Empty(t, primary.backUp("first", backup.Full, "db-1", "").Error)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	lsn := primary.ask("SELECT pg_current_wal_lsn()::text")
	_, err = primary.query("postgres", "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	require.Empty(t, primary.backUp("second", backup.Full, "db-1", "").Error)
	primary.archived()
	primary.stop()

	r := newTestCluster(t, 1)
	r.ports.Backup = freePort(t)
	r.change(func(config *agentapi.Config) {
		config.Recovery = &agentapi.Recovery{Repository: repository, Target: backup.Target{LSN: lsn}}
		config.Backup = &agentapi.BackupConfig{Repository: repository, RetentionDays: 30}
	})
	again := startForBackups(r, "db-1")
	again.await(backupBound, "a primary made from a backup", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	_, err = again.query("postgres", "INSERT INTO t VALUES (10)")
	require.NoError(t, err)
	again.archived()
	again.agent.backups.runner.Doubt()
	report := again.await(backupBound, "aware of the backup that was left behind", func(s agentapi.Status) bool {
		return s.Repository != nil && s.Repository.Known && s.Repository.Timeline > 1 && len(s.Repository.Backups) == 2
	}).Repository
	assert.False(t, report.Backups[0].Abandoned)
	assert.True(t, report.Backups[1].Abandoned, "%+v", report)
	newest, ok := backup.Newest(report.Backups)
	require.True(t, ok)
	assert.Equal(t, "first", newest.Name)
	again.stop()

	t.Run("to the end", func(t *testing.T) { testRecovery(t, repository, backup.Target{}, "13") })
	t.Run("along the timeline that was left", func(t *testing.T) {
		testRecovery(t, repository, backup.Target{Backup: "second", Timeline: 1}, "6")
	})
	t.Run("refuses what leads elsewhere", func(t *testing.T) {
		testRefusedRecovery(t, repository, backup.Target{Backup: "second"}, "backup second ended on timeline 1")
	})
}
