package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

func TestAgent_makes_a_cluster(t *testing.T) {
	c := newTestCluster(t, 2)
	primary := c.start("db-1")
	status := primary.awaitReady(agentapi.RolePrimary)
	require.Equal(t, "db-1", c.lease.holder())
	require.Equal(t, status.SystemIdentifier, c.lease.annotation(naming.AnnotationSystemIdentifier))
	require.Equal(t, "on", primary.ask("SHOW data_checksums"))

	standby := c.start("db-2")
	standby.awaitReady(agentapi.RoleStandby)
}
