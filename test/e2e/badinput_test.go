//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// warnOnly makes the webhook let a cluster through that it would refuse: the operator itself must tell what is wrong, too.
var warnOnly = map[string]string{naming.AnnotationValidation: naming.ValidationWarn}

// TestBadInput: what only shows when it is tried ends in a condition and an event with a reason, a neighbour goes on being served,
// and the trouble ends when the spec, or what was in the way, is mended.
func TestBadInput(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	neighbour := create(t, newCluster(namespace, "neighbour", "17", 1))
	startClient(t, namespace)
	neighbour.waitReady(t)
	served := func(t *testing.T, what string) {
		t.Helper()
		neighbour.patch(t, func(spec *v1.PostgresClusterSpec) {
			spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"pgsteward_e2e.while": v1.ParameterValue(what)}
		})
		eventually(t, boundSettle, "the operator serves the neighbour", func(collect *assert.CollectT) {
			require.Equal(collect, what, neighbour.superuser(collect, "neighbour-1-0", "SHOW pgsteward_e2e.while"))
		})
		neighbour.waitSound(t)
	}
	mended := func(t *testing.T, c cluster) {
		t.Helper()
		c.waitSound(t)
		c.waitServed(t, "mended")
		c.delete(t)
	}

	t.Run("an image that cannot be pulled", func(t *testing.T) {
		object := newCluster(namespace, "no-image", "16", 1)
		object.Spec.Image = "registry.example.org/no/such-image:16"
		c := create(t, object)
		c.waitDegraded(t, v1.ReasonImagePullFailed, "registry.example.org/no/such-image:16", "spec.image")
		require.Equal(t, v1.PhaseFailed, c.get(t).Status.Phase)
		served(t, "no-image")
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Image = "" })
		mended(t, c)
	})
	t.Run("an image of another major", func(t *testing.T) {
		object := newCluster(namespace, "other-major", "16", 1)
		object.Spec.Image = postgresImage(t, "17")
		c := create(t, object)
		c.waitDegraded(t, v1.ReasonImageMajorMismatch, "16", "17")
		served(t, "other-major")
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Image = postgresImage(t, "16") })
		mended(t, c)
	})
	t.Run("a storage class that does not exist", func(t *testing.T) {
		object := newCluster(namespace, "no-class", "16", 1)
		object.Spec.Storage.StorageClassName = new("no-such-class")
		object.Annotations = warnOnly
		c := create(t, object)
		c.waitDegraded(t, v1.ReasonStorageClassNotFound, "no-such-class", "spec.storage.storageClassName")
		served(t, "no-class")
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Storage.StorageClassName = new(defaultStorageClass(t)) })
		mended(t, c)
	})
	t.Run("a name that is taken", func(t *testing.T) {
		foreign := &corev1.Service{
			ObjectMeta: meta(namespace, "taken-rw"),
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "other"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		require.NoError(t, kube.Create(t.Context(), foreign))
		object := newCluster(namespace, "taken", "16", 1)
		object.Annotations = warnOnly
		c := create(t, object)
		c.waitDegraded(t, v1.ReasonNameTaken, "taken-rw")
		served(t, "taken")
		require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
		require.Equal(t, map[string]string{"app": "other"}, foreign.Spec.Selector, "it is somebody else's")
		require.NoError(t, kube.Delete(t.Context(), foreign))
		mended(t, c)
	})
	t.Run("resources that no node has", func(t *testing.T) {
		object := newCluster(namespace, "too-big", "16", 1)
		object.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("900")}}
		c := create(t, object)
		c.waitDegraded(t, v1.ReasonUnschedulable, "too-big-1-0")
		served(t, "too-big")
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Resources = nil })
		mended(t, c)
	})
}

// TestQuota: a quota that refuses Pods is told, and the cluster comes up once it is gone.
func TestQuota(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: meta(namespace, "no-pods"),
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	require.NoError(t, kube.Create(t.Context(), quota))
	eventually(t, boundSettle, "the quota is in force", func(collect *assert.CollectT) {
		require.NoError(collect, kube.Get(context.Background(), client.ObjectKeyFromObject(quota), quota))
		require.NotEmpty(collect, quota.Status.Hard)
	})
	c := create(t, newCluster(namespace, "db", "16", 1))
	c.waitDegraded(t, v1.ReasonQuotaExceeded, "no-pods")
	require.NoError(t, kube.Delete(t.Context(), quota))
	c.waitSound(t)
}

// TestNamespaceDeleted: a namespace takes its clusters with it, also one that was only just made, and a cluster that somebody else
// holds there says why nothing happens any more. (endNamespace waits until the namespace is gone.)
func TestNamespaceDeleted(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	object := newCluster(namespace, "held", "16", 1)
	object.Finalizers = []string{"example.org/hold"}
	held := create(t, object)
	held.waitReady(t)
	for i := range 3 {
		create(t, newCluster(namespace, fmt.Sprintf("new-%d", i), "16", 1))
	}
	require.NoError(t, kube.Delete(t.Context(), &corev1.Namespace{ObjectMeta: meta("", namespace)}))
	t.Cleanup(func() {
		_, err := kubectl(context.Background(), "", "-n", namespace, "patch", "pgc", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		if err != nil {
			t.Errorf("the held cluster: %v", err)
		}
	})
	eventually(t, boundGone, "all but what is held is gone", func(collect *assert.CollectT) {
		clusters := &v1.PostgresClusterList{}
		require.NoError(collect, kube.List(context.Background(), clusters, client.InNamespace(namespace)))
		require.Len(collect, clusters.Items, 1)
		require.Equal(collect, []string{"example.org/hold"}, clusters.Items[0].Finalizers, "without %s", naming.Finalizer)
		require.Empty(collect, held.pods(collect))
	})
	require.Equal(t, v1.PhaseDeleting, held.get(t).Status.Phase)
}
