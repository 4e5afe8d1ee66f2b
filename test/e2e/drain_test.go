//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestDrain: a node with a standby can be drained, while the primary serves, and takes the standby back afterwards. It needs three
// nodes, and runs alone, since a drain takes everybody's Pods.
func TestDrain(t *testing.T) {
	if nodes := readyNodes(t); len(nodes) < 3 {
		t.Skipf("three nodes are needed, there are %d", len(nodes))
	}
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 3))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	client := &corev1.Pod{}
	require.NoError(t, kube.Get(t.Context(), key(namespace, clientPod), client))
	var standby, node string
	for _, name := range c.standbyPods(t) {
		if on := c.pods(t)[name].Spec.NodeName; on != client.Spec.NodeName && on != c.pods(t)[c.primaryPod(t)].Spec.NodeName {
			standby, node = name, on
		}
	}
	if node == "" {
		t.Skip("no node has a standby without the primary or the client")
	}
	mustKubectl(t, "label", "--overwrite", "node", node, labelSuite+"=drained")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := uncordonLeftovers(ctx); err != nil {
			t.Errorf("node %s stays cordoned: %v", node, err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), boundGone)
	defer cancel()
	_, err := kubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", fmt.Sprintf("--timeout=%s", boundGone))
	require.NoError(t, err)
	require.NotEqual(t, naming.Pod(c.get(t).Status.CurrentPrimary), standby)
	c.waitServed(t, "while-drained")
	// its volume is on that node: it cannot run elsewhere, and the status says so
	eventually(t, boundSettle, "the cluster says that an instance is missing", func(collect *assert.CollectT) {
		require.Equal(collect, int32(2), c.get(collect).Status.ReadyReplicas)
	})
	mustKubectl(t, "uncordon", node)
	c.waitReady(t)
	require.Equal(t, "2", c.superuserIn(t, standby, "app", "SELECT count(*) FROM seen"))
	c.waitSound(t)
}
