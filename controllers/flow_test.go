package controllers_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/memory"
)

// inMemory is a stage on a Kubernetes in memory, with the cluster of the README.
func inMemory(t *testing.T) (*stage, *memory.Cluster) {
	t.Helper()
	c := memory.New(t)
	s := newStage(t, c, "demo")
	cluster := ofSpec(t, "demo", `{replicas: 3, version: "16", storage: {size: 1Gi}, deletion: {volumes: Retain}}`)
	cluster.SetUID("uid-1")
	cluster.SetGeneration(1)
	require.NoError(t, c.Create(t.Context(), cluster))
	c.Writes()
	return s, c
}

func TestFirstPass(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	result := s.passes()
	assert.Equal(t, []string{
		"patch PostgresCluster prod-db",
		"apply ServiceAccount prod-db-instance", "apply Role prod-db-instance", "apply RoleBinding prod-db-instance",
		"apply Lease prod-db-primary", "apply ConfigMap prod-db-config",
		"apply Secret prod-db-ca", "apply Secret prod-db-server", "apply Secret prod-db-replication", "apply Secret prod-db-superuser", "apply Secret prod-db-app",
		"apply Service prod-db-rw", "apply Service prod-db-ro", "apply Service prod-db-r", "apply Service prod-db-instances",
		"apply PodDisruptionBudget prod-db",
		"apply PersistentVolumeClaim prod-db-1-data", "apply StatefulSet prod-db-1",
		"apply PersistentVolumeClaim prod-db-2-data", "apply StatefulSet prod-db-2",
		"apply PersistentVolumeClaim prod-db-3-data", "apply StatefulSet prod-db-3",
		"patch status of PostgresCluster prod-db",
	}, c.Writes())
	assert.Positive(t, result.RequeueAfter)
	assert.Equal(t, []string{naming.Finalizer}, s.cluster().Finalizers)
	assert.Equal(t, v1.PhaseCreating, s.cluster().Status.Phase)
	assert.Equal(t, []string{"Normal CreatingInstances Creating prod-db-1, prod-db-2, prod-db-3"}, s.events())

	s.passes()
	assert.Equal(t, []string{"patch status of PostgresCluster prod-db"}, c.Writes(), "the instances exist now")
	s.passes()
	assert.Empty(t, c.Writes())
	assert.Empty(t, s.events())
}

// TestReadyClusterIsQuiet: a settled cluster is not written to, whatever the number of passes.
func TestReadyClusterIsQuiet(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.ready()
	c.Writes()
	for range 3 {
		result := s.passes()
		assert.Empty(t, c.Writes())
		assert.Greater(t, result.RequeueAfter, 24*time.Hour, "the next thing to do is to renew certificates")
	}
	assert.Equal(t, int32(3), s.cluster().Status.ReadyReplicas)
	for n, role := range map[int]string{1: "primary", 2: "standby", 3: "standby"} {
		pod := &corev1.Pod{}
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "demo", Name: naming.Pod(naming.Instance("prod-db", n))}, pod))
		assert.Equal(t, role, pod.Labels[naming.LabelRole])
		assert.NotEmpty(t, pod.Annotations[naming.AnnotationConfigHash])
	}
}

// TestRestartedOperator: an operator that has just been started writes nothing to a settled cluster.
func TestRestartedOperator(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.ready()
	s.r.Reader.Forget(s.key())
	s.r = newReconciler(c, s.recorder, s.port)
	s.events()
	c.Writes()
	before := s.cluster().Status
	s.passes()
	assert.Equal(t, before, s.cluster().Status, "no agent has been heard yet")
	assert.Empty(t, c.Writes())
	s.ready()
	assert.Empty(t, slices.DeleteFunc(c.Writes(), func(w string) bool { return strings.HasPrefix(w, "patch Pod") }))
	assert.Empty(t, s.events())
}

// TestEveryWriteMayFail: whichever write of the first pass fails, the pass says so, and the next one does the rest.
func TestEveryWriteMayFail(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.passes()
	writes := len(c.Writes())
	s.passes()
	want := s.children(func(client.Object) string { return "" })

	for n := range writes {
		t.Run(strconv.Itoa(n+1), func(t *testing.T) {
			t.Parallel()
			s, c := inMemory(t)
			count := 0
			failed := ""
			c.FailWrites(func(write string) error {
				if count++; count == n+1 {
					failed = write
					return errors.New("connection refused")
				}
				return nil
			})
			_, err := s.pass()
			require.ErrorContains(t, err, "connection refused", failed)
			c.FailWrites(nil)
			s.passes()
			s.passes()
			assert.Equal(t, want, s.children(func(client.Object) string { return "" }), failed)
			c.Writes()
			s.passes()
			assert.Empty(t, c.Writes(), "after %s failed", failed)
			assert.Equal(t, "False WaitingForPrimary", s.condition(v1.ConditionReady))
		})
	}
}

