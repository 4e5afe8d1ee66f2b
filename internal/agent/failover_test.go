package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestAgent_failover is about who is primary, and when. Its parts build on each other: each begins and ends with a primary and two
// standbys that stream.
func TestAgent_failover(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 3)
	c.change(func(c *agentapi.Config) {
		c.Lease.DeadlineSeconds = 5
		c.Availability.Failsafe = true
	})
	for _, name := range c.names() {
		c.start(name)
	}
	c.agents["db-1"].awaitReady(agentapi.RolePrimary)
	_, err := c.agents["db-1"].app("app-secret", "require", "CREATE TABLE t (n int)")
	require.NoError(t, err)
	for _, part := range []struct {
		name string
		test func(*testing.T, *testCluster)
	}{
		{"refuses a switchover that cannot be", testRefusedSwitchover},
		{"switches over", testSwitchoverAsked},
		{"labels the next primary before it is one", testEarlyLabel},
		{"takes the label back", testLabelTakenBack},
		{"keeps an instance stopped that is fenced by hand", testFenced},
		{"goes on without the API server while all promise", testFailsafe},
		{"follows the primary though it cannot read the lease", testFollowsUnread},
		{"hands over when its Pod is deleted by force", testDeletedByForce},
		{"fails over when the lease has run out", testExpiry},
		{"hands over when its server does not come back", testBroken},
	} {
		c.settled()
		if !t.Run(part.name, func(t *testing.T) { part.test(t, c) }) {
			break
		}
	}
}

func (c *testCluster) names() []string {
	var names []string
	for _, member := range c.config.Members {
		names = append(names, member.Name)
	}
	return names
}

// settled waits for a primary with standbys that stream, and returns it first.
func (c *testCluster) settled() []*testAgent {
	c.t.Helper()
	var agents []*testAgent
	require.Eventually(c.t, func() bool {
		holder := c.lease.holder()
		agents = []*testAgent{c.agents[holder]}
		for _, name := range c.names() {
			if name != holder {
				agents = append(agents, c.agents[name])
			}
		}
		if agents[0] == nil {
			return false
		}
		timeline := agents[0].status().Timeline
		return agents[0].status().Ready && agents[0].status().Role == agentapi.RolePrimary &&
			!slices.ContainsFunc(agents[1:], func(a *testAgent) bool {
				s := a.status()
				return !s.Ready || !s.Streaming || s.Role != agentapi.RoleStandby || s.Timeline != timeline || s.Upstream != holder
			})
	}, 2*long, often, "a primary and standbys that stream")
	return agents
}

func (a *testAgent) insert(n int) error {
	_, err := a.app("app-secret", "require", fmt.Sprintf("INSERT INTO t VALUES (%d)", n))
	return err
}

// rows is how many rows there are.
func (a *testAgent) rows() string {
	answer, err := a.query("app", "SELECT count(*)::text FROM t")
	if err != nil {
		return err.Error()
	}
	return answer
}

func testRefusedSwitchover(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary, standby, other := agents[0], agents[1], agents[2]
	pid := primary.agent.server.Snapshot().PID
	var refused *agentapi.RefusedError
	require.ErrorAs(t, primary.switchover(primary.name), &refused)
	assert.Contains(t, refused.Why, "is the primary already")
	require.ErrorAs(t, primary.switchover("db-9"), &refused)
	assert.Contains(t, refused.Why, "there is no instance db-9")
	require.ErrorAs(t, standby.switchover(other.name), &refused)
	assert.Contains(t, refused.Why, "is not a primary")

	other.stop()
	require.NoError(t, primary.switchover(other.name))
	status := primary.await(short, "refusing", func(s agentapi.Status) bool {
		return s.Switchover != nil && s.Switchover.Phase == agentapi.SwitchoverRefused
	})
	assert.Contains(t, status.Switchover.Refused, other.name+" does not answer")
	assert.Equal(t, other.name, status.Switchover.Wanted)
	assert.Equal(t, pid, primary.agent.server.Snapshot().PID, "PostgreSQL is as it was")
	assert.Equal(t, primary.name, c.lease.holder())
	c.start(other.name)
}

func testSwitchoverAsked(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary, target, other := agents[0], agents[2], agents[1]
	require.NoError(t, primary.insert(1))
	pid, mark := other.agent.server.Snapshot().PID, len(primary.log.String())
	before := target.status().Timeline
	began := time.Now()
	require.NoError(t, primary.switchover(target.name))
	target.await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("switched over in %s", time.Since(began))
	require.NoError(t, target.insert(2))
	assert.Equal(t, before+1, target.status().Timeline)
	assert.Equal(t, "2", target.rows())
	c.settled()
	assert.Equal(t, pid, other.agent.server.Snapshot().PID, "the other standby follows without a restart")
	assert.NotContains(t, primary.log.String()[mark:], "ewinding", "nothing has diverged")
	assert.Equal(t, agentapi.SwitchoverHandedOver, primary.status().Switchover.Phase)
	assert.Equal(t, target.name, primary.status().Switchover.Target)
	require.Eventually(t, func() bool { // by the new primary first, by the instances themselves in the end
		return c.labels.role(naming.Pod(target.name)) == naming.RolePrimary && c.labels.role(naming.Pod(primary.name)) == naming.RoleStandby &&
			c.labels.role(naming.Pod(other.name)) == naming.RoleStandby
	}, short, often)
}

