//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// boundBackup is for a backup of a small cluster.
const boundBackup = 5 * time.Minute

// backedUp is a PostgresCluster that is backed up to a volume.
func backedUp(namespace, name, version string, replicas int32) *v1.PostgresCluster {
	c := newCluster(namespace, name, version, replicas)
	c.Spec.Backup = &v1.BackupSpec{Schedule: new("0 2 * * *"), Retention: "30d"}
	return c
}

// TestBackup: {schedule, retention} alone is enough to be backed up, and every moment since can be recovered.
func TestBackup(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	backUpAndRecover(t, backedUp(namespace, "db", "17", 2))
}

// TestBackupS3: the same with a bucket, encrypted, and what becomes of a store that is down and of credentials that are wrong.
func TestBackupS3(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	s := startStore(t, namespace)
	require.NoError(t, kube.Create(t.Context(), &corev1.Secret{ObjectMeta: meta(namespace, "cipher"), StringData: map[string]string{"passphrase": "not a secret either"}}))
	wanted := backedUp(namespace, "db", "16", 2)
	wanted.Spec.Backup.Repository = s.repository()
	wanted.Spec.Backup.Repository.Encryption = &v1.EncryptionSpec{Secret: "cipher"}
	wanted.Spec.Backup.Method = v1.BackupIncremental
	backUpAndRecover(t, wanted)

	c := cluster{namespace, wanted.Name}
	t.Run("the store is down", func(t *testing.T) {
		s.stop(t)
		c.write(t, "while the store was down")
		c.switchWAL(t)
		eventually(t, boundBackup, "it is said", func(collect *assert.CollectT) {
			c.requireArchiving(collect, metav1.ConditionFalse, storeName+"."+namespace+".svc")
		})
		c.deletePod(t, c.primaryPod(t), false)
		c.waitReady(t)
		c.write(t, "and is still down")
		s.start(t)
		wal := c.switchWAL(t)
		c.waitArchived(t, wal)
		eventually(t, boundBackup, "all is well again", func(collect *assert.CollectT) {
			c.requireArchiving(collect, metav1.ConditionTrue, "")
			requireReady(collect, c.get(collect))
		})
	})
	t.Run("the credentials are wrong", func(t *testing.T) {
		s.setKey(t, "wrong")
		eventually(t, boundBackup, "it is said as soon as the Pod has them", func(collect *assert.CollectT) {
			c.requireCondition(collect, v1.ConditionBackupHealthy, metav1.ConditionFalse, "403")
		})
		c.switchWAL(t)
		eventually(t, boundBackup, "it is said", func(collect *assert.CollectT) {
			c.requireArchiving(collect, metav1.ConditionFalse, "403")
		})
		c.write(t, "with the wrong key")
		s.setKey(t, storeKey)
		c.waitArchived(t, c.switchWAL(t))
		eventually(t, boundBackup, "all is well again", func(collect *assert.CollectT) { c.requireArchiving(collect, metav1.ConditionTrue, "") })
	})
	t.Run("all of that is recovered", func(t *testing.T) {
		r := newCluster(namespace, "latest", wanted.Spec.Version, 1)
		r.Spec.Bootstrap = recoveryOf(wanted, "")
		recovered := create(t, r)
		recovered.waitReady(t)
		require.Equal(t, c.rows(t, naming.ServiceRW(c.name)), recovered.rows(t, naming.ServiceRW(recovered.name)))
	})
}

// recoveryOf is a recovery from the backups of that cluster; without a time to the end of its WAL.
func recoveryOf(c *v1.PostgresCluster, moment string) *v1.BootstrapSpec {
	from := v1.RecoverySource{Cluster: c.Name}
	if !c.Spec.Backup.Repository.OnVolume() {
		from.Repository = *c.Spec.Backup.Repository.DeepCopy()
	}
	return &v1.BootstrapSpec{Recovery: &v1.RecoverySpec{From: from, TargetTime: moment}}
}

