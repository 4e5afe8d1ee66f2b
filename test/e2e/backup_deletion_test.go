//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestBackupDeletion: a cluster is deleted after a last backup, from which everything is there again; one whose store is out of reach stays and
// says so, until it is told to go without; and backups that are to go with their cluster go.
func TestBackupDeletion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startClient(t, namespace)
	last := backedUp(namespace, "last", "17", 1)
	last.Spec.Deletion = v1.DeletionSpec{FinalBackup: true, Volumes: v1.Delete}
	nowhere := backedUp(namespace, "nowhere", "17", 1)
	nowhere.Spec.Deletion = v1.DeletionSpec{FinalBackup: true, Volumes: v1.Delete}
	nowhere.Spec.Backup.Repository.S3 = &v1.S3Repository{Endpoint: v1.StoreURL("https://nowhere." + namespace + ".svc:9000"), Bucket: "backups", CredentialsSecret: "s3"}
	require.NoError(t, kube.Create(t.Context(), &corev1.Secret{
		ObjectMeta: meta(namespace, "s3"), StringData: map[string]string{"access-key-id": "a", "secret-access-key": "b"},
	}))
	gone := backedUp(namespace, "gone", "17", 1)
	gone.Spec.Deletion = v1.DeletionSpec{Backups: v1.Delete, Volumes: v1.Delete}
	clusters := map[string]cluster{}
	for _, object := range []*v1.PostgresCluster{last.DeepCopy(), nowhere, gone} {
		clusters[object.Name] = create(t, object)
	}
	for _, c := range clusters {
		c.waitReady(t)
		c.waitServed(t, "before")
	}

	t.Run("a last backup", func(t *testing.T) {
		c := clusters["last"]
		c.waitBackedUp(t)
		c.write(t, "last")
		uid := string(c.get(t).UID)
		c.delete(t)
		b := c.backup(t, naming.FinalBackup(c.name, uid))
		require.Equal(t, v1.BackupCompleted, b.Status.Phase, b.Status.Message)
		require.Contains(t, b.Status.Location, naming.RepositoryVolume(c.name))
		c.requireVolume(t, naming.RepositoryVolume(c.name), true)
		c.requireVolume(t, naming.DataVolume(naming.Instance(c.name, 1)), false)

		other := newCluster(namespace, "other", "17", 1)
		other.Spec.Bootstrap = recoveryOf(last, "")
		create(t, other).waitDegraded(t, v1.ReasonRecoveryFailed, "create the new cluster under its name")

		last.Spec.Bootstrap = recoveryOf(last, "")
		create(t, last).waitReady(t)
		require.Equal(t, []string{"before", "last"}, c.rows(t, naming.ServiceRW(c.name)))
	})
	t.Run("a store that is out of reach", func(t *testing.T) {
		c := clusters["nowhere"]
		require.NoError(t, kube.Delete(t.Context(), &v1.PostgresCluster{ObjectMeta: meta(namespace, c.name)}))
		c.waitDegraded(t, v1.ReasonFinalBackupFailed, "The cluster stays and goes on")
		c.write(t, "it still serves")
		mustKubectl(t, "-n", namespace, "annotate", "pgc", c.name, naming.AnnotationSkipFinalBackup+"=true")
		c.waitGone(t)
	})
	t.Run("backups that go with the cluster", func(t *testing.T) {
		c := clusters["gone"]
		c.waitBackedUp(t)
		c.delete(t)
		c.requireVolume(t, naming.RepositoryVolume(c.name), false)
		eventually(t, boundGone, "no PostgresBackup of it is left", func(collect *assert.CollectT) {
			backups := &v1.PostgresBackupList{}
			require.NoError(collect, kube.List(t.Context(), backups, client.InNamespace(namespace)))
			for _, b := range backups.Items {
				require.NotEqual(collect, c.name, b.Spec.Cluster, b.Name)
			}
		})
	})
}

// waitBackedUp waits for the first backup.
func (c cluster) waitBackedUp(t *testing.T) {
	t.Helper()
	eventually(t, boundBackup, c.name+" has a backup", func(collect *assert.CollectT) {
		require.NotNil(collect, c.get(collect).Status.LastBackup)
	})
}

// requireVolume waits until the claim is there, or is not.
func (c cluster) requireVolume(t *testing.T, name string, there bool) {
	t.Helper()
	eventually(t, boundSettle, name, func(collect *assert.CollectT) {
		err := kube.Get(t.Context(), key(c.namespace, name), &corev1.PersistentVolumeClaim{})
		if there {
			require.NoError(collect, err)
		} else {
			require.True(collect, apierrors.IsNotFound(err), "%v", err)
		}
	})
}
