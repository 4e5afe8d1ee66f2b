//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestPods: Pods and servers that go come back, with their data.
func TestPods(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "16", 3))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	back := func(t *testing.T, what string) {
		t.Helper()
		c.waitReady(t)
		c.waitRows(t, "db-rw", "before")
		c.waitServed(t, what)
		c.requireOnePrimary(t)
	}
	for _, force := range []bool{false, true} {
		how := map[bool]string{false: "deleted", true: "deleted-by-force"}[force]
		t.Run("standby "+how, func(t *testing.T) {
			pod := c.standbyPods(t)[0]
			c.deletePod(t, pod, force)
			back(t, "standby-"+how)
			require.Equal(t, "1", c.superuserIn(t, pod, "app", "SELECT count(*) FROM seen WHERE what = 'before'"))
		})
		t.Run("primary "+how, func(t *testing.T) {
			c.deletePod(t, c.primaryPod(t), force)
			back(t, "primary-"+how)
		})
	}
	t.Run("server killed", func(t *testing.T) {
		for _, pod := range []string{c.standbyPods(t)[0], c.primaryPod(t)} {
			before := c.pods(t)[pod]
			started := c.superuser(t, pod, "SELECT pg_postmaster_start_time()")
			mustKubectl(t, "-n", namespace, "exec", pod, "-c", naming.ContainerPostgres, "--", "sh", "-c", `kill -9 "$(head -n 1 "$PGDATA/postmaster.pid")"`)
			eventually(t, boundSettle, "PostgreSQL of "+pod+" runs again", func(collect *assert.CollectT) {
				require.NotEqual(collect, started, c.superuser(collect, pod, "SELECT pg_postmaster_start_time()"))
			})
			back(t, "killed-"+pod)
			after := c.pods(t)[pod]
			require.Equal(t, before.UID, after.UID, "%s is another Pod", pod)
			require.Equal(t, before.Status.ContainerStatuses[0].RestartCount, after.Status.ContainerStatuses[0].RestartCount, "the agent of %s ended too", pod)
		}
	})
}

// TestScale: 3 → 4 → 2. The highest standby goes, the primary never; its volume stays, and is taken over when it comes back.
func TestScale(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 3))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	primary := c.primaryPod(t)
	scale := func(replicas string) *v1.PostgresCluster {
		t.Helper()
		mustKubectl(t, "-n", namespace, "scale", "pgc/db", "--replicas", replicas)
		object := c.waitReady(t)
		require.Equal(t, primary, c.primaryPod(t))
		return object
	}
	instances := func() []string {
		t.Helper()
		var names []string
		for _, instance := range c.get(t).Status.Instances {
			names = append(names, instance.Name)
		}
		return names
	}
	slots := func(want string) {
		t.Helper()
		eventually(t, boundSettle, "the primary has the slots "+want, func(collect *assert.CollectT) {
			require.Equal(collect, want, c.superuser(collect, primary, "SELECT string_agg(slot_name, ' ' ORDER BY slot_name) FROM pg_replication_slots"))
		})
	}

	require.Equal(t, int32(4), scale("4").Status.Replicas)
	require.Equal(t, []string{"db-1", "db-2", "db-3", "db-4"}, instances())
	slots("pgsteward_db_2 pgsteward_db_3 pgsteward_db_4")
	c.waitServed(t, "four")

	require.Equal(t, int32(2), scale("2").Status.Replicas)
	require.Equal(t, []string{"db-1", "db-2"}, instances())
	slots("pgsteward_db_2")
	c.waitServed(t, "two")
	require.Contains(t, strings.Join(c.events(t, v1.ReasonVolumeRetained), "\n"), "db-4-data")
	require.Contains(t, strings.Join(c.events(t, v1.ReasonVolumeRetained), "\n"), "db-3-data")
	for _, claim := range []string{"db-3-data", "db-4-data"} {
		require.NoError(t, kube.Get(t.Context(), key(namespace, claim), &corev1.PersistentVolumeClaim{}))
	}

	scale("3")
	require.Equal(t, []string{"db-1", "db-2", "db-3"}, instances())
	eventually(t, boundSettle, "the instance that came back has the new data", func(collect *assert.CollectT) {
		require.Equal(collect, "3", c.superuserIn(collect, "db-3-0", "app", "SELECT count(*) FROM seen"))
	})

	scale("1")
	require.Equal(t, []string{"db-1"}, instances())
	c.waitServed(t, "one")
	eventually(t, boundSettle, "a single instance has no disruption budget", func(collect *assert.CollectT) {
		require.NotContains(collect, c.children(collect), "PodDisruptionBudget/db")
	})
}

// TestDeletion: a deleted cluster leaves its volumes, says so, and finds them again; with deletion.volumes: Delete it leaves nothing.
func TestDeletion(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 2))
	startClient(t, namespace)
	system := c.waitReady(t).Status.SystemIdentifier
	c.waitServed(t, "before")
	password := c.secret(t, "db-app")["password"]

	c.delete(t)
	leaves(t, c, "persistentvolumeclaims/db-1-data", "persistentvolumeclaims/db-2-data")
	said := c.events(t, v1.ReasonVolumeRetained)
	require.Len(t, said, 1)
	require.Contains(t, said[0], "db-1-data")
	require.Contains(t, said[0], "db-2-data")

	other := newCluster(namespace, "db", "16", 1)
	other.Annotations = warnOnly
	create(t, other)
	c.waitDegraded(t, v1.ReasonDataVersionMismatch, "db-1-data", "16", "17")
	c.delete(t)

	object := newCluster(namespace, "db", "17", 2)
	object.Spec.Deletion.Volumes = v1.Delete
	create(t, object)
	require.Equal(t, system, c.waitReady(t).Status.SystemIdentifier)
	c.waitRows(t, "db-rw", "before")
	require.NotEqual(t, password, c.secret(t, "db-app")["password"])
	c.waitServed(t, "after")

	c.delete(t)
	leaves(t, c)
}

// leaves waits until just these objects of the cluster are left.
func leaves(t *testing.T, c cluster, want ...string) {
	t.Helper()
	eventually(t, boundGone, "what is left is what shall be kept", func(collect *assert.CollectT) {
		require.ElementsMatch(collect, want, c.everything(collect))
	})
}