// backUpAndRecover makes the cluster, backs it up, lets it fail over, loses a table, and recovers it in all ways.
func backUpAndRecover(t *testing.T, wanted *v1.PostgresCluster) {
	namespace, version := wanted.Namespace, wanted.Spec.Version
	c := create(t, wanted.DeepCopy())
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")

	t.Run("a first backup is made at once", func(t *testing.T) {
		eventually(t, boundBackup, "the status has it", func(collect *assert.CollectT) {
			s := c.get(collect).Status
			require.NotNil(collect, s.LastBackup)
			require.NotNil(collect, s.FirstRecoverable)
			require.NotNil(collect, s.LastArchived)
			for _, condition := range []string{v1.ConditionContinuousArchiving, v1.ConditionBackupHealthy} {
				require.True(collect, apimeta.IsStatusConditionTrue(s.Conditions, condition), condition)
			}
		})
		require.Contains(t, mustKubectl(t, "-n", namespace, "get", "postgresbackups"), "Completed")
	})
	t.Run("the schedule's Job ends as its backup", func(t *testing.T) {
		_, err := kubectl(t.Context(), "", "-n", namespace, "create", "job", "now", "--from=cronjob/"+naming.BackupJob(c.name))
		require.NoError(t, err)
		eventually(t, boundBackup, "the Job is complete", func(collect *assert.CollectT) {
			job := &batchv1.Job{}
			require.NoError(collect, kube.Get(t.Context(), key(namespace, "now"), job))
			require.Equal(collect, int32(1), job.Status.Succeeded)
		})
		b := c.backup(t, "now")
		require.Equal(t, v1.BackupCompleted, b.Status.Phase)
		require.Contains(t, []string{"db-1", "db-2"}, b.Status.Instance)
		require.NotEqual(t, c.get(t).Status.CurrentPrimary, b.Status.Instance, "the standby is read")
	})
	var moment string
	t.Run("a table is dropped after a failover", func(t *testing.T) {
		c.write(t, "between")
		c.deletePod(t, c.primaryPod(t), true)
		c.waitReady(t)
		c.waitServed(t, "after")
		moment = c.superuser(t, c.primaryPod(t), "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM pg_sleep(1)")
		c.sql(t, naming.ServiceRW(c.name), "SELECT pg_sleep(1); DROP TABLE seen")
		c.waitArchived(t, c.switchWAL(t))
	})
	t.Run("a backup by hand after the failover", func(t *testing.T) {
		require.NoError(t, kube.Create(t.Context(), &v1.PostgresBackup{ObjectMeta: meta(namespace, "by-hand"), Spec: v1.PostgresBackupSpec{Cluster: c.name}}))
		eventually(t, boundBackup, "it is complete", func(collect *assert.CollectT) {
			b := c.backup(collect, "by-hand")
			require.Equal(collect, v1.BackupCompleted, b.Status.Phase, b.Status.Message)
			require.Equal(collect, int64(2), b.Status.Timeline)
		})
	})
	t.Run("the primary is lost while a backup is made", func(t *testing.T) {
		c.disturbed(t, "interrupted", func() { c.deletePod(t, c.primaryPod(t), true) })
		c.waitReady(t)
	})
	if wanted.Spec.Backup.Repository.OnVolume() {
		t.Run("the repository host is lost while it makes a backup", func(t *testing.T) {
			c.disturbed(t, "disturbed", func() {
				mustKubectl(t, "-n", namespace, "delete", "pod", naming.Pod(naming.Repository(c.name)), "--force", "--grace-period=0")
			})
			c.waitArchived(t, c.switchWAL(t))
		})
	}
	t.Run("it is recovered to before that", func(t *testing.T) {
		r := newCluster(namespace, "recovered", version, 1)
		r.Spec.Bootstrap = recoveryOf(wanted, moment)
		recovered := create(t, r)
		recovered.waitReady(t)
		require.Equal(t, []string{"after", "before", "between"}, recovered.rows(t, naming.ServiceRW(recovered.name)))
	})
	t.Run("a recovery that cannot be says why", func(t *testing.T) {
		r := newCluster(namespace, "too-early", version, 1)
		r.Spec.Bootstrap = recoveryOf(wanted, "2020-01-01T00:00:00Z")
		create(t, r).waitDegraded(t, v1.ReasonRecoveryFailed, "before the first backup")
	})
	t.Run("the backups outlive the cluster", func(t *testing.T) {
		c.delete(t)
		if wanted.Spec.Backup.Repository.OnVolume() {
			require.NoError(t, kube.Get(t.Context(), key(namespace, naming.RepositoryVolume(c.name)), &corev1.PersistentVolumeClaim{}))
		}
		require.NoError(t, kube.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(namespace), client.MatchingLabels(naming.ClusterSelector(c.name))))
		again := wanted.DeepCopy()
		again.Spec.Bootstrap = recoveryOf(wanted, moment)
		create(t, again)
		c.waitReady(t)
		require.Equal(t, []string{"after", "before", "between"}, c.rows(t, naming.ServiceRW(c.name)))
		eventually(t, boundBackup, "it archives again", func(collect *assert.CollectT) { c.requireArchiving(collect, metav1.ConditionTrue, "") })
	})
	t.Run("what came after that too", func(t *testing.T) { // on a timeline that began before one of its ancestors did
		c.write(t, "later")
		c.waitArchived(t, c.switchWAL(t))
		r := newCluster(namespace, "whole", version, 1)
		r.Spec.Bootstrap = recoveryOf(wanted, "")
		whole := create(t, r)
		whole.waitReady(t)
		require.Equal(t, []string{"after", "before", "between", "later"}, whole.rows(t, naming.ServiceRW(whole.name)))
	})
}

