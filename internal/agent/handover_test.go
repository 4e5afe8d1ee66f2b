package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// testEarlyLabel: the Services change while the old primary stops, so that they are right when the new one is promoted. Before that
// the target leaves -ro: a proxy that applies changes once a second then applies the rest at once, together.
func testEarlyLabel(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary, target := agents[0], agents[1]
	before := len(c.labels.since(0))
	require.NoError(t, primary.switchover(target.name))
	began := time.Now()
	require.Eventually(t, func() bool { return len(c.labels.since(before)) > 0 }, short, time.Millisecond)
	assert.True(t, primary.agent.server.Snapshot().Running && primary.agent.server.Snapshot().Stopping == 0, "it serves")
	left := time.Now()
	require.Eventually(t, func() bool { return c.labels.role(naming.Pod(target.name)) == naming.RolePrimary }, short, time.Millisecond)
	early := time.Since(left)
	assert.Equal(t, primary.name, c.lease.holder(), "the label is first")
	assert.False(t, target.agent.server.Snapshot().Writable)
	target.await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("left -ro after %s, labelled %s later", left.Sub(began), early)
	assert.Less(t, early, time.Second, "within the second in which proxies wait")
	c.settled()
	assert.Equal(t, []string{
		naming.Pod(target.name) + "=", naming.Pod(target.name) + "=" + naming.RolePrimary, naming.Pod(primary.name) + "=" + naming.RoleStandby,
	}, c.labels.since(before))
}

// testLabelTakenBack: a target that had left -ro, and to which nothing was handed, is a standby again.
func testLabelTakenBack(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary, target := agents[0], agents[1]
	before := len(c.labels.since(0))
	require.NoError(t, primary.switchover(target.name))
	require.Eventually(t, func() bool { return len(c.labels.since(before)) > 0 }, short, time.Millisecond)
	target.stop()
	status := primary.await(short, "refusing", func(s agentapi.Status) bool { return s.Switchover != nil && s.Switchover.Ended != nil })
	assert.Contains(t, []agentapi.SwitchoverPhase{agentapi.SwitchoverRefused, agentapi.SwitchoverUndone}, status.Switchover.Phase,
		"it may have been stopped before the target was missed")
	require.Eventually(t, func() bool { return c.labels.role(naming.Pod(target.name)) == naming.RoleStandby }, short, often)
	assert.Equal(t, naming.RolePrimary, c.labels.role(naming.Pod(primary.name)))
	c.start(target.name)
}
