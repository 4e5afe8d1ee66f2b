package agent

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agent/verify"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// verify verifies the cluster's latest backup, on a volume of its own.
func (c *testCluster) verify(t *testing.T, hostConfig string) agentapi.Verification {
	t.Helper()
	folder := filepath.Join(c.dir, "verify")
	for _, path := range []string{"data", "run"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, path), 0o755))
		own(t, filepath.Join(folder, path))
	}
	self, log := c.agents["db-1"], &syncBuffer{}
	came := verify.Run(t.Context(), verify.Options{
		Config: self.paths.Config, Secrets: self.paths.Secrets, Data: filepath.Join(folder, "data"), Run: filepath.Join(folder, "run"),
		BackupPort: c.ports.Backup, PostgresPort: c.ports.Postgres, Users: []string{"root", "postgres", "nobody"},
		Credential: serverUser(), HostConfig: hostConfig, Output: log,
	})
	t.Logf("%+v\n%s", came, log.String())
	left, err := filepath.Glob(filepath.Join(folder, "data", "pgdata", "*"))
	require.NoError(t, err)
	assert.Empty(t, left, "nothing is left of the data")
	return came
}

// contents are the files of a folder, with when they were written.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		all[path] = strconv.FormatInt(info.Size(), 10) + " " + info.ModTime().String()
		return err
	}))
	return all
}

// TestVerify: a good backup passes its verification; one of damaged data, and one that is damaged itself, do not. Neither the repository nor
// anybody else notices. Its parts build on each other.
func TestVerify(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 1)
	repository := withRepository(t, c)
	primary := startForBackups(c, "db-1")
	system := primary.awaitReady(agentapi.RolePrimary).SystemIdentifier
	c.change(func(config *agentapi.Config) { config.SystemIdentifier = system })
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	publisher, calls := countCalls(t)

	t.Run("there is no backup", func(t *testing.T) {
		came := c.verify(t, "")
		assert.Equal(t, "the repository has no backup", came.Error)
		assert.Empty(t, came.Label)
	})
	for _, statement := range []string{
		"CREATE TABLE t AS SELECT n FROM generate_series(1, 1000) n",
		"CREATE INDEX i ON t (n)",
		"CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port=" + publisher + " dbname=x' PUBLICATION p WITH (connect = false)",
		"ALTER SUBSCRIPTION s ENABLE",
		"CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$",
		"CREATE EVENT TRIGGER refuse ON ddl_command_start EXECUTE FUNCTION refuse()",
	} {
		_, err := primary.query("postgres", statement)
		require.NoError(t, err, statement)
	}
	good := primary.backUp("good", backup.Full, "db-1", "")
	require.Empty(t, good.Error)
	t.Run("a good one passes, beside the cluster", func(t *testing.T) {
		came := c.verify(t, "")
		assert.Empty(t, came.Error)
		assert.Equal(t, good.Result.Label, came.Label)
		assert.Equal(t, "good", came.Name)
		assert.Len(t, came.Checked, 2)
		assert.Empty(t, came.Skipped)
		assert.True(t, came.Ended.After(came.Started))
		assert.Equal(t, "1000", primary.ask("SELECT count(*)::text FROM t"))
	})
	primary.archived()
	primary.stop()
	t.Run("it uses the repository only to read, and connects to nobody", func(t *testing.T) {
		before, called := contents(t, repository.Path), calls.Load()
		require.Positive(t, called, "the primary's subscription has a worker")
		came := c.verify(t, "")
		assert.Empty(t, came.Error)
		assert.Equal(t, before, contents(t, repository.Path))
		assert.Equal(t, called, calls.Load())
	})

	primary = startForBackups(c, "db-1")
	primary.awaitReady(agentapi.RolePrimary)
	primary.await(backupBound, "ready to be backed up again", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := primary.query("postgres", "UPDATE pg_index SET indisready = false WHERE indexrelid = 'i'::regclass")
	require.NoError(t, err)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (1001)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "UPDATE pg_index SET indisready = true WHERE indexrelid = 'i'::regclass")
	require.NoError(t, err)
	lacking := primary.backUp("lacking", backup.Full, "db-1", "")
	require.Empty(t, lacking.Error, "all its pages are as they were written")
	t.Run("an index that lacks a row", func(t *testing.T) {
		came := c.verify(t, "")
		assert.Equal(t, "lacking", came.Name)
		assert.Contains(t, came.Error, "did not pass the check of tables and indexes")
		assert.Contains(t, came.Error, "lacks matching index tuple")
	})

	t.Run("a repository that has lost bytes", func(t *testing.T) {
		primary.archived()
		damage(t, filepath.Join(repository.Path, "backup", backup.Stanza(c.major, system), lacking.Result.Label))
		came := c.verify(t, "")
		assert.Equal(t, lacking.Result.Label, came.Label)
		assert.Contains(t, came.Error, "pgbackrest restore")
		assert.True(t, primary.status().Ready)
	})
}

// countCalls is the port of somebody who takes calls, and hangs up.
func countCalls(t *testing.T) (port string, calls *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	calls = &atomic.Int64{}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = connection.Close()
		}
	}()
	_, port, err = net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port, calls
}

// damage overwrites the middle of the largest file of a backup.
func damage(t *testing.T, folder string) {
	t.Helper()
	largest, size := "", int64(0)
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	}))
	file, err := os.OpenFile(largest, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, 4096), size/2)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}