// disturbed asks for a backup, disturbs it once it runs, and waits until it is complete all the same.
func (c cluster) disturbed(t *testing.T, name string, disturb func()) {
	t.Helper()
	require.NoError(t, kube.Create(t.Context(), &v1.PostgresBackup{ObjectMeta: meta(c.namespace, name), Spec: v1.PostgresBackupSpec{Cluster: c.name, Type: v1.BackupFull}}))
	eventually(t, boundBackup, "it runs", func(collect *assert.CollectT) {
		require.Equal(collect, v1.BackupRunning, c.backup(collect, name).Status.Phase)
	})
	disturb()
	eventually(t, 2*boundBackup, "it is complete", func(collect *assert.CollectT) {
		b := c.backup(collect, name)
		require.Equal(collect, v1.BackupCompleted, b.Status.Phase, b.Status.Message)
	})
	t.Logf("it was begun %d times", c.backup(t, name).Status.Attempts)
}

// switchWAL ends the primary's file of WAL, which has something, and returns its name.
func (c cluster) switchWAL(t require.TestingT) string {
	// At a boundary between files, pg_walfile_name names the next one since PostgreSQL 17.
	return c.superuser(t, c.primaryPod(t), "SELECT pg_walfile_name(pg_switch_wal() - 1) FROM pg_logical_emit_message(false, 'e2e', 'x')")
}

// waitArchived waits until the file of WAL is in the repository.
func (c cluster) waitArchived(t *testing.T, wal string) {
	t.Helper()
	eventually(t, boundBackup, wal+" is archived", func(collect *assert.CollectT) {
		require.GreaterOrEqual(collect, c.superuser(collect, c.primaryPod(collect), "SELECT last_archived_wal FROM pg_stat_archiver"), wal)
	})
}

// requireArchiving looks at the condition ContinuousArchiving.
func (c cluster) requireArchiving(t require.TestingT, status metav1.ConditionStatus, word string) {
	c.requireCondition(t, v1.ConditionContinuousArchiving, status, word)
}

// requireCondition looks at a condition.
func (c cluster) requireCondition(t require.TestingT, condition string, status metav1.ConditionStatus, word string) {
	found := apimeta.FindStatusCondition(c.get(t).Status.Conditions, condition)
	require.NotNil(t, found)
	require.Equal(t, status, found.Status, found.Message)
	require.Contains(t, found.Message, word)
}

