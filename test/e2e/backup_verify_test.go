//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// boundVerify is for a verification of a small cluster.
const boundVerify = 2 * boundBackup

// TestBackupVerify: a backup is restored and checked beside the cluster; one that has lost bytes in the repository is found out, and told until
// another one has passed. The cluster does not notice, and nothing is left behind.
func TestBackupVerify(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	wanted := backedUp(namespace, "db", "17", 2)
	wanted.Spec.Backup.Verify = &v1.VerifySpec{Schedule: "0 4 * * 0"}
	c := create(t, wanted)
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	before := c.pods(t)
	eventually(t, boundBackup, "there is a backup, and a verification is due", func(collect *assert.CollectT) {
		s := c.get(collect).Status
		require.NotNil(collect, s.LastBackup)
		require.NotNil(collect, s.Backup.Verification)
		require.NotNil(collect, s.Backup.Verification.NextScheduled)
		require.Empty(collect, s.Backup.Verification.Phase)
	})

	t.Run("a good backup passes", func(t *testing.T) {
		c.verifyNow(t, "good", 1)
		eventually(t, boundSettle, "the status has it", func(collect *assert.CollectT) {
			s := c.get(collect).Status
			v := s.Backup.Verification
			require.Equal(collect, v1.VerificationSucceeded, v.Phase, v.Message)
			require.Equal(collect, s.Backup.Label, v.Label)
			require.Contains(collect, v.Message, "tables and indexes (pg_amcheck), page checksums (pg_checksums)")
			require.NotContains(collect, v.Message, "not checked")
			require.Equal(collect, v.FinishedAt, v.LastSucceeded)
			require.True(collect, apimeta.IsStatusConditionTrue(s.Conditions, v1.ConditionBackupHealthy))
			require.Len(collect, c.events(collect, v1.ReasonBackupVerified), 1)
		})
	})
	t.Run("one that has lost bytes does not", func(t *testing.T) {
		// the middle of the largest file of all backups
		_, err := inPod(namespace, naming.Pod(naming.Repository(c.name)), naming.ContainerRepository, "", "sh", "-c",
			`set -e; cd `+naming.PathData+`/repository/backup; file=$(find . -path './pg17-*/*F/*' -type f -size +64k -exec ls -S {} + | head -n 1);
			test -n "$file"; dd if=/dev/zero of="$file" bs=4096 count=8 seek=$(($(stat -c %s "$file") / 8192)) conv=notrunc`)
		require.NoError(t, err)
		c.verifyNow(t, "bad", 0)
		eventually(t, boundSettle, "the status has it", func(collect *assert.CollectT) {
			v := c.get(collect).Status.Backup.Verification
			require.Equal(collect, v1.VerificationFailed, v.Phase, v.Message)
			require.Contains(collect, v.Message, "did not pass its verification")
			require.NotNil(collect, v.LastSucceeded)
			require.True(collect, v.FinishedAt.After(v.LastSucceeded.Time))
			c.requireCondition(collect, v1.ConditionBackupHealthy, metav1.ConditionFalse, "did not pass its verification")
			require.Len(collect, c.events(collect, v1.ReasonVerificationFailed), 1)
		})
		requireReady(t, c.get(t))
	})
	t.Run("until another has passed", func(t *testing.T) {
		require.NoError(t, kube.Create(t.Context(), &v1.PostgresBackup{ObjectMeta: meta(namespace, "another"), Spec: v1.PostgresBackupSpec{Cluster: c.name, Type: v1.BackupFull}}))
		eventually(t, boundBackup, "there is another", func(collect *assert.CollectT) {
			require.Equal(collect, v1.BackupCompleted, c.backup(collect, "another").Status.Phase)
		})
		c.requireCondition(t, v1.ConditionBackupHealthy, metav1.ConditionFalse, "did not pass its verification")
		c.verifyNow(t, "again", 1)
		eventually(t, boundSettle, "all is well", func(collect *assert.CollectT) {
			v := c.get(collect).Status.Backup.Verification
			require.Equal(collect, v1.VerificationSucceeded, v.Phase, v.Message)
			require.Equal(collect, "another", v.Name)
			c.requireCondition(collect, v1.ConditionBackupHealthy, metav1.ConditionTrue, "")
		})
	})
	t.Run("nothing has changed for the cluster, and nothing is left", func(t *testing.T) {
		after := c.pods(t)
		require.Len(t, after, len(before))
		for name, pod := range after {
			require.Equal(t, before[name].UID, pod.UID, name)
		}
		require.Equal(t, "1", c.superuser(t, c.primaryPod(t), "SELECT timeline_id FROM pg_control_checkpoint()"))
		c.waitArchived(t, c.switchWAL(t))
		for _, name := range []string{"good", "bad", "again"} {
			mustKubectl(t, "-n", namespace, "delete", "job", name, "--ignore-not-found") // the CronJob keeps but one of those that succeeded
		}
		eventually(t, boundGone, "the volumes are gone with the Jobs", func(collect *assert.CollectT) {
			claims := &corev1.PersistentVolumeClaimList{}
			require.NoError(collect, kube.List(t.Context(), claims, client.InNamespace(namespace), client.MatchingLabels(naming.VerifyVolumeLabels(c.name))))
			require.Empty(collect, claims.Items)
		})
		require.Equal(t, v1.VerificationSucceeded, c.get(t).Status.Backup.Verification.Phase, "the result stays")
	})
	t.Run("and it can be left off", func(t *testing.T) {
		object := c.get(t)
		patched := object.DeepCopy()
		patched.Spec.Backup.Verify = nil
		require.NoError(t, kube.Patch(t.Context(), patched, client.MergeFrom(object)))
		eventually(t, boundSettle, "the CronJob is gone", func(collect *assert.CollectT) {
			err := kube.Get(t.Context(), key(namespace, naming.VerifyJob(c.name)), &batchv1.CronJob{})
			require.Error(collect, err)
			require.NoError(collect, client.IgnoreNotFound(err))
			require.Nil(collect, c.get(collect).Status.Backup.Verification)
		})
	})
}

// verifyNow begins a verification as the schedule does, and waits for its end: that many Pods have succeeded, of one.
func (c cluster) verifyNow(t *testing.T, job string, succeeded int32) {
	t.Helper()
	mustKubectl(t, "-n", c.namespace, "create", "job", job, "--from=cronjob/"+naming.VerifyJob(c.name))
	eventually(t, boundVerify, "the verification has ended", func(collect *assert.CollectT) {
		found := &batchv1.Job{}
		require.NoError(collect, kube.Get(t.Context(), key(c.namespace, job), found))
		require.Equal(collect, int32(1), found.Status.Succeeded+found.Status.Failed)
		require.Equal(collect, succeeded, found.Status.Succeeded)
	})
}
