package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestAgent_lease is about one instance whose API server or lease goes away.
func TestAgent_lease(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 1)
	duration := 4 * time.Second
	c.change(func(c *agentapi.Config) { c.Lease.DurationSeconds, c.Lease.RenewSeconds = 4, 1 })
	a := c.start("db-1")
	a.awaitReady(agentapi.RolePrimary)

	t.Run("a short absence of the API server changes nothing", func(t *testing.T) {
		pid := a.agent.server.Snapshot().PID
		c.lease.cut(true, false)
		time.Sleep(duration / 4) //nolint:forbidigo // the absence itself
		c.lease.cut(false, false)
		a.await(short, "renewing", func(agentapi.Status) bool { return a.agent.view().SinceRenewal < time.Second })
		assert.Equal(t, pid, a.agent.server.Snapshot().PID)
	})
	for name, hang := range map[string]bool{"refused": false, "silent": true} {
		t.Run("stops in time while the API server is "+name, func(t *testing.T) {
			c.lease.cut(true, hang)
			require.Eventually(t, func() bool { return !a.agent.server.Snapshot().Running }, short, 5*time.Millisecond)
			since := a.agent.view().SinceRenewal
			t.Logf("stopped %s after the last renewal was sent", since)
			assert.Less(t, since, duration, "nobody may have taken the lease before it stopped")
			assert.Greater(t, since, duration/2, "not before it must")
			a.await(short, "saying why", func(s agentapi.Status) bool {
				return !s.Ready && s.Problem != nil && s.Problem.Reason == reasonLease
			})
			code, body := a.get("/readyz")
			assert.Equal(t, 503, code, body)
			code, _ = a.get("/livez")
			assert.Equal(t, 200, code, "the agent is alive")
			c.lease.cut(false, false)
			a.awaitReady(agentapi.RolePrimary)
		})
	}
	t.Run("a client that does not go away is sent away", func(t *testing.T) {
		done := make(chan error, 1)
		go func() {
			_, err := a.query("postgres", "SELECT pg_sleep(60)")
			done <- err
		}()
		c.lease.cut(true, true)
		require.Eventually(t, func() bool { return !a.agent.server.Snapshot().Running }, short, 5*time.Millisecond)
		assert.Less(t, a.agent.view().SinceRenewal, duration)
		require.Error(t, <-done)
		c.lease.cut(false, false)
		a.awaitReady(agentapi.RolePrimary)
	})
	t.Run("stops in time while nothing takes the log", func(t *testing.T) {
		a.log.mu.Lock() // as if the container runtime hung
		defer a.log.mu.Unlock()
		c.lease.cut(true, false)
		assert.Eventually(t, func() bool { return !a.agent.server.Snapshot().Running }, short, 5*time.Millisecond)
		assert.Less(t, a.agent.view().SinceRenewal, duration)
		a.await(short, "saying why", func(s agentapi.Status) bool { return s.Problem != nil && s.Problem.Reason == reasonLease })
		c.lease.cut(false, false)
		a.awaitReady(agentapi.RolePrimary) // nor does anything else wait for the log
	})
	t.Run("a lease that was made anew is taken again", func(t *testing.T) {
		c.change(func(c *agentapi.Config) {
			c.Bootstrap = ""
			c.Members = append(c.Members, agentapi.Member{Name: "db-2", Host: "127.0.0.99"}) // it is silent
		})
		pid := a.agent.server.Snapshot().PID
		c.lease.recreate()
		require.Eventually(t, func() bool { return c.lease.holder() == "db-1" }, short, often)
		time.Sleep(duration) //nolint:forbidigo // nothing else happens
		a.awaitReady(agentapi.RolePrimary)
		assert.Equal(t, pid, a.agent.server.Snapshot().PID, "it went on")
	})
	t.Run("another Pod of the instance is waited for", func(t *testing.T) {
		c.change(func(c *agentapi.Config) { c.Members = c.Members[:1] })
		require.Eventually(t, func() bool { return c.lease.annotation(naming.AnnotationMembers) == "db-1" }, short, often)
		a.stop()
		c.lease.mu.Lock()
		l := c.lease.lease.DeepCopy()
		l.Annotations[naming.AnnotationHolderPod] = "a Pod on a node that was cut off"
		c.lease.set(l)
		c.lease.mu.Unlock()
		began := time.Now()
		c.start("db-1")
		a.awaitReady(agentapi.RolePrimary)
		assert.Greater(t, time.Since(began), duration)
	})
	t.Run("an instance that is fenced does not take the lease of its other Pod", func(t *testing.T) {
		const other = "a Pod on a node that was cut off, and goes on by promises"
		a.stop()
		c.lease.mu.Lock()
		l := c.lease.lease.DeepCopy()
		l.Annotations[naming.AnnotationHolderPod] = other
		c.lease.set(l)
		c.lease.mu.Unlock()
		c.change(func(c *agentapi.Config) { c.Fenced = []string{"db-1"} })
		a = c.start("db-1")
		a.await(short, "fenced, and the lease has run out", func(s agentapi.Status) bool { return s.Fenced && a.agent.view().Expired })
		time.Sleep(duration / 2) //nolint:forbidigo // it has time for two renewals
		assert.Equal(t, other, c.lease.annotation(naming.AnnotationHolderPod))
		c.change(func(c *agentapi.Config) { c.Fenced = nil })
		a.awaitReady(agentapi.RolePrimary)
	})
}

