package agent

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// startBucket starts an S3 server with TLS and a bucket; the repository in it is encrypted. Its secrets are mounted by mountBucket. What is
// returned beside it takes the server away, and brings it back.
func startBucket(t *testing.T, c *testCluster) (bucket agentapi.Repository, stop, start func()) {
	t.Helper()
	program, err := filepath.Abs("../../bin/versitygw")
	require.NoError(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skip("no bin/versitygw: hack/tools/build.sh s3")
	}
	const address = "127.0.0.98"
	port := strconv.Itoa(freePort(t))
	folder := filepath.Join(c.dir, "s3")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "data", "backups"), 0o755))
	cert, key := c.ca.issue(t, "s3", net.ParseIP(address))
	for name, content := range map[string]string{"tls.crt": cert, "tls.key": key} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	output := &syncBuffer{}
	var cmd *exec.Cmd
	start = func() {
		cmd = exec.Command(program, "--port", net.JoinHostPort(address, port),
			"--cert", filepath.Join(folder, "tls.crt"), "--key", filepath.Join(folder, "tls.key"), "posix", "--nometa", filepath.Join(folder, "data"))
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=someone", "ROOT_SECRET_KEY=s3-secret")
		cmd.Stdout, cmd.Stderr = output, output
		require.NoError(t, cmd.Start())
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	start()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("log of the S3 server:\n%s", tailOf(output.String(), 50))
		}
	})
	return agentapi.Repository{
		Kind: agentapi.RepositoryS3, Path: "prefix/test/db", Endpoint: "https://" + net.JoinHostPort(address, port), Bucket: "backups", Region: "us-east-1",
		PathStyle: true, CredentialsSecret: "s3-access", Encrypted: true, EncryptionSecret: "cipher",
	}, stop, start
}

// mountBucket mounts the Secrets of the repository of the first cluster, whose authority is the store's, into a folder of all instances of the second.
func mountBucket(t *testing.T, store, c *testCluster, dir string) {
	t.Helper()
	for _, a := range c.agents {
		for name, content := range map[string]string{
			naming.KeyS3Key: "someone", naming.KeyS3Secret: "s3-secret", naming.KeyPassphrase: "cipher-secret", naming.KeyCACert: store.ca.pem,
		} {
			path := a.paths.secret(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		}
	}
}

// TestBackupBucket: a cluster archives to an encrypted repository in a bucket, its standby makes a backup, and a cluster is made of that.
func TestBackupBucket(t *testing.T) {
	t.Parallel()
	needBackrest(t)
	c := newTestCluster(t, 2)
	c.ports.Backup = freePort(t)
	bucket, stop, start := startBucket(t, c)
	mountBucket(t, c, c, naming.DirBackup)
	c.change(func(config *agentapi.Config) {
		config.Backup = &agentapi.BackupConfig{Repository: bucket, RetentionDays: 30}
	})
	primary, standby := startForBackups(c, "db-1"), startForBackups(c, "db-2")
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	full := standby.backUp("first", backup.Full, "db-1", "db-2")
	require.Empty(t, full.Error)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	before := time.Now()
	_, err = primary.query("postgres", "SELECT pg_sleep(1.2)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	primary.archived()

	// a store that does not answer is told of, and keeps no server from stopping; what it missed it gets
	stop()
	_, err = primary.query("postgres", "INSERT INTO t VALUES (0)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "SELECT pg_switch_wal()")
	require.NoError(t, err)
	began := time.Now()
	status := primary.await(backupBound, "telling that the store is out", func(s agentapi.Status) bool {
		return s.Archive != nil && s.Archive.Failing != nil && s.Repository != nil && s.Repository.Error != ""
	})
	t.Logf("told after %s: %s; %s", time.Since(began).Round(time.Second), status.Archive.Error, status.Repository.Error)
	assert.Contains(t, status.Repository.Error, "127.0.0.98")
	assert.True(t, status.Ready, "the database goes on")
	began = time.Now()
	primary.stop()
	t.Logf("stopped after %s", time.Since(began).Round(time.Second))
	standby.awaitReady(agentapi.RolePrimary)
	start()
	standby.archived()

	for sum, target := range map[string]backup.Target{"3": {Time: &before}, "6": {}} {
		r := newTestCluster(t, 1)
		r.ports.Backup = freePort(t)
		mountBucket(t, c, r, naming.DirRecovery)
		r.change(func(config *agentapi.Config) {
			config.Recovery = &agentapi.Recovery{Repository: bucket, Target: target}
		})
		recovered := r.start("db-1")
		recovered.await(backupBound, "a primary made from a backup", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
		require.Equal(t, sum, recovered.ask("SELECT sum(n)::text FROM t"))
	}
}
