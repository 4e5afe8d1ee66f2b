//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestContract: what a user may ask of a PostgresCluster beside its database.
func TestContract(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startClient(t, namespace)
	c := create(t, newCluster(namespace, "db", "16", 2))
	c.waitReady(t)
	c.waitServed(t, "before")
	for _, part := range []struct {
		name string
		test func(*testing.T, cluster)
	}{
		{"what others add stays", othersStay},
		{"children come back", childrenComeBack},
		{"account deleted", accountDeleted},
		{"scale", scaled},
	} {
		if !t.Run(strings.ReplaceAll(part.name, " ", "_"), func(t *testing.T) { part.test(t, c) }) {
			return
		}
	}
}

// othersStay: labels and annotations that other tools set are left alone.
func othersStay(t *testing.T, c cluster) {
	service := key(c.namespace, naming.ServiceRW(c.name))
	mustKubectl(t, "-n", c.namespace, "label", "service", service.Name, "team=blue")
	mustKubectl(t, "-n", c.namespace, "annotate", "service", service.Name, "example.com/dashboard=yes")
	c.patch(t, func(spec *v1.PostgresClusterSpec) {
		spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "5MB"}
	})
	c.waitReady(t)
	got := &corev1.Service{}
	require.NoError(t, kube.Get(t.Context(), service, got))
	require.Equal(t, "blue", got.Labels["team"])
	require.Equal(t, "yes", got.Annotations["example.com/dashboard"])
}

// childrenComeBack: every child that is deleted by hand, one at a time, is there again. (Pods and Secrets have tests of their own.)
func childrenComeBack(t *testing.T, c cluster) {
	for name, child := range c.children(t) {
		switch child.Kind {
		case "Pod", "Secret", "PersistentVolumeClaim":
			continue
		}
		require.NoError(t, kube.Delete(t.Context(), &child), name)
		eventually(t, boundReady, name+" is there again", func(collect *assert.CollectT) {
			again, exists := c.children(collect)[name]
			require.True(collect, exists)
			require.NotEqual(collect, child.UID, again.UID)
		})
	}
	c.waitReady(t)
	c.waitServed(t, "after-the-children")
	c.waitRows(t, naming.ServiceRW(c.name), "before")
}

// accountDeleted: with the ServiceAccount the Pods' tokens die, so the primary can renew its lease no more. It is made anew.
func accountDeleted(t *testing.T, c cluster) {
	before := c.pods(t)[c.primaryPod(t)]
	require.NoError(t, kube.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta(c.namespace, naming.ServiceAccount(c.name))}))
	eventually(t, boundReady, "the primary's Pod is made anew", func(collect *assert.CollectT) {
		after, exists := c.pods(collect)[before.Name]
		require.True(collect, exists)
		require.NotEqual(collect, before.UID, after.UID)
	})
	c.waitReady(t)
	c.waitServed(t, "after-the-account")
}

// scaled: kubectl scale works, in both directions, and its status is what an autoscaler needs.
func scaled(t *testing.T, c cluster) {
	for _, replicas := range []string{"3", "2"} {
		mustKubectl(t, "-n", c.namespace, "scale", "pgc/"+c.name, "--replicas="+replicas)
		c.waitReady(t)
		got := mustKubectl(t, "-n", c.namespace, "get", "--raw",
			"/apis/pgsteward.io/v1/namespaces/"+c.namespace+"/postgresclusters/"+c.name+"/scale")
		require.Contains(t, got, `"replicas":`+replicas)
		require.Contains(t, got, `"selector":"app.kubernetes.io/component=database,pgsteward.io/cluster=`+c.name+`"`)
	}
}

// TestForcedDeletion: a deletion that something holds up says what and how to force it, and can be forced.
func TestForcedDeletion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 1))
	c.waitReady(t)
	pod := c.pods(t)["db-1-0"]
	before := pod.DeepCopy()
	pod.Finalizers = append(pod.Finalizers, "e2e.example.com/held")
	require.NoError(t, kube.Patch(t.Context(), &pod, client.MergeFrom(before)))
	t.Cleanup(func() { release(t, namespace, pod.Name) })

	require.NoError(t, kube.Delete(t.Context(), &v1.PostgresCluster{ObjectMeta: meta(namespace, "db")}))
	eventually(t, boundReady, "it is said what holds it up", func(collect *assert.CollectT) {
		degraded := apimeta.FindStatusCondition(c.get(collect).Status.Conditions, v1.ConditionDegraded)
		require.NotNil(collect, degraded)
		require.Equal(collect, v1.ReasonDeletionBlocked, degraded.Reason)
		require.Contains(collect, degraded.Message, "db-1-0")
		require.Contains(collect, degraded.Message, naming.AnnotationForceDelete+"=true")
	})
	mustKubectl(t, "-n", namespace, "annotate", "pgc", "db", naming.AnnotationForceDelete+"=true")
	eventually(t, boundSettle, "it is gone", func(collect *assert.CollectT) {
		err := kube.Get(context.Background(), key(namespace, "db"), &v1.PostgresCluster{})
		require.Error(collect, err)
		require.NoError(collect, client.IgnoreNotFound(err))
	})
	release(t, namespace, pod.Name)
	eventually(t, boundGone, "the garbage collector has removed the rest", func(collect *assert.CollectT) {
		require.Equal(collect, []string{"persistentvolumeclaims/db-1-data"}, c.everything(collect))
	})
}

// release takes the test's finalizer off the Pod.
func release(t *testing.T, namespace, name string) {
	t.Helper()
	pod := &corev1.Pod{}
	if err := kube.Get(context.Background(), key(namespace, name), pod); err != nil {
		require.NoError(t, client.IgnoreNotFound(err))
		return
	}
	before := pod.DeepCopy()
	pod.Finalizers = nil
	require.NoError(t, client.IgnoreNotFound(kube.Patch(context.Background(), pod, client.MergeFrom(before))))
}

// TestLimits: a namespace where every container must have limits, and a name as long as names may be.
func TestLimits(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	startClient(t, namespace)
	quota := &corev1.ResourceQuota{ObjectMeta: meta(namespace, "limits"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		corev1.ResourceLimitsCPU: resource.MustParse("8"), corev1.ResourceLimitsMemory: resource.MustParse("4Gi"),
	}}}
	require.NoError(t, kube.Create(t.Context(), quota))
	name := strings.Repeat("orders-", 7) + "x"
	require.Len(t, name, 50)
	wanted := newCluster(namespace, name, "17", 2)
	wanted.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("512Mi"),
	}}
	c := create(t, wanted)
	c.waitReady(t)
	c.waitServed(t, "limited")
}

// TestTwins: clusters of the same name in two namespaces have nothing to do with each other.
func TestTwins(t *testing.T) {
	t.Parallel()
	first, second := newNamespace(t), newNamespace(t)
	startClient(t, first)
	one, two := create(t, newCluster(first, "db", "17", 1)), create(t, newCluster(second, "db", "17", 1))
	one.waitReady(t)
	two.waitReady(t)
	one.waitServed(t, "one")
	require.NotEqual(t, one.get(t).Status.SystemIdentifier, two.get(t).Status.SystemIdentifier)
	require.NotEqual(t, one.secret(t, "db-app")[naming.KeyPassword], two.secret(t, "db-app")[naming.KeyPassword])
	before := one.versions(t)
	two.delete(t)
	require.Equal(t, before, one.versions(t))
	one.waitRows(t, "db-rw", "one")
	require.Equal(t, metav1.ConditionTrue, apimeta.FindStatusCondition(one.get(t).Status.Conditions, v1.ConditionReady).Status)
}
