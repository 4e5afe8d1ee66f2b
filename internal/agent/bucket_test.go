package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// startInBucket starts a cluster whose repository is the bucket; its standby was backed up when t had 1, and now it has 1 and 2.
func startInBucket(t *testing.T, bucketIn func(*testing.T, *testCluster) testBucket) (bucket testBucket, primary, standby *testAgent) {
	t.Helper()
	needBackrest(t)
	c := newTestCluster(t, 2)
	c.ports.Backup = freePort(t)
	bucket = bucketIn(t, c)
	bucket.mount(t, c, naming.DirBackup)
	c.change(func(config *agentapi.Config) {
		config.Backup = &agentapi.BackupConfig{Repository: bucket.repository, RetentionDays: 30}
	})
	primary, standby = startForBackups(c, "db-1"), startForBackups(c, "db-2")
	primary.awaitReady(agentapi.RolePrimary)
	standby.awaitReady(agentapi.RoleStandby)
	primary.await(backupBound, "ready to be backed up", func(s agentapi.Status) bool { return s.Repository != nil && s.Repository.Ready })
	_, err := primary.query("postgres", "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, err)
	full := standby.backUp("first", backup.Full, "db-1", "db-2")
	require.Empty(t, full.Error)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	return bucket, primary, standby
}

// requireRecovered makes a cluster of what is in the bucket, and wants that sum in t.
func requireRecovered(t *testing.T, bucket testBucket, target backup.Target, sum string) {
	t.Helper()
	c := newTestCluster(t, 1)
	c.ports.Backup = freePort(t)
	bucket.mount(t, c, naming.DirRecovery)
	c.change(func(config *agentapi.Config) {
		config.Recovery = &agentapi.Recovery{Repository: bucket.repository, Target: target}
	})
	recovered := c.start("db-1")
	recovered.await(backupBound, "a primary made from a backup", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	require.Equal(t, sum, recovered.ask("SELECT sum(n)::text FROM t"))
}

// TestBackupBucket: a cluster archives to an encrypted repository in a bucket, its standby makes a backup, and a cluster is made of that.
func TestBackupBucket(t *testing.T) {
	t.Parallel()
	bucket, primary, standby := startInBucket(t, bucketInS3)
	before := time.Now()
	_, err := primary.query("postgres", "SELECT pg_sleep(1.2)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	primary.archived()

	// a store that does not answer is told of, and keeps no server from stopping; what it missed it gets
	bucket.stop()
	_, err = primary.query("postgres", "INSERT INTO t VALUES (0)")
	require.NoError(t, err)
	_, err = primary.query("postgres", "SELECT pg_switch_wal()")
	require.NoError(t, err)
	began := time.Now()
	status := primary.await(backupBound, "telling that the store is out", func(s agentapi.Status) bool {
		return s.Archive != nil && s.Archive.Failing != nil && s.Repository != nil && s.Repository.Error != ""
	})
	t.Logf("told after %s: %s; %s", time.Since(began).Round(time.Second), status.Archive.Error, status.Repository.Error)
	assert.Contains(t, status.Repository.Error, storeAddress)
	assert.True(t, status.Ready, "the database goes on")
	began = time.Now()
	primary.stop()
	t.Logf("stopped after %s", time.Since(began).Round(time.Second))
	standby.awaitReady(agentapi.RolePrimary)
	bucket.start()
	standby.archived()

	for sum, target := range map[string]backup.Target{"3": {Time: &before}, "6": {}} {
		requireRecovered(t, bucket, target, sum)
	}
}

// TestBackupStores: the same with the stores of others, as far as it is a matter of the store.
func TestBackupStores(t *testing.T) {
	t.Parallel()
	for name, bucketIn := range map[string]func(*testing.T, *testCluster) testBucket{
		"GCS": bucketInGCS, "Azure": bucketInAzure, "Azure by signature": bucketInAzureBySignature,
	} {
		t.Run(name, func(t *testing.T) { // one after the other: each has servers of its own
			bucket, primary, _ := startInBucket(t, bucketIn)
			primary.archived()
			requireRecovered(t, bucket, backup.Target{}, "3")
		})
	}
}
