package observe_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/testing/agent"
)

// patience bounds what a test waits for.
const patience = 20 * time.Second

var key = types.NamespacedName{Namespace: "demo", Name: "prod-db"}

func credentials(t *testing.T) credential.Set {
	t.Helper()
	set, _, err := credential.Complete(credential.Set{}, credential.Cluster{Name: key.Name, Namespace: key.Namespace}, time.Now(), rand.Reader)
	require.NoError(t, err)
	return set
}

// listener hears agents and counts the passes that they ask for.
type listener struct {
	*testing.T
	*observe.Agents
	changes chan types.NamespacedName
}

func listen(t *testing.T, port int) listener {
	t.Helper()
	l := listener{T: t, changes: make(chan types.NamespacedName, 100)}
	l.Agents = &observe.Agents{Changed: func(c types.NamespacedName) { l.changes <- c }, Log: testr.New(t), Port: port}
	t.Cleanup(func() { l.Forget(key) })
	return l
}

// changed waits for a change.
func (l listener) changed() {
	l.Helper()
	select {
	case cluster := <-l.changes:
		assert.Equal(l, key, cluster)
	case <-time.After(patience):
		require.Fail(l, "no pass was asked for")
	}
}

// quiet asserts that no pass was asked for.
func (l listener) quiet() {
	l.Helper()
	select {
	case <-l.changes:
		require.Fail(l, "a pass was asked for")
	default:
	}
}

func (l listener) report() agentapi.Status {
	l.Helper()
	status, known := l.status()
	require.True(l, known)
	return status
}

func (l listener) status() (agentapi.Status, bool) {
	report, _ := l.Report(key, "prod-db-1", "uid-1")
	return report.Get()
}

func target(address string) observe.Target {
	return observe.Target{Instance: "prod-db-1", PodUID: "uid-1", Address: address, ServerName: naming.InstanceHost("prod-db", "demo", "prod-db-1")}
}

func TestAgentsAreHeard(t *testing.T) {
	t.Parallel()
	set := credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, set)
	l := listen(t, a.Port)
	said := agentapi.Status{Instance: "prod-db-1", State: agentapi.StateRunning, Role: agentapi.RolePrimary, LSN: "0/1"}
	a.Say(said)

	_, known := l.status()
	assert.False(t, known)
	l.Follow(key, []observe.Target{target("127.0.0.1")}, set.CA)
	l.changed()
	assert.Equal(t, said, l.report())

	l.Follow(key, []observe.Target{target("127.0.0.1")}, set.CA)
	a.Heard(t, 1) // the same connection

	said.Role = agentapi.RoleStandby
	a.Say(said)
	l.changed()
	assert.Equal(t, agentapi.RoleStandby, l.report().Role)

	report, silence := l.Report(key, "prod-db-1", "uid-of-the-next-pod")
	_, known = report.Get()
	assert.False(t, known, "what an earlier Pod's agent said is not known of the next")
	assert.Zero(t, silence)

	l.Follow(key, nil, set.CA)
	a.Heard(t, 0)
	_, known = l.status()
	assert.False(t, known)
	l.quiet()
}

// TestPositionsAreNoNews: what changes all the time does not ask for passes, but is known to the next.
func TestPositionsAreNoNews(t *testing.T) {
	t.Parallel()
	set := credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, set)
	l := listen(t, a.Port)
	said := agentapi.Status{State: agentapi.StateRunning, Role: agentapi.RoleStandby, LSN: "0/1"}
	a.Say(said)
	l.Follow(key, []observe.Target{target("127.0.0.1")}, set.CA)
	l.changed()

	lag := int64(12)
	said.LSN, said.ReplayLSN, said.LagBytes = "0/2", "0/1", &lag
	a.Say(said)
	require.Eventually(t, func() bool { return l.report().LSN == "0/2" }, patience, time.Millisecond)
	l.quiet()

	said.LSN = "0/3"
	a.Say(said)
	require.Eventually(t, func() bool { return l.report().LSN == "0/3" }, patience, time.Millisecond)
	said.Ready = true
	a.Say(said)
	l.changed()
	l.quiet()
}

