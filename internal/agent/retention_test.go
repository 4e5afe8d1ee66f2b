package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/servers"
)

// TestRetention: with a period that begins between the second and the third of three full backups these two are left; the first is gone
// with the WAL that only it needed, and the second can be recovered.
func TestRetention(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	repository := withRepository(t, c)
	primary := startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	stanza := primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool {
		return s.Repository != nil && s.Repository.Ready
	}).Repository.Stanza
	_, err := primary.query("postgres", "CREATE TABLE t (n int)")
	require.NoError(t, err)
	wal := func() []string {
		files, err := filepath.Glob(filepath.Join(repository.Path, "archive", stanza, "*", "*", "*.zst"))
		require.NoError(t, err)
		return files
	}
	earlier := earlierStanza(t, repository.Path, stanza)
	var labels []string
	retention, last := time.Hour, time.Time{}
	for n := 1; n <= 3; n++ {
		_, err := primary.query("postgres", fmt.Sprintf("INSERT INTO t VALUES (%d)", n))
		require.NoError(t, err)
		primary.archived()
		id := fmt.Sprintf("backup-%d", n)
		if n == 3 {
			time.Sleep(20 * time.Second) //nolint:forbidigo // age is what matters: pgBackRest may take that long until it removes something, and the third is to be within the period
			retention = time.Since(last)
		}
		require.NoError(t, primary.agent.backups.runner.Begin(context.Background(), backrest.Job{
			Request: agentapi.BackupRequest{ID: id, Name: id, Type: backup.Full, Primary: "db-1"}, Stanza: stanza, Retention: retention,
			Settings: primary.agent.backupSettings(stanza, primary.agent.backupHost("db-1")),
		}))
		run := primary.await(backupBound, "done", func(s agentapi.Status) bool {
			return s.Backup != nil && s.Backup.ID == id && s.Backup.Ended != nil
		}).Backup
		require.Empty(t, run.Error)
		labels, last = append(labels, run.Result.Label), run.Result.Stopped
		if n == 1 {
			require.NotEmpty(t, wal())
		}
		if n < 3 {
			require.DirExists(t, earlier[0], "it has what the present one does not cover yet")
		}
	}
	status := primary.await(backupBound, "aware of what is left", func(s agentapi.Status) bool { return len(s.Repository.Backups) == 2 })
	require.Equal(t, labels[1], status.Repository.Backups[0].Label)
	require.Equal(t, labels[2], status.Repository.Backups[1].Label)
	folders, err := filepath.Glob(filepath.Join(repository.Path, "backup", stanza, "*F"))
	require.NoError(t, err)
	require.Len(t, folders, 2)
	for _, file := range wal() {
		require.Greater(t, filepath.Base(file)[:24], "000000010000000000000002", "nobody needs it")
	}
	for _, folder := range earlier {
		require.NoDirExists(t, folder, "it has nothing of the period")
	}
	primary.stop()
	testRecovery(t, repository, backup.Target{Immediate: true, Backup: labels[1]}, "3")
}

// earlierStanza is what an earlier generation of the cluster left in the repository, without backups: its folders.
func earlierStanza(t *testing.T, repository, like string) []string {
	t.Helper()
	var folders []string
	for _, kind := range []string{"archive", "backup"} {
		folder := filepath.Join(repository, kind, "pg14-1")
		require.NoError(t, os.CopyFS(folder, os.DirFS(filepath.Join(repository, kind, like))))
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			servers.Own(t, path)
			return err
		}))
		folders = append(folders, folder)
	}
	return folders
}

// TestRemoveBackup: the older of two full backups is removed when asked, with the WAL that only it needed; the other one, the last, is not,
// and can be recovered.
func TestRemoveBackup(t *testing.T) {
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
	var labels []string
	for _, id := range []string{"first", "second"} {
		run := primary.backUp(id, backup.Full, "db-1", "")
		require.Empty(t, run.Error)
		labels = append(labels, run.Result.Label)
		primary.archived()
	}
	client := c.client(naming.OperatorUser)
	remove := func(id, label string) string {
		t.Helper()
		require.NoError(t, client.RemoveBackup(t.Context(), primary.address, agentapi.RemovalRequest{ID: id, Stanza: stanza, Label: label}))
		return primary.await(backupBound, "done with "+id, func(s agentapi.Status) bool {
			return s.Removal != nil && s.Removal.ID == id && s.Removal.Ended != nil
		}).Removal.Error
	}
	require.ErrorContains(t, client.RemoveBackup(t.Context(), primary.address, agentapi.RemovalRequest{ID: "x", Stanza: "pg16-1", Label: labels[0]}), "not in pg16-1")
	require.Empty(t, remove("one", labels[0]))
	require.Empty(t, remove("again", labels[0]), "it is not there any more")
	require.Contains(t, remove("two", labels[1]), "last good full one")
	backups := primary.status().Repository.Backups
	require.Len(t, backups, 1)
	require.Equal(t, labels[1], backups[0].Label)
	files, err := filepath.Glob(filepath.Join(repository.Path, "archive", stanza, "*", "*", "*.zst"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		require.Greater(t, filepath.Base(file)[:24], "000000010000000000000002", "nobody needs it")
	}
	primary.stop()
	testRecovery(t, repository, backup.Target{Immediate: true, Backup: labels[1]}, "1")
}
