//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// TestParameters: what can be reloaded takes effect without a restart, what PostgreSQL refuses changes nothing. (What needs a restart:
// TestRolling.)
func TestParameters(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	object := newCluster(namespace, "db", "16", 2)
	object.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "5MB", "max_connections": "90"}
	c := create(t, object)
	startClient(t, namespace)
	c.waitReady(t)
	started := map[string]string{}
	for pod := range c.pods(t) {
		started[pod] = c.superuser(t, pod, "SELECT pg_postmaster_start_time()")
	}
	set := func(t *testing.T, name, value string) {
		t.Helper()
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.PostgreSQL.Parameters[name] = v1.ParameterValue(value) })
	}
	shows := func(t *testing.T, name, value string) {
		t.Helper()
		eventually(t, boundSettle, name+" is "+value, func(collect *assert.CollectT) {
			for pod := range started {
				require.Equal(collect, value, c.superuser(collect, pod, "SHOW "+name), pod)
			}
		})
	}
	t.Run("from the start", func(t *testing.T) {
		shows(t, "work_mem", "5MB")
		shows(t, "max_connections", "90")
	})
	t.Run("reloaded", func(t *testing.T) {
		set(t, "work_mem", "7MB")
		set(t, "search_path", `"$user", public, it's`)
		shows(t, "work_mem", "7MB")
		c.waitReady(t)
	})
	t.Run("refused", func(t *testing.T) {
		set(t, "work_mem", "plenty")
		c.waitDegraded(t, v1.ReasonConfigurationRejected, "work_mem", "plenty")
		shows(t, "work_mem", "7MB")
		c.waitServed(t, "while-refused")
		set(t, "work_mem", "8MB")
		shows(t, "work_mem", "8MB")
		c.waitSound(t)
	})
	t.Run("unknown", func(t *testing.T) {
		set(t, "no_such_parameter", "1")
		c.waitDegraded(t, v1.ReasonConfigurationRejected, "no_such_parameter")
		c.patch(t, func(spec *v1.PostgresClusterSpec) { delete(spec.PostgreSQL.Parameters, "no_such_parameter") })
		c.waitSound(t)
	})
	t.Run("pg_hba", func(t *testing.T) { pgHBA(t, c) })
	for pod, since := range started {
		require.Equal(t, since, c.superuser(t, pod, "SELECT pg_postmaster_start_time()"), "PostgreSQL of %s was restarted", pod)
	}
}

// pgHBA: a line of the user's comes before the default one; a bad one is refused.
func pgHBA(t *testing.T, c cluster) {
	lines := func(lines ...string) {
		t.Helper()
		c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.PostgreSQL.PgHBA = lines })
	}
	lines("host all all all md5x")
	c.waitDegraded(t, v1.ReasonConfigurationRejected, "md5x")
	c.waitServed(t, "bad-line")

	lines("hostssl app app all reject")
	eventually(t, boundSettle, "the line rejects the application", func(collect *assert.CollectT) {
		_, err := c.trySQL("db-rw", "", "sslmode=require", "SELECT 1")
		require.ErrorContains(collect, err, "pg_hba.conf rejects")
	})
	c.waitSound(t)

	lines()
	eventually(t, boundSettle, "without it the application is in again", func(collect *assert.CollectT) { c.write(collect, "in-again") })
	c.waitReady(t)
}
