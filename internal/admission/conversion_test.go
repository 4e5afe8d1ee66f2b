package admission

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/apis/v1alpha1"
)

// class makes a StorageClass of that name that expands volumes or not.
func (s *server) class(t *testing.T, name string, expands bool) {
	t.Helper()
	object := object(t, fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: example.org/none, allowVolumeExpansion: %v}`, name, expands))
	require.NoError(t, client.IgnoreAlreadyExists(s.kube.Create(t.Context(), object)))
}

// object is what the YAML says.
func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	return o
}

// TestOldClient: a cluster with fields that only v1 has is read, changed, patched and listed as v1alpha1, and loses nothing.
func TestOldClient(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "old-client", true)
	namespace := s.namespace(t, "old-client")
	key := types.NamespacedName{Namespace: namespace, Name: "db"}
	c := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db", Annotations: map[string]string{"team": "a"}}}
	c.Spec = v1.PostgresClusterSpec{
		Replicas: new(int32(2)), Version: "17", Storage: v1.StorageSpec{StorageClassName: new("old-client")},
		PostgreSQL: v1.PostgreSQLSpec{Parameters: map[string]v1.ParameterValue{"work_mem": "16MB"}, PgHBA: []string{"hostssl all all all md5"}},
		Deletion:   v1.DeletionSpec{Volumes: v1.Delete},
	}
	require.NoError(t, s.kube.Create(t.Context(), c))
	c.Status = v1.PostgresClusterStatus{
		Phase: v1.PhaseRunning, CurrentPrimary: "db-1", PrimaryHost: "db-rw", SystemIdentifier: "7", Replicas: 2,
		Instances:  []v1.InstanceStatus{{Name: "db-1", Ready: true}},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "ClusterReady", LastTransitionTime: metav1.Unix(1e9, 0)}},
	}
	require.NoError(t, s.kube.Status().Update(t.Context(), c))

	old := &v1alpha1.PostgresCluster{}
	require.NoError(t, s.kube.Get(t.Context(), key, old))
	require.EqualValues(t, 2, old.Spec.Replicas)
	require.Equal(t, "17", old.Spec.PostgresVersion)
	require.Equal(t, "old-client", old.Spec.Storage.StorageClassName)
	require.Equal(t, v1alpha1.PhaseReady, old.Status.Phase)
	require.True(t, apimeta.IsStatusConditionTrue(old.Status.Conditions, "Ready"))

	unchanged := func(t *testing.T, replicas int32) {
		t.Helper()
		now := &v1.PostgresCluster{}
		require.NoError(t, s.kube.Get(t.Context(), key, now))
		want := c.Spec.DeepCopy()
		want.Replicas, want.Storage.Size = &replicas, now.Spec.Storage.Size
		require.Equal(t, *want, now.Spec)
		require.Equal(t, c.Status, now.Status)
		require.Equal(t, "a", now.Annotations["team"])
		require.NotContains(t, now.Annotations, v1alpha1.AnnotationV1)
	}
	t.Run("update", func(t *testing.T) {
		old.Spec.Replicas = 4
		require.NoError(t, s.kube.Update(t.Context(), old))
		unchanged(t, 4)
	})
	t.Run("merge patch", func(t *testing.T) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":5}}`))
		require.NoError(t, s.kube.Patch(t.Context(), old, patch))
		unchanged(t, 5)
	})
	t.Run("server-side apply", func(t *testing.T) {
		applied := object(t, fmt.Sprintf(`{apiVersion: pgsteward.io/v1alpha1, kind: PostgresCluster, metadata: {name: db, namespace: %s},
			spec: {replicas: 6, postgresVersion: "17", storage: {size: 1Gi, storageClassName: old-client}}}`, namespace))
		require.NoError(t, s.kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("old"), client.ForceOwnership))
		unchanged(t, 6)
	})
	t.Run("a minor version", func(t *testing.T) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"postgresVersion":"17.5"}}`))
		generation := old.Generation
		require.NoError(t, s.kube.Patch(t.Context(), old, patch))
		require.Greater(t, old.Generation, generation, "the operator is told")
		require.NotContains(t, old.Annotations, v1.AnnotationPostgresVersion)
		now := &v1.PostgresCluster{}
		require.NoError(t, s.kube.Get(t.Context(), key, now))
		require.Equal(t, "17", now.Spec.Version)
		require.Equal(t, "17.5", now.Annotations[v1.AnnotationPostgresVersion])
		unchanged(t, 6)
	})
	t.Run("a major version", func(t *testing.T) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"postgresVersion":"18.1"}}`))
		require.ErrorContains(t, s.kube.Patch(t.Context(), old.DeepCopy(), patch), "the major cannot be changed in v1alpha1, from 17.5 to 18.1; keep 17")
	})
	t.Run("list", func(t *testing.T) {
		list := &v1alpha1.PostgresClusterList{}
		require.NoError(t, s.kube.List(t.Context(), list, client.InNamespace(namespace)))
		require.Len(t, list.Items, 1)
		require.Equal(t, "17.5", list.Items[0].Spec.PostgresVersion)
	})
}

// TestCreatedOld: a cluster that was made as v1alpha1 is a whole v1 cluster, with v1's defaults.
func TestCreatedOld(t *testing.T) {
	t.Parallel()
	s := needServer(t)
	s.class(t, "created-old", true)
	old := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(t, "created-old"), Name: "db"}}
	old.Spec = v1alpha1.PostgresClusterSpec{
		Replicas: 1, PostgresVersion: "15.2",
		Storage: v1alpha1.StorageSpec{Size: resource.MustParse("2Gi"), StorageClassName: "created-old"},
	}
	require.NoError(t, s.kube.Create(t.Context(), old))
	require.Equal(t, "15.2", old.Spec.PostgresVersion)
	c := &v1.PostgresCluster{}
	require.NoError(t, s.kube.Get(t.Context(), client.ObjectKeyFromObject(old), c))
	require.Equal(t, "15", c.Spec.Version)
	require.EqualValues(t, 1, *c.Spec.Replicas)
	require.Equal(t, v1.Retain, c.Spec.Deletion.Volumes)
	require.Equal(t, "15.2", c.Annotations[v1.AnnotationPostgresVersion])
}