// TestAgent_refusals is about volumes and images that are not what they should be: nothing is touched, and it is said.
func TestAgent_refusals(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	a := c.start("db-1")
	failed := func(reason string) func(agentapi.Status) bool {
		return func(s agentapi.Status) bool {
			return s.State == agentapi.StateFailed && s.Problem != nil && s.Problem.Reason == reason && !s.Ready
		}
	}
	system := a.awaitReady(agentapi.RolePrimary).SystemIdentifier

	t.Run("a volume is for one agent", func(t *testing.T) {
		paths := a.paths
		paths.Run = t.TempDir()
		other := New(Options{Paths: paths, Output: &syncBuffer{}, ListenAddress: "127.0.0.77", Ports: c.ports})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- other.Run(ctx) }()
		require.Eventually(t, func() bool { return strings.Contains(other.health.Ready(), "another process") }, short, often)
		assert.False(t, other.server.Snapshot().Running)
		cancel()
		require.NoError(t, <-done)
	})
	a.stop()

	t.Run("another system", func(t *testing.T) {
		c.change(func(c *agentapi.Config) { c.Bootstrap, c.SystemIdentifier = "", "42" })
		c.start("db-1")
		status := a.await(short, "refusing", failed(reasonSystem))
		assert.Contains(t, status.Problem.Message, system)
		assert.False(t, a.agent.server.Snapshot().Running)
		c.change(func(c *agentapi.Config) { c.SystemIdentifier = system })
		a.awaitReady(agentapi.RolePrimary)
		a.stop()
	})
	t.Run("another major in the image", func(t *testing.T) {
		version := c.config.Version
		c.change(func(c *agentapi.Config) { c.Version = "99" })
		c.start("db-1")
		status := a.await(short, "refusing", failed(reasonImage))
		assert.Contains(t, status.Problem.Message, "99")
		assert.False(t, status.DataKnown)
		code, _ := a.get("/startupz")
		assert.Equal(t, 200, code)
		c.change(func(c *agentapi.Config) { c.Version = version })
		a.awaitReady(agentapi.RolePrimary)
		a.stop()
	})
	t.Run("data of another major", func(t *testing.T) {
		other := filepath.Join(filepath.Dir(a.dataDir()), "14")
		require.NoError(t, os.Rename(a.dataDir(), other))
		c.start("db-1")
		a.await(short, "refusing", failed(reasonDataVersion))
		a.stop()
		require.NoError(t, os.Rename(other, a.dataDir()))
	})
	t.Run("lost data", func(t *testing.T) {
		aside := a.paths.Data + ".aside"
		require.NoError(t, os.Rename(a.dataDir(), aside))
		c.change(func(c *agentapi.Config) { c.Bootstrap, c.SystemIdentifier = "db-1", "" })
		c.start("db-1")
		a.await(short, "refusing", failed(reasonDataLost))
		a.stop()
		_, err := os.Stat(a.dataDir())
		require.ErrorIs(t, err, os.ErrNotExist, "no new system")
		require.NoError(t, os.Rename(aside, a.dataDir()))
	})
	t.Run("stale leftovers", func(t *testing.T) {
		require.NoError(t, os.MkdirAll(a.dataDir()+".seeding/base", 0o700))
		require.NoError(t, os.WriteFile(a.dataDir()+"/postmaster.pid", []byte("1\n"), 0o600))
		c.start("db-1")
		a.awaitReady(agentapi.RolePrimary)
		_, err := os.Stat(a.dataDir() + ".seeding")
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

// TestAgent_interruptedSeed kills agents while they make data; the next ones begin again.
func TestAgent_interruptedSeed(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	first := c.start("db-1")
	interrupt := func(a *testAgent) {
		require.Eventually(t, func() bool {
			_, err := os.Stat(a.dataDir() + ".seeding/global")
			return err == nil
		}, long, time.Millisecond)
		a.stop()
		_, err := os.Stat(a.dataDir())
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	interrupt(first)
	require.Equal(t, "db-1", c.lease.holder())
	require.Empty(t, c.lease.annotation(naming.AnnotationSystemIdentifier))
	c.start("db-1")
	first.awaitReady(agentapi.RolePrimary)

	second := c.start("db-2")
	interrupt(second)
	c.start("db-2")
	second.awaitReady(agentapi.RoleStandby)
}

// TestAgent_adopts makes a cluster again on volumes that were kept: the lease is new, and nobody may bootstrap.
func TestAgent_adopts(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t, 2)
	first, second := c.start("db-1"), c.start("db-2")
	system := first.awaitReady(agentapi.RolePrimary).SystemIdentifier
	second.awaitReady(agentapi.RoleStandby)
	_, err := first.app("app-secret", "require", "CREATE TABLE kept AS SELECT 42 AS n")
	require.NoError(t, err)
	second.stop()
	first.stop()

	c.lease.recreate()
	c.change(func(c *agentapi.Config) { c.Bootstrap, c.SystemIdentifier = "", system })
	c.start("db-2")
	second.await(short, "waiting for the other", func(s agentapi.Status) bool {
		_, body := second.get("/readyz")
		return !s.Ready && strings.Contains(body, "waiting for the position of db-1")
	})
	require.Empty(t, c.lease.holder())
	c.start("db-1")
	first.awaitReady(agentapi.RolePrimary)
	second.awaitReady(agentapi.RoleStandby)
	answer, err := second.app("app-secret", "require", "SELECT n FROM kept")
	require.NoError(t, err)
	require.Equal(t, "42", answer)
}