// TestBackupBadInput: what cannot be is refused at the earliest place, by name, value and what would be right.
func TestBackupBadInput(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	s3 := func(change func(*v1.S3Repository)) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) {
			c.Spec.Backup.Repository.S3 = &v1.S3Repository{Endpoint: "https://s3.example.com", Bucket: "backups", CredentialsSecret: "s3"}
			change(c.Spec.Backup.Repository.S3)
		}
	}
	recovery := func(change func(*v1.RecoverySpec)) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) {
			c.Spec.Bootstrap = &v1.BootstrapSpec{Recovery: &v1.RecoverySpec{From: v1.RecoverySource{Cluster: "other"}}}
			change(c.Spec.Bootstrap.Recovery)
		}
	}
	schedule := func(text string) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) { c.Spec.Backup.Schedule = &text }
	}
	verify := func(text string) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) { c.Spec.Backup.Verify = &v1.VerifySpec{Schedule: text} }
	}
	retention := func(text v1.Period) func(*v1.PostgresCluster) {
		return func(c *v1.PostgresCluster) { c.Spec.Backup.Retention = text }
	}
	for what, test := range map[string]struct {
		change func(*v1.PostgresCluster)
		words  []string
	}{
		"minute 61":        {schedule("61 * * * *"), []string{"spec.backup.schedule", "61 * * * *", "minute 0-59"}},
		"30 February":      {schedule("0 0 30 2 *"), []string{"spec.backup.schedule", "never fires"}},
		"no schedule":      {schedule(""), []string{"spec.backup.schedule", "must not be empty"}},
		"four fields":      {schedule("0 2 * *"), []string{"spec.backup.schedule", "five fields"}},
		"no retention":     {retention("0d"), []string{"spec.backup.retention", "30d"}},
		"a negative one":   {retention("-1d"), []string{"spec.backup.retention", "30d"}},
		"for ever":         {retention("forever"), []string{"spec.backup.retention", "30d"}},
		"no verification":  {verify("0 0 30 2 *"), []string{"spec.backup.verify.schedule", "never fires"}},
		"a time zone":      {func(c *v1.PostgresCluster) { c.Spec.Backup.TimeZone = "Mars/Olympus" }, []string{"spec.backup.timeZone", "Europe/Berlin"}},
		"no scheme":        {s3(func(s *v1.S3Repository) { s.Endpoint = "s3.example.com" }), []string{"endpoint", "https://"}},
		"no TLS":           {s3(func(s *v1.S3Repository) { s.Endpoint = "http://s3.example.com" }), []string{"endpoint", "https://"}},
		"no bucket's name": {s3(func(s *v1.S3Repository) { s.Bucket = "My_Bucket" }), []string{"bucket", "lower-case"}},
		"two repositories": {func(c *v1.PostgresCluster) {
			s3(func(*v1.S3Repository) {})(c)
			c.Spec.Backup.Repository.Volume = &v1.VolumeRepository{}
		}, []string{"at most one of s3, gcs, azure and volume"}},
		"two targets":            {recovery(func(r *v1.RecoverySpec) { r.TargetTime, r.TargetLSN = "2026-01-01T00:00:00Z", "0/1" }), []string{"at most one of targetTime, targetLSN"}},
		"no time zone in a time": {recovery(func(r *v1.RecoverySpec) { r.TargetTime = "2026-01-01T00:00:00" }), []string{"targetTime", "with a time zone"}},
		"no day":                 {recovery(func(r *v1.RecoverySpec) { r.TargetTime = "2026-02-30T00:00:00Z" }), []string{"targetTime"}},
		"another namespace":      {recovery(func(r *v1.RecoverySpec) { r.From.Namespace = "elsewhere" }), []string{"only reached from its own namespace"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := backedUp(namespace, "bad", "17", 1)
			test.change(c)
			err := kube.Create(t.Context(), c)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			for _, word := range test.words {
				require.ErrorContains(t, err, word)
			}
		})
	}
	t.Run("a backup of a cluster without spec.backup", func(t *testing.T) {
		c := create(t, newCluster(namespace, "plain", "17", 1))
		c.waitReady(t)
		require.NoError(t, kube.Create(t.Context(), &v1.PostgresBackup{ObjectMeta: meta(namespace, "none"), Spec: v1.PostgresBackupSpec{Cluster: c.name}}))
		eventually(t, boundSettle, "it fails and says why", func(collect *assert.CollectT) {
			b := c.backup(collect, "none")
			require.Equal(collect, v1.BackupFailed, b.Status.Phase)
			require.Contains(collect, b.Status.Message, "has no spec.backup")
		})
	})
	t.Run("a repository is not changed", func(t *testing.T) {
		c := create(t, backedUp(namespace, "fixed", "17", 1))
		object := c.get(t)
		before := object.DeepCopy()
		object.Spec.Backup.Repository.S3 = &v1.S3Repository{Endpoint: "https://s3.example.com", Bucket: "backups", CredentialsSecret: "s3"}
		require.ErrorContains(t, kube.Patch(t.Context(), object, client.MergeFrom(before)), "cannot be changed to one of another kind")
	})
	t.Run("a Secret that is not there", func(t *testing.T) {
		c := backedUp(namespace, "secretless", "17", 1)
		s3(func(*v1.S3Repository) {})(c)
		secretless := create(t, c)
		secretless.waitReady(t)
		eventually(t, boundBackup, "it is said", func(collect *assert.CollectT) {
			archiving := apimeta.FindStatusCondition(secretless.get(collect).Status.Conditions, v1.ConditionContinuousArchiving)
			require.NotNil(collect, archiving)
			require.Equal(collect, metav1.ConditionFalse, archiving.Status)
			require.True(collect, strings.Contains(archiving.Message, "Secret s3 has no key access-key-id"), archiving.Message)
		})
		require.True(t, apimeta.IsStatusConditionTrue(secretless.get(t).Status.Conditions, v1.ConditionReady), "the database goes on")
	})
}

// backup reads a PostgresBackup.
func (c cluster) backup(t require.TestingT, name string) *v1.PostgresBackup {
	b := &v1.PostgresBackup{}
	require.NoError(t, kube.Get(context.Background(), key(c.namespace, name), b))
	return b
}
