package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// backupBound bounds what takes pgBackRest a while on a slow machine.
const backupBound = 8 * time.Minute

func needBackrest(t *testing.T) {
	t.Helper()
	if _, err := backrest.Find(); err != nil {
		t.Skip("no pgbackrest: apt-get install pgbackrest")
	}
}

// withRepository gives the cluster a folder as its repository, which all instances reach.
func withRepository(t *testing.T, c *testCluster) agentapi.Repository {
	t.Helper()
	folder := filepath.Join(c.dir, "repository")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	own(t, folder)
	c.ports.Backup = freePort(t)
	repository := agentapi.Repository{Kind: agentapi.RepositoryFolder, Path: folder}
	c.change(func(config *agentapi.Config) {
		config.Backup = &agentapi.BackupConfig{Repository: repository, RetentionDays: 30}
	})
	return repository
}

// startForBackups starts an instance that knows where the others' data is: each has a folder of its own here.
func startForBackups(c *testCluster, name string) *testAgent {
	a := c.start(name)
	a.agent.options.BackupHost = func(instance string, host backrest.Host) backrest.Host {
		other := c.agents[instance]
		host.Data, host.Socket = other.dataDir(), other.paths.Run
		if host.Address != "" {
			host.Config = filepath.Join(other.paths.backupWork(), backrest.HostConfiguration+".conf")
		}
		return host
	}
	return a
}

func (a *testAgent) archived() {
	a.cluster.t.Helper()
	wal := a.ask("SELECT pg_walfile_name(pg_switch_wal() - 1) FROM pg_logical_emit_message(false, 'test', 'x')")
	require.EventuallyWithT(a.cluster.t, func(t *assert.CollectT) {
		last, err := a.query("postgres", "SELECT last_archived_wal FROM pg_stat_archiver")
		assert.NoError(t, err)
		assert.GreaterOrEqual(t, last, wal)
	}, backupBound, often)
}

// backUp has the instance make a backup, and waits for it.
func (a *testAgent) backUp(id string, kind backup.Type, primary, standby string) agentapi.BackupRun {
	a.cluster.t.Helper()
	client := a.cluster.client(naming.OperatorUser)
	request := agentapi.BackupRequest{ID: id, Name: id, Type: kind, Primary: primary, Standby: standby}
	require.NoError(a.cluster.t, client.Backup(a.cluster.t.Context(), a.address, request))
	require.NoError(a.cluster.t, client.Backup(a.cluster.t.Context(), a.address, request), "asking again begins nothing")
	status := a.await(backupBound, "done with the backup "+id, func(s agentapi.Status) bool {
		return s.Backup != nil && s.Backup.ID == id && s.Backup.Ended != nil
	})
	return *status.Backup
}

// TestBackup is a cluster that is backed up and made anew from its backups. Its parts build on each other.
func TestBackup(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 2)
	repository := withRepository(t, c)
	primary, standby := startForBackups(c, "db-1"), startForBackups(c, "db-2")
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })

	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	full := primary.backUp("first", "", "db-1", "")
	require.Empty(t, full.Error)
	require.NotNil(t, full.Result)
	assert.Equal(t, backup.Full, full.Type)
	assert.Equal(t, "first", full.Result.Name)
	assert.Equal(t, int64(1), full.Result.Timeline)
	assert.Positive(t, full.Result.Size)
	assert.Less(t, full.Result.RepositorySize, full.Result.Size)
	status := primary.status()
	require.Len(t, status.Repository.Backups, 1)
	assert.NotNil(t, status.Archive.LastAt)
	assert.Nil(t, status.Archive.Failing)

	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	incremental := standby.backUp("second", backup.Incremental, "db-1", "db-2")
	require.Empty(t, incremental.Error, "a backup is read from the standby")
	assert.Equal(t, "db-2", incremental.Instance)
	assert.Equal(t, backup.Incremental, incremental.Result.Type)
	assert.Equal(t, full.Result.Label, incremental.Result.FullLabel())

	lsn := primary.ask("SELECT pg_current_wal_lsn()::text")
	before := primary.ask("SELECT now()::text FROM pg_sleep(1.2)")
	_, err = primary.query("postgres", "SELECT pg_create_restore_point('before-the-mistake')")
	require.NoError(t, err)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	primary.archived()

	// after a failover the WAL of both timelines is there
	primary.stop()
	standby.awaitReady(agentapi.RolePrimary)
	_, err = standby.query("postgres", "INSERT INTO t VALUES (4)")
	require.NoError(t, err)
	standby.archived()
	end := standby.ask("SELECT now()::text FROM pg_sleep(0.1)")
	_, err = standby.query("postgres", "DROP TABLE t")
	require.NoError(t, err)
	standby.archived()
	standby.stop()

	at := func(text string) *time.Time {
		moment, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", text)
		if err != nil {
			moment, err = time.Parse("2006-01-02 15:04:05.999999-07", text)
		}
		require.NoError(t, err)
		return &moment
	}
	for _, recovered := range []struct {
		name   string
		target backup.Target
		sum    string
	}{
		{"to a time before a failover", backup.Target{Time: at(before)}, "3"},
		{"to a time after a failover", backup.Target{Time: at(end)}, "10"},
		{"to a position", backup.Target{LSN: lsn}, "3"},
		{"to a name", backup.Target{Name: "before-the-mistake", Backup: "first"}, "3"},
		{"to the end of a backup", backup.Target{Immediate: true, Backup: "first"}, "1"},
		{"to the end", backup.Target{}, ""},
	} {
		if !t.Run(recovered.name, func(t *testing.T) { testRecovery(t, repository, recovered.target, recovered.sum) }) {
			break
		}
	}
	t.Run("refuses a time before the first backup", func(t *testing.T) {
		moment := full.Result.Started.Add(-time.Hour)
		testRefusedRecovery(t, repository, backup.Target{Time: &moment}, "before the first backup")
	})
	t.Run("refuses a time in the future", func(t *testing.T) {
		moment := time.Now().Add(time.Hour)
		testRefusedRecovery(t, repository, backup.Target{Time: &moment}, "in the future")
	})
}