// TestEveryDeletionMayFail: the same for the deletion of a cluster.
func TestEveryDeletionMayFail(t *testing.T) {
	t.Parallel()
	for n := range 30 {
		t.Run(strconv.Itoa(n+1), func(t *testing.T) {
			t.Parallel()
			s, c := inMemory(t)
			s.passes()
			require.NoError(t, c.Delete(t.Context(), s.cluster()))
			count := 0
			c.FailWrites(func(string) error {
				if count++; count == n+1 {
					return errors.New("connection refused")
				}
				return nil
			})
			for range 6 {
				_, _ = s.pass() // one of them fails
			}
			err := c.Get(t.Context(), s.key(), &v1.PostgresCluster{})
			require.True(t, apierrors.IsNotFound(err), "it is not gone: %v", err)
			assert.Equal(t, map[string]string{
				"PersistentVolumeClaim/prod-db-1-data": "", "PersistentVolumeClaim/prod-db-2-data": "", "PersistentVolumeClaim/prod-db-3-data": "",
			}, s.children(func(client.Object) string { return "" }))
		})
	}
}

// TestReadFailures: what cannot be read is not taken for missing.
func TestReadFailures(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.passes()
	c.Writes()
	for _, kind := range append(kinds(), kinds()[0]) {
		c.FailReads(func(read string) error {
			if strings.Contains(read, kind.Name) {
				return errors.New("connection refused")
			}
			return nil
		})
		_, err := s.pass()
		require.ErrorContains(t, err, "connection refused", kind.Name)
		assert.Empty(t, c.Writes(), kind.Name)
	}
	c.FailReads(func(read string) error {
		if strings.HasPrefix(read, "get PostgresCluster") {
			return errors.New("connection refused")
		}
		return nil
	})
	_, err := s.pass()
	require.ErrorContains(t, err, "connection refused")
}

// TestRefusedWrite: what only a person can mend is said, tried again now and then, and forgotten when it is mended.
func TestRefusedWrite(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	c.FailWrites(func(write string) error {
		if write == "apply PersistentVolumeClaim prod-db-2-data" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "prod-db-2-data", errors.New("exceeded quota: small"))
		}
		return nil
	})
	result := s.passes()
	assert.Equal(t, 30*time.Second, result.RequeueAfter)
	assert.Equal(t, "True QuotaExceeded", s.condition(v1.ConditionDegraded))
	assert.Equal(t, "False QuotaExceeded", s.condition(v1.ConditionReady))
	assert.Equal(t, v1.PhaseFailed, s.cluster().Status.Phase)
	s.told("Warning QuotaExceeded The API server refuses PersistentVolumeClaim demo/prod-db-2-data")
	assert.Contains(t, s.children(resourceVersion), "StatefulSet/prod-db-3", "the rest was written")

	s.passes()
	assert.NotContains(t, strings.Join(s.events(), "\n"), "QuotaExceeded", "it is said once")
	c.FailWrites(nil)
	s.passes()
	assert.Equal(t, "False Healthy", s.condition(v1.ConditionDegraded))
	assert.Equal(t, v1.PhaseCreating, s.cluster().Status.Phase)
}

// TestNameTaken: somebody's Service is left alone, and said to be in the way.
func TestNameTaken(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db-rw"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "shop"}}}
	require.NoError(t, c.Create(t.Context(), theirs))
	s.passes()
	assert.Equal(t, "True NameTaken", s.condition(v1.ConditionDegraded))
	got := &corev1.Service{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(theirs), got))
	assert.Equal(t, theirs.Spec, got.Spec)

	require.NoError(t, c.Delete(t.Context(), theirs))
	s.passes()
	assert.Equal(t, "False Healthy", s.condition(v1.ConditionDegraded))
}

// TestImageUnknown: a version that the operator has no image of, until somebody names one.
func TestImageUnknown(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.change(func(c *v1.PostgresCluster) { c.Spec.Version = "18" })
	s.passes()
	assert.Equal(t, "False ImageUnknown", s.condition(v1.ConditionReady))
	assert.Empty(t, s.children(uid))
	s.change(func(c *v1.PostgresCluster) { c.Spec.Image = "mine:18" })
	s.passes()
	assert.Equal(t, "False CreatingInstances", s.condition(v1.ConditionReady))
	set := &appsv1.StatefulSet{}
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "demo", Name: "prod-db-1"}, set))
	assert.Equal(t, "mine:18", set.Spec.Template.Spec.Containers[0].Image)
}

// TestGone: a pass over a cluster that is gone does nothing.
func TestGone(t *testing.T) {
	t.Parallel()
	c := memory.New(t)
	s := newStage(t, c, "demo")
	c.Writes()
	assert.Zero(t, s.passes())
	assert.Empty(t, c.Writes())
}

// TestPaused: a cluster that is to be left alone is left alone, whatever is wrong with it.
func TestPaused(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.passes()
	s.change(func(c *v1.PostgresCluster) { c.Annotations = map[string]string{naming.AnnotationPaused: "true"} })
	require.NoError(t, c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db-config"}}))
	c.Writes()
	s.passes()
	assert.Equal(t, []string{"patch status of PostgresCluster prod-db"}, c.Writes())
	assert.Equal(t, "True Paused", s.condition(v1.ConditionPaused))

	s.change(func(c *v1.PostgresCluster) { c.Annotations = nil })
	s.passes()
	assert.Contains(t, c.Writes(), "apply ConfigMap prod-db-config")
	assert.Equal(t, "False NotPaused", s.condition(v1.ConditionPaused))
}
