package controllers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// withBackups is a cluster with data of which there are PostgresBackups, one that is done and one that waits, and another cluster's.
func withBackups(t *testing.T, deletion string) *stage {
	t.Helper()
	s := onAPIServer(t)
	s.create(`{replicas: 1, version: "16", deletion: {` + deletion + `}, backup: {retention: 30d, repository: {s3: {
		endpoint: "https://s3.example.com", bucket: backups, credentialsSecret: s3}}}}`)
	s.until("it has data", func() bool { return s.cluster().Status.SystemIdentifier != "" && s.cluster().Status.ReadyReplicas == 1 })
	for name, cluster := range map[string]string{"done": "prod-db", "waits": "prod-db", "other": "other-db"} {
		b := &v1.PostgresBackup{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: v1.PostgresBackupSpec{Cluster: cluster}}
		require.NoError(t, s.c.Create(t.Context(), b))
		if name == "done" {
			b.Status = v1.PostgresBackupStatus{Phase: v1.BackupCompleted, Label: "20261130-100000F", Location: "s3://backups/x at https://s3.example.com"}
			require.NoError(t, s.c.Status().Update(t.Context(), b))
		}
	}
	return s
}

// records are the names of the PostgresBackups that there are.
func (s *stage) records() []string {
	s.Helper()
	list := &v1.PostgresBackupList{}
	require.NoError(s, s.c.List(s.Context(), list, client.InNamespace(s.namespace)))
	names := make([]string, 0, len(list.Items))
	for _, b := range list.Items {
		names = append(names, b.Name)
	}
	return names
}

// TestBackupRecords: PostgresBackups stay when their cluster is deleted, and say where their data is, or go with it, as the spec says.
func TestBackupRecords(t *testing.T) {
	t.Parallel()
	t.Run("they stay", func(t *testing.T) {
		t.Parallel()
		s := withBackups(t, "backups: Retain")
		s.delete()
		assert.ElementsMatch(t, []string{"done", "waits", "other"}, s.records())
		done := &v1.PostgresBackup{}
		s.get(done, "done")
		assert.Equal(t, v1.BackupCompleted, done.Status.Phase)
		assert.Equal(t, "s3://backups/x at https://s3.example.com", done.Status.Location)
	})
	t.Run("they go", func(t *testing.T) {
		t.Parallel()
		s := withBackups(t, "backups: Delete")
		s.delete()
		assert.Equal(t, []string{"other"}, s.records())
	})
	t.Run("they go with a cluster that is forced to", func(t *testing.T) {
		t.Parallel()
		s := withBackups(t, "backups: Delete")
		s.change(func(c *v1.PostgresCluster) { c.Annotations = map[string]string{naming.AnnotationForceDelete: "true"} })
		require.NoError(t, s.c.Delete(t.Context(), s.cluster()))
		s.passes()
		require.True(t, s.gone())
		assert.Equal(t, []string{"other"}, s.records())
	})
	t.Run("the cluster waits for them", func(t *testing.T) {
		t.Parallel()
		s := withBackups(t, "backups: Delete")
		held := &v1.PostgresBackup{}
		s.get(held, "done")
		before := held.DeepCopy()
		held.Finalizers = []string{"example.com/mine"}
		require.NoError(t, s.c.Patch(t.Context(), held, client.MergeFrom(before)))
		require.NoError(t, s.c.Delete(t.Context(), s.cluster()))
		s.until("everything else is gone", func() bool {
			c := apimeta.FindStatusCondition(s.cluster().Status.Conditions, v1.ConditionProgressing)
			return c != nil && c.Message == "Removing postgresbackup/done"
		})
		assert.Equal(t, []string{"done", "other"}, s.records())
		s.get(held, "done")
		before = held.DeepCopy()
		held.Finalizers = nil
		require.NoError(t, s.c.Patch(t.Context(), held, client.MergeFrom(before)))
		s.until("the cluster is gone", s.gone)
		require.True(t, apierrors.IsNotFound(s.c.Get(t.Context(), client.ObjectKeyFromObject(held), &v1.PostgresBackup{})))
	})
}
