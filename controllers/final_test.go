package controllers_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// lastBackup is the PostgresBackup that was asked for since the cluster was deleted.
func (s *stage) lastBackup() *v1.PostgresBackup {
	s.Helper()
	b := &v1.PostgresBackup{}
	s.get(b, naming.FinalBackup("prod-db", string(s.cluster().UID)))
	return b
}

// endBackup ends the last backup as its controller does.
func (s *stage) endBackup(phase v1.BackupPhase, message string) {
	s.Helper()
	b := s.lastBackup()
	before := b.DeepCopy()
	b.Status.Phase, b.Status.Message = phase, message
	require.NoError(s, s.c.Status().Patch(s.Context(), b, client.MergeFrom(before)))
}

// TestFinalBackup: a deleted cluster that wants a last backup stays as it is until that is there, and says what hinders it.
func TestFinalBackup(t *testing.T) {
	t.Parallel()
	const spec = `{replicas: 2, version: "16", deletion: {finalBackup: true}, backup: {retention: 30d, repository: {s3: {
		endpoint: "https://s3.example.com", bucket: backups, credentialsSecret: s3}}}}`
	deleted := func(t *testing.T) *stage {
		t.Helper()
		s := onAPIServer(t)
		s.create(spec)
		s.until("it has data", func() bool { return s.cluster().Status.SystemIdentifier != "" && s.cluster().Status.ReadyReplicas == 2 })
		require.NoError(s, s.c.Delete(s.Context(), s.cluster()))
		s.passes()
		assert.Equal(s, "prod-db", s.lastBackup().Spec.Cluster)
		before := s.children(uid)
		s.endBackup(v1.BackupFailed, "the store is full")
		s.events()
		s.passes()
		s.passes()
		assert.Equal(s, before, s.children(uid), "nothing is removed")
		assert.Equal(s, v1.PhaseDeleting, s.cluster().Status.Phase)
		assert.Equal(s, "True "+v1.ReasonFinalBackupFailed, s.condition(v1.ConditionDegraded))
		s.told("Warning FinalBackupFailed The cluster stays and goes on, since its last backup, PostgresBackup " + s.lastBackup().Name + ", failed: the store is full")
		return s
	}
	t.Run("tried again", func(t *testing.T) {
		t.Parallel()
		s := deleted(t)
		failed := s.lastBackup()
		require.NoError(t, s.c.Delete(t.Context(), failed))
		s.passes()
		assert.NotEqual(t, failed.UID, s.lastBackup().UID)
		name := s.lastBackup().Name
		s.endBackup(v1.BackupCompleted, "")
		s.until("the cluster is gone", s.gone)
		s.get(&v1.PostgresBackup{}, name)
	})
	t.Run("done without", func(t *testing.T) {
		t.Parallel()
		s := deleted(t)
		s.change(func(c *v1.PostgresCluster) {
			c.Annotations = map[string]string{naming.AnnotationSkipFinalBackup: "true"}
		})
		s.until("the cluster is gone", s.gone)
	})
	t.Run("a cluster without data has nothing to save", func(t *testing.T) {
		t.Parallel()
		s := onAPIServer(t)
		s.create(spec)
		s.passes()
		name := naming.FinalBackup("prod-db", string(s.cluster().UID))
		require.NoError(t, s.c.Delete(t.Context(), s.cluster()))
		for range 5 { // nobody plays, so that no instance makes data
			s.passes()
		}
		require.True(t, s.gone())
		require.True(t, apierrors.IsNotFound(s.c.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &v1.PostgresBackup{})))
	})
}
