//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestHold: a cluster that is paused is left alone and serves; one that is suspended stops, and comes back with its data.
func TestHold(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "16", 2))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	t.Run("paused", func(t *testing.T) { paused(t, c) })
	t.Run("suspended", func(t *testing.T) { suspended(t, c) })
}

func paused(t *testing.T, c cluster) {
	says := func(want bool) {
		t.Helper()
		eventually(t, boundSettle, "the condition Paused is right", func(collect *assert.CollectT) {
			require.Equal(collect, want, apimeta.IsStatusConditionTrue(c.get(collect).Status.Conditions, v1.ConditionPaused))
		})
	}
	service := &corev1.Service{ObjectMeta: meta(c.namespace, "db-r")}
	mustKubectl(t, "-n", c.namespace, "annotate", "pgc", c.name, naming.AnnotationPaused+"=true")
	says(true)
	require.NoError(t, kube.Delete(t.Context(), service))
	mustKubectl(t, "-n", c.namespace, "scale", "pgc", c.name, "--replicas=3")
	never(t, 10*time.Second, func() {
		require.Len(t, c.pods(t), 2)
		require.Error(t, kube.Get(t.Context(), client.ObjectKeyFromObject(service), service))
	})
	c.waitServed(t, "paused")

	mustKubectl(t, "-n", c.namespace, "annotate", "pgc", c.name, naming.AnnotationPaused+"-")
	says(false)
	c.waitReady(t)
	require.Len(t, c.pods(t), 3)
	require.NoError(t, kube.Get(t.Context(), client.ObjectKeyFromObject(service), service))
	c.waitServed(t, "unpaused")
}

func suspended(t *testing.T, c cluster) {
	system := c.get(t).Status.SystemIdentifier
	c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Suspend = true })
	eventually(t, boundGone, "no instance runs", func(collect *assert.CollectT) {
		require.Empty(collect, c.pods(collect))
		require.Equal(collect, v1.PhaseSuspended, c.get(collect).Status.Phase)
	})
	claims := &corev1.PersistentVolumeClaimList{}
	require.NoError(t, kube.List(context.Background(), claims, client.InNamespace(c.namespace), client.MatchingLabels{naming.LabelCluster: c.name}))
	require.Len(t, claims.Items, 3)

	c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Suspend = false })
	require.Equal(t, system, c.waitReady(t).Status.SystemIdentifier)
	c.waitRows(t, "db-rw", "before", "paused", "unpaused")
	c.waitServed(t, "resumed")
	c.requireOnePrimary(t)
}
