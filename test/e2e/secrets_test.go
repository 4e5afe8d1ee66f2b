//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestSecrets: passwords are rotated in the Secret; what is deleted or edited comes back.
func TestSecrets(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 2))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	t.Run("rotated", func(t *testing.T) { secretRotated(t, c) })
	t.Run("deleted", func(t *testing.T) { secretDeleted(t, c) })
	t.Run("all deleted", func(t *testing.T) { secretsDeleted(t, c) })
	t.Run("edited", func(t *testing.T) { childrenEdited(t, c) })
	c.waitReady(t)
}

// secretRotated with a password that needs escaping in every form.
func secretRotated(t *testing.T, c cluster) {
	const password = `n%w p@ss:w/rd\'"?&#é`
	old := c.secret(t, "db-app")["password"]
	_, err := kubectl(t.Context(), `{"stringData": {"password": "n%w p@ss:w/rd\\'\"?&#é"}}`, "-n", c.namespace, "patch", "secret", "db-app", "--patch-file", "/dev/stdin")
	require.NoError(t, err)
	eventually(t, boundSettle, "the new password works", func(collect *assert.CollectT) {
		_, err := c.trySQL("db-rw", password, "sslmode=require", "SELECT 1")
		require.NoError(collect, err)
	})
	_, err = c.trySQL("db-rw", old, "sslmode=require", "SELECT 1")
	require.ErrorContains(t, err, "password authentication failed")
	eventually(t, boundSettle, "it works on standbys", func(collect *assert.CollectT) {
		_, err := c.trySQL("db-ro", password, "sslmode=require", "SELECT 1")
		require.NoError(collect, err)
	})
	eventually(t, boundSettle, "the uri has it", func(collect *assert.CollectT) {
		out, err := inPod(c.namespace, clientPod, clientPod, "", "psql", "-XAt", c.secret(collect, "db-app")["uri"], "-c", "SELECT 'in'")
		require.NoError(collect, err)
		require.Equal(collect, "in\n", out)
	})
	require.Equal(t, password, c.secret(t, "db-app")["password"])
}

func secretDeleted(t *testing.T, c cluster) {
	old := c.secret(t, "db-app")["password"]
	require.NoError(t, kube.Delete(t.Context(), &corev1.Secret{ObjectMeta: meta(c.namespace, "db-app")}))
	eventually(t, boundSettle, "the Secret is back and works", func(collect *assert.CollectT) {
		require.NotEqual(collect, old, c.secret(collect, "db-app")["password"])
		require.Equal(collect, "1", c.sql(collect, "db-rw", "SELECT 1"))
	})
	_, err := c.trySQL("db-rw", old, "sslmode=require", "SELECT 1")
	require.ErrorContains(t, err, "password authentication failed")
}

// secretsDeleted: even with all certificates new the cluster goes on, and its standbys stream.
func secretsDeleted(t *testing.T, c cluster) {
	old := c.secret(t, "db-ca")["ca.crt"]
	for _, name := range []string{"db-superuser", "db-replication", "db-server", "db-ca"} {
		require.NoError(t, kube.Delete(t.Context(), &corev1.Secret{ObjectMeta: meta(c.namespace, name)}))
	}
	eventually(t, boundSettle, "the Secrets are back", func(collect *assert.CollectT) {
		for _, name := range []string{"db-superuser", "db-replication", "db-server", "db-ca"} {
			c.secret(collect, name)
		}
		require.NotEqual(collect, old, c.secret(collect, "db-ca")["ca.crt"])
	})
	eventually(t, 2*boundSettle, "the operator hears the agents, and the server shows the new certificate", func(collect *assert.CollectT) {
		requireReady(collect, c.get(collect))
		_, err := inPod(c.namespace, clientPod, clientPod, c.secret(collect, "db-ca")["ca.crt"], "sh", "-c", "cat >/tmp/ca.crt")
		require.NoError(collect, err)
		_, err = c.trySQL("db-rw", "", "sslmode=verify-full sslrootcert=/tmp/ca.crt", "SELECT 1")
		require.NoError(collect, err)
	})
	// a connection that is made anew authenticates with the new certificate
	c.superuser(t, c.primaryPod(t), "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_replication")
	eventually(t, boundSettle, "standbys stream again", func(collect *assert.CollectT) {
		require.Equal(collect, "streaming", c.superuser(collect, c.primaryPod(collect), "SELECT string_agg(state, ' ') FROM pg_stat_replication"))
	})
	c.waitServed(t, "new-certificates")
}

// childrenEdited: what somebody changed or deleted is put right.
func childrenEdited(t *testing.T, c cluster) {
	edits := map[string][]string{
		"Service's selector":  {"patch", "service", "db-rw", "--type=merge", "-p", `{"spec":{"selector":{"pgsteward.io/role":"standby"}}}`},
		"ConfigMap's data":    {"patch", "configmap", "db-config", "--type=merge", "-p", `{"data":{"config.json":"{}"}}`},
		"role label":          {"label", "--overwrite", "pod", c.primaryPod(t), naming.LabelRole + "=" + naming.RoleStandby},
		"Role's rules":        {"patch", "role", "db-instance", "--type=merge", "-p", `{"rules":[]}`},
		"disruption budget":   {"delete", "pdb", "db"},
		"StatefulSet's count": {"patch", "statefulset", "db-2", "--type=merge", "-p", `{"spec":{"replicas":0}}`},
	}
	for what, command := range edits {
		mustKubectl(t, append([]string{"-n", c.namespace}, command...)...)
		eventually(t, boundReady, "put right: "+what, func(collect *assert.CollectT) {
			var rw corev1.Service
			require.NoError(collect, kube.Get(context.Background(), key(c.namespace, "db-rw"), &rw))
			require.Equal(collect, naming.RoleSelector("db", naming.RolePrimary), rw.Spec.Selector)
			var settings corev1.ConfigMap
			require.NoError(collect, kube.Get(context.Background(), key(c.namespace, "db-config"), &settings))
			require.NotEqual(collect, "{}", settings.Data[naming.FileConfig])
			require.Contains(collect, mustGet(collect, c, "role", "db-instance"), "leases")
			require.Contains(collect, c.children(collect), "PodDisruptionBudget/db")
			require.Len(collect, c.pods(collect), 2)
			c.requireOnePrimary(collect)
		})
	}
	c.waitReady(t)
	c.waitServed(t, "edited")
}

// mustGet is an object as YAML.
func mustGet(t require.TestingT, c cluster, kind, name string) string {
	out, err := kubectl(context.Background(), "", "-n", c.namespace, "get", kind, name, "-o", "yaml")
	require.NoError(t, err)
	return out
}