func testFenced(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary := agents[0]
	c.change(func(c *agentapi.Config) { c.Fenced = []string{primary.name} })
	status := primary.await(short, "fenced", func(s agentapi.Status) bool { return s.Fenced && s.Problem != nil && s.Problem.Reason == reasonFenced })
	assert.False(t, status.Ready)
	require.Eventually(t, func() bool { return !primary.agent.server.Snapshot().Running }, short, often)
	version := func() string {
		c.lease.mu.Lock()
		defer c.lease.mu.Unlock()
		return c.lease.lease.ResourceVersion
	}
	seen := version()
	require.Eventually(t, func() bool { return version() != seen }, short, often, "the lease is still renewed")
	assert.Equal(t, primary.name, c.lease.holder(), "nobody takes over because of a fence")
	for _, a := range agents[1:] {
		assert.True(t, a.status().Ready, "standbys can be read")
	}
	c.change(func(c *agentapi.Config) { c.Fenced = nil })
	primary.awaitReady(agentapi.RolePrimary)
}

// ended says whether a process does nothing any more.
func ended(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(content), ") Z ")
}

func testFailsafe(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary := agents[0]
	pid := primary.agent.server.Snapshot().PID
	duration := primary.agent.leaseKeeper().Timings().Duration
	c.lease.cut(true, false)
	require.Eventually(t, func() bool { return primary.agent.view().Failsafe }, duration, often)
	for _, a := range agents[1:] {
		a.await(short, "promising", func(s agentapi.Status) bool { return s.Promised })
	}
	require.Never(t, func() bool { return primary.agent.server.Snapshot().PID != pid }, 2*duration, often)
	require.NoError(t, primary.insert(3))
	assert.True(t, primary.status().Ready)

	agents[1].stop() // now one does not promise
	require.Eventually(t, func() bool { return ended(pid) }, short, 5*time.Millisecond)
	since := primary.agent.view().SinceRenewal
	t.Logf("stopped %s after the last round in which all had promised", since)
	assert.Less(t, since, duration)
	c.lease.cut(false, false)
	c.start(agents[1].name)
}

// testFollowsUnread: a standby that is started while it does not reach the API server asks the others who is primary.
func testFollowsUnread(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary, standby := agents[0], agents[2]
	standby.stop()
	standby.cutOff = true
	defer func() { standby.cutOff = false }()
	c.start(standby.name)
	standby.await(long, "streaming", func(s agentapi.Status) bool { return s.Streaming && s.Upstream == primary.name })
	assert.False(t, standby.agent.view().Known, "it does not know the lease")
	standby.access.cutOff.Store(false)
	standby.awaitReady(agentapi.RoleStandby)
}

// testDeletedByForce: the token of such a Pod is void at once, so the target takes the lease itself.
func testDeletedByForce(t *testing.T, c *testCluster) {
	primary := c.settled()[0]
	timeline := primary.status().Timeline
	primary.access.denied.Store(true)
	began := time.Now()
	primary.stop()
	// the target answers before it takes the lease
	require.Eventually(t, func() bool { return c.lease.holder() != primary.name }, short, 5*time.Millisecond)
	next := c.agents[c.lease.holder()]
	next.await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("another instance is primary %s after the Pod began to end", time.Since(began))
	assert.Equal(t, timeline+1, next.status().Timeline)
	assert.True(t, strings.Contains(next.log.String(), "Being handed the lease"))
	c.start(primary.name)
}

func testExpiry(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary := agents[0]
	duration := primary.agent.leaseKeeper().Timings().Duration
	c.change(func(c *agentapi.Config) { c.Availability.Failsafe = false })
	primary.await(short, "told", func(s agentapi.Status) bool { return s.ConfigGeneration == c.config.Generation })
	require.NoError(t, primary.insert(4))
	rows := primary.rows()
	require.Eventually(t, func() bool { return agents[1].rows() == rows && agents[2].rows() == rows }, short, often)
	began := time.Now()
	primary.access.cutOff.Store(true)
	require.Eventually(t, func() bool { return c.lease.holder() != primary.name }, short, 5*time.Millisecond)
	t.Logf("another instance holds the lease %s after the primary was cut off", time.Since(began))
	assert.False(t, primary.agent.server.Snapshot().Running, "it has stopped before")
	next := c.agents[c.lease.holder()]
	next.await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("and is primary %s after it", time.Since(began))
	assert.Equal(t, rows, next.rows())
	assert.Less(t, time.Since(began), duration+long)
	primary.access.cutOff.Store(false)
	c.settled()
	c.change(func(c *agentapi.Config) { c.Availability.Failsafe = true })
}

// testBroken takes a file away without which PostgreSQL does not start, and kills it.
func testBroken(t *testing.T, c *testCluster) {
	agents := c.settled()
	primary := agents[0]
	file := filepath.Join(primary.dataDir(), "global", "pg_filenode.map")
	require.NoError(t, os.Rename(file, file+".away"))
	began := time.Now()
	primary.crash()
	require.Eventually(t, func() bool { return c.lease.holder() != primary.name }, short, 5*time.Millisecond)
	c.agents[c.lease.holder()].await(long, "the primary", func(s agentapi.Status) bool { return s.Ready && s.Role == agentapi.RolePrimary })
	t.Logf("another instance is primary %s after the crash", time.Since(began))
	assert.True(t, strings.Contains(primary.log.String(), "holder-failing"))
	assert.Contains(t, agents[1].rows()+agents[2].rows(), "4")
	_ = os.Rename(file+".away", file) // unless the data was made anew meanwhile
	c.settled()
}
