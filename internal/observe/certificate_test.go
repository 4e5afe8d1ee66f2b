package observe

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/testing/agent"
)

// TestCertificateOfLongStreams: a stream that lives longer than our certificate shows the present one when it connects again. With
// that of its beginning the agent would refuse it for ever.
func TestCertificateOfLongStreams(t *testing.T) {
	t.Parallel()
	cluster := types.NamespacedName{Namespace: "demo", Name: "prod-db"}
	long := time.Now().Add(-200 * 24 * time.Hour)
	set, _, err := credential.Complete(credential.Set{}, credential.Cluster{Name: "prod-db", Namespace: "demo"}, time.Now(), rand.Reader)
	require.NoError(t, err)
	peer := agent.Listen(t, "127.0.0.1", 0, set)
	peer.Say(agentapi.Status{LSN: "1"})
	changed := make(chan struct{}, 100)
	a := &Agents{Changed: func(types.NamespacedName) { changed <- struct{}{} }, Log: logr.Discard(), Port: peer.Port}
	t.Cleanup(func() { a.Forget(cluster) })
	target := Target{Instance: "prod-db-1", PodUID: "1", Address: "127.0.0.1", ServerName: "prod-db-1-0.prod-db-instances.demo.svc"}
	heard := func() bool {
		report, _ := a.Report(cluster, "prod-db-1", "1")
		_, known := report.Get()
		return known
	}
	a.Follow(cluster, []Target{target}, set.CA)
	require.Eventually(t, heard, 20*time.Second, 10*time.Millisecond)

	// the certificate has expired meanwhile, and a pass has made another
	a.mu.Lock()
	a.clusters[cluster].identityMade = long
	first := a.clusters[cluster].identity
	a.mu.Unlock()
	a.Follow(cluster, []Target{target}, set.CA)
	first.Certificates[0].Certificate = nil // what the stream began with is of no use any more

	for len(changed) > 0 {
		<-changed
	}
	peer.Break()
	select {
	case <-changed: // lost
	case <-time.After(20 * time.Second):
		require.Fail(t, "nobody noticed that the connection broke")
	}
	assert.Eventually(t, heard, 20*time.Second, 10*time.Millisecond, "the stream must come back with the present certificate")
}
