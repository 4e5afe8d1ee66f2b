//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// old is how kubectl asks for PostgresClusters as the first version of the API shows them.
const old = "postgresclusters.v1alpha1.pgsteward.io"

// TestOldVersion: who knows only v1alpha1 makes a cluster, sees it run, scales it, and the fields that v1 alone has stay. The
// webhook's certificate, taken away, is back before anybody misses it.
func TestOldVersion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	shown := func(t require.TestingT, path string) string {
		said, err := kubectl(context.Background(), "", "-n", namespace, "get", old, "old", "-o", "jsonpath={"+path+"}")
		require.NoError(t, err)
		return said
	}
	patch := func(t *testing.T, kind, patch string) {
		t.Helper()
		mustKubectl(t, "-n", namespace, "patch", kind, "old", "--type=merge", "-p", patch)
	}
	c := applyYAML(t, namespace, "old", `
apiVersion: pgsteward.io/v1alpha1
kind: PostgresCluster
metadata: {name: old}
spec: {replicas: 1, postgresVersion: "16.2", storage: {size: 1Gi, storageClassName: `+defaultStorageClass(t)+`}}
`)
	c.waitReady(t)
	require.Equal(t, "Ready", shown(t, ".status.phase"))
	require.Equal(t, "16.2", shown(t, ".spec.postgresVersion"))
	require.Contains(t, shown(t, `.status.conditions[?(@.type=="Ready")].message`), "there is no image of PostgreSQL 16.2")
	require.Equal(t, naming.ServiceHost(naming.ServiceRW("old"), namespace), shown(t, ".status.primaryHost"))

	patch(t, "pgc", `{"spec":{"postgresql":{"parameters":{"work_mem":"5MB"}}}}`)
	mustKubectl(t, "-n", operatorNamespace, "delete", "secret", naming.WebhookSecret)
	eventually(t, boundSettle, "the webhook has another certificate", func(collect *assert.CollectT) {
		_, err := kubectl(context.Background(), "", "-n", operatorNamespace, "get", "secret", naming.WebhookSecret)
		require.NoError(collect, err)
		require.Equal(collect, "1", shown(collect, ".spec.replicas"))
	})
	patch(t, old, `{"spec":{"replicas":2}}`)
	c.waitReady(t)
	require.EqualValues(t, 2, c.get(t).Status.ReadyReplicas)
	require.Equal(t, "5MB", string(c.get(t).Spec.PostgreSQL.Parameters["work_mem"]))
	require.NotEmpty(t, shown(t, ".status.replicaHosts[0]"))
}

// TestJudged: what only the webhook can know is refused before it is stored, in either version.
func TestJudged(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	for what, text := range map[string]string{
		"v1":       `{apiVersion: pgsteward.io/v1, kind: PostgresCluster, metadata: {name: db}, spec: {version: "16", storage: {storageClassName: gone}}}`,
		"v1alpha1": `{apiVersion: pgsteward.io/v1alpha1, kind: PostgresCluster, metadata: {name: db}, spec: {replicas: 1, postgresVersion: "16.14", storage: {size: 1Gi, storageClassName: gone}}}`,
	} {
		_, err := kubectl(t.Context(), text, "-n", namespace, "create", "-f", "-")
		require.ErrorContains(t, err, `there is no StorageClass "gone"`, what)
	}
}
