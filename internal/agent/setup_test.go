package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestAgent_setup is about a primary whose roles cannot be made: the name of one is reserved.
func TestAgent_setup(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1)
	c.change(func(c *agentapi.Config) { c.Owner = "pg_reserved" })
	a := c.start("db-1")
	fails := func(s agentapi.Status) bool {
		return s.Problem != nil && s.Problem.Reason == reasonSetup
	}
	began := time.Now()
	status := a.await(long, "saying why", fails)
	assert.Contains(t, status.Problem.Message, "pg_reserved")
	time.Sleep(time.Until(began.Add(setupGrace + 3*time.Second))) //nolint:forbidigo // nothing else happens
	assert.False(t, a.status().Ready, "nobody could work with it")

	// Settings for everybody do not keep the agent from its work.
	c.change(func(c *agentapi.Config) {
		c.Owner, c.Parameters = "app", map[string]string{"default_transaction_read_only": "on"}
	})
	status = a.awaitReady(agentapi.RolePrimary)
	assert.Nil(t, status.Problem)

	c.change(func(c *agentapi.Config) { c.Owner = "pg_reserved" })
	assert.True(t, a.await(short, "saying why again", fails).Ready, "whoever worked goes on")

	c.change(func(c *agentapi.Config) { c.Owner = "app" })
	a.await(short, "working again", func(s agentapi.Status) bool { return s.Problem == nil && s.Ready })
	is, err := a.agent.admin.IsSetUp(t.Context(), sqlWanted(a, "app-secret"))
	require.NoError(t, err)
	assert.True(t, is)
	assert.Equal(t, "app", a.ask("SELECT rolname FROM pg_roles WHERE rolname NOT IN ($1, 'postgres') AND rolcanlogin", naming.ReplicationUser))
}