// testRecovery makes a cluster from a backup; the sum is what its table has, empty: it has no such table.
func testRecovery(t *testing.T, repository agentapi.Repository, target backup.Target, sum string) {
	c := newTestCluster(t, 2)
	c.ports.Backup = freePort(t)
	c.change(func(config *agentapi.Config) {
		config.Recovery = &agentapi.Recovery{Repository: repository, Target: target}
	})
	a, b := c.start("db-1"), c.start("db-2")
	a.await(backupBound, "a primary made from a backup", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	if sum == "" {
		assert.Equal(t, "<nil>", a.ask("SELECT to_regclass('t')"))
	} else {
		assert.Equal(t, sum, a.ask("SELECT sum(n)::text FROM t"))
	}
	_, err := a.app("app-secret", "require", "SELECT 1")
	require.NoError(t, err, "the application's password is the new cluster's")
	assert.Equal(t, "on", a.ask("SHOW data_checksums"))
	assert.Greater(t, a.status().Timeline, int64(1))
	b.awaitReady(agentapi.RoleStandby)
}

func testRefusedRecovery(t *testing.T, repository agentapi.Repository, target backup.Target, why string) {
	c := newTestCluster(t, 1)
	c.ports.Backup = freePort(t)
	c.change(func(config *agentapi.Config) {
		config.Recovery = &agentapi.Recovery{Repository: repository, Target: target}
	})
	a := c.start("db-1")
	status := a.await(backupBound, "refusing", func(s agentapi.Status) bool { return s.Problem != nil })
	assert.Equal(t, reasonRecovery, status.Problem.Reason)
	assert.Contains(t, status.Problem.Message, why)
	assert.False(t, status.HasData)
}

// TestArchivingFails is a cluster whose repository cannot be used, and can again.
func TestArchivingFails(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	repository := withRepository(t, c)
	primary := startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	primary.archived()

	require.NoError(t, os.Rename(repository.Path, repository.Path+".away"))
	require.NoError(t, os.WriteFile(repository.Path, []byte("no folder"), 0o644))
	_, err := primary.query("postgres", "SELECT pg_switch_wal()")
	require.NoError(t, err)
	status := primary.await(backupBound, "failing to archive", func(s agentapi.Status) bool {
		return s.Archive != nil && s.Archive.Failing != nil && s.Archive.Error != ""
	})
	assert.True(t, status.Ready, "the database goes on")
	require.NoError(t, os.Remove(repository.Path))
	require.NoError(t, os.Rename(repository.Path+".away", repository.Path))
	primary.await(backupBound, "archiving again", func(s agentapi.Status) bool { return s.Archive != nil && s.Archive.Failing == nil })

	c.change(func(config *agentapi.Config) {
		config.Backup.Repository = agentapi.Repository{
			Kind: agentapi.RepositoryS3, Path: "x", Endpoint: "https://127.0.0.1:1", Bucket: "b", Region: "r", CredentialsSecret: "s3-access",
		}
	})
	status = primary.await(backupBound, "missing a Secret", func(s agentapi.Status) bool {
		return s.Repository != nil && !s.Repository.Ready && s.Repository.Error != ""
	})
	assert.Contains(t, status.Repository.Error, "the Secret s3-access has no key access-key-id")
	assert.True(t, status.Ready)
	text, err := json.Marshal(status)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprint(string(text)), "super-secret")
}