// TestBrokenStream: a connection that breaks is news, and so is that it stands again.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	set := credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, set)
	l := listen(t, a.Port)
	a.Say(agentapi.Status{State: agentapi.StateRunning})
	l.Follow(key, []observe.Target{target("127.0.0.1")}, set.CA)
	l.changed()

	a.FallSilent()
	l.changed()
	_, known := l.status()
	assert.False(t, known)
	_, first := l.Report(key, "prod-db-1", "uid-1")
	require.Eventually(t, func() bool { _, silence := l.Report(key, "prod-db-1", "uid-1"); return silence > first }, patience, time.Millisecond)
	l.quiet()

	a.Say(agentapi.Status{State: agentapi.StateStopping})
	l.changed()
	assert.Equal(t, agentapi.StateStopping, l.report().State)
	_, silence := l.Report(key, "prod-db-1", "uid-1")
	assert.Zero(t, silence)
}

// TestTargetsMove: a Pod made anew has another address and UID.
func TestTargetsMove(t *testing.T) {
	t.Parallel()
	set := credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, set)
	b := agent.Listen(t, "127.0.0.2", a.Port, set)
	a.Say(agentapi.Status{LSN: "a"})
	b.Say(agentapi.Status{LSN: "b"})
	l := listen(t, a.Port)
	l.Follow(key, []observe.Target{target("127.0.0.1")}, set.CA)
	l.changed()
	next := target("127.0.0.2")
	next.PodUID = "uid-2"
	l.Follow(key, []observe.Target{next}, set.CA)
	l.changed()
	a.Heard(t, 0)
	report, _ := l.Report(key, "prod-db-1", "uid-2")
	status, known := report.Get()
	require.True(t, known)
	assert.Equal(t, "b", status.LSN)
}

// TestStrangersAreNotHeard: who has no certificate of the cluster's authority for that instance is not believed.
func TestStrangersAreNotHeard(t *testing.T) {
	t.Parallel()
	ours, theirs := credentials(t), credentials(t)
	for name, test := range map[string]struct {
		server     credential.Set
		serverName string
		authority  credential.KeyPair
	}{
		"another authority's":             {theirs, target("").ServerName, ours.CA},
		"another cluster's name":          {ours, naming.InstanceHost("other", "demo", "other-1"), ours.CA},
		"an agent that does not trust us": {theirs, target("").ServerName, theirs.CA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := test.server
			if name == "an agent that does not trust us" {
				server = credential.Set{CA: ours.CA, Server: theirs.Server} // it trusts another authority
			}
			a := agent.Listen(t, "127.0.0.1", 0, server)
			a.Say(agentapi.Status{State: agentapi.StateRunning})
			l := listen(t, a.Port)
			stranger := target("127.0.0.1")
			stranger.ServerName = test.serverName
			l.Follow(key, []observe.Target{stranger}, test.authority)
			require.Eventually(t, func() bool { _, silence := l.Report(key, "prod-db-1", "uid-1"); return silence > time.Second }, patience, 10*time.Millisecond)
			_, known := l.status()
			assert.False(t, known)
			l.quiet()
		})
	}
}

// TestNoAuthority: without one nobody is heard, and nothing breaks.
func TestNoAuthority(t *testing.T) {
	t.Parallel()
	l := listen(t, 1)
	for _, authority := range []credential.KeyPair{{}, {Cert: []byte("garbage"), Key: []byte("garbage")}} {
		l.Follow(key, []observe.Target{target("127.0.0.1")}, authority)
		_, known := l.status()
		assert.False(t, known)
	}
	l.Forget(key)
	l.Forget(key)
}

// TestNewAuthority: when the authority is renewed all streams are opened again with a certificate of the new one.
func TestNewAuthority(t *testing.T) {
	t.Parallel()
	old, renewed := credentials(t), credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, old)
	b := agent.Listen(t, "127.0.0.2", a.Port, renewed)
	a.Say(agentapi.Status{LSN: "old"})
	b.Say(agentapi.Status{LSN: "renewed"})
	l := listen(t, a.Port)
	l.Follow(key, []observe.Target{target("127.0.0.1")}, old.CA)
	l.changed()
	l.Follow(key, []observe.Target{target("127.0.0.2")}, renewed.CA)
	l.changed()
	assert.Equal(t, "renewed", l.report().LSN)
	a.Heard(t, 0)
}
