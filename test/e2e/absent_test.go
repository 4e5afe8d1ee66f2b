//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// operatorAbsent: without an operator the databases go on; what was deleted, edited or asked for meanwhile is put right by the next
// one.
func operatorAbsent(t *testing.T, c cluster) {
	gone := create(t, newCluster(c.namespace, "gone", "17", 1))
	gone.waitReady(t)
	before := c.pods(t)

	operators := scaleOperator(t, 0)
	t.Cleanup(func() { scaleOperator(t, operators) })
	c.waitServed(t, "alone")
	require.NoError(t, kube.Delete(t.Context(), &corev1.Service{ObjectMeta: meta(c.namespace, "db-ro")}))
	edited := &corev1.Service{}
	require.NoError(t, kube.Get(t.Context(), key(c.namespace, "db-r"), edited))
	unedited := edited.DeepCopy()
	edited.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
	require.NoError(t, kube.Patch(t.Context(), edited, client.MergeFrom(unedited)))
	require.NoError(t, kube.Delete(t.Context(), &v1.PostgresCluster{ObjectMeta: meta(c.namespace, "gone")}))

	scaleOperator(t, operators)
	eventually(t, boundReady, "the next operator has put it right", func(collect *assert.CollectT) {
		require.NoError(collect, kube.Get(context.Background(), key(c.namespace, "db-ro"), &corev1.Service{}))
		service := &corev1.Service{}
		require.NoError(collect, kube.Get(context.Background(), key(c.namespace, "db-r"), service))
		require.Equal(collect, naming.PortPostgresName, service.Spec.Ports[0].TargetPort.String())
		err := kube.Get(context.Background(), key(c.namespace, "gone"), &v1.PostgresCluster{})
		require.Error(collect, err)
		require.NoError(collect, client.IgnoreNotFound(err))
	})
	require.Equal(t, []string{"persistentvolumeclaims/gone-1-data"}, gone.everything(t))
	c.waitReady(t)
	c.waitRows(t, "db-ro", "before", "alone")
	for name, pod := range c.pods(t) {
		require.Equal(t, before[name].UID, pod.UID, "%s is another Pod", name)
	}
}

// scaleOperator sets the number of operators, waits until it is so, and returns what it was.
func scaleOperator(t *testing.T, replicas int32) int32 {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, kube.Get(context.Background(), key(operatorNamespace, operatorDeployment), deployment))
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = &replicas
	require.NoError(t, kube.Patch(context.Background(), deployment, client.MergeFrom(before)))
	eventually(t, boundReady, "the operator has as many replicas as it should", func(collect *assert.CollectT) {
		require.NoError(collect, kube.Get(context.Background(), client.ObjectKeyFromObject(deployment), deployment))
		require.Equal(collect, replicas, deployment.Status.ReadyReplicas)
		pods := &corev1.PodList{}
		require.NoError(collect, kube.List(context.Background(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{naming.LabelName: "pgsteward"}))
		require.Len(collect, pods.Items, int(replicas))
	})
	return *before.Spec.Replicas
}

// TestOtherMajor: a volume that was kept is not given to a cluster of another major; one of its own takes it over.
func TestOtherMajor(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startClient(t, namespace)
	c := create(t, newCluster(namespace, "db", "17", 1))
	c.waitReady(t)
	c.waitServed(t, "seventeen")
	c.delete(t)

	wrong := newCluster(namespace, "db", "16", 1)
	require.ErrorContains(t, kube.Create(t.Context(), wrong.DeepCopy()), "db-1-data", "the webhook says so at once")
	wrong.Annotations = warnOnly
	other := create(t, wrong)
	other.waitDegraded(t, v1.ReasonDataVersionMismatch, "db-1-data", "PostgreSQL 17", "the cluster's is 16")
	require.Empty(t, other.pods(t), "nothing may start on it")
	require.Equal(t, v1.PhaseFailed, other.get(t).Status.Phase)
	other.delete(t)

	again := create(t, newCluster(namespace, "db", "17", 1))
	again.waitReady(t)
	again.waitRows(t, "db-rw", "seventeen")
}
