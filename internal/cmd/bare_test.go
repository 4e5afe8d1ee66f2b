package cmd

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
}

// TestBareAPIServer: the operator starts, gets ready and works where there is nothing beside Kubernetes and our CRD: no
// ServiceMonitor, PodMonitor, VolumeSnapshot, Certificate; and no OperatorCondition, though the environment names one.
func TestBareAPIServer(t *testing.T) {
	config := apiserver.Config(t)
	c := apiserver.Client(t)
	api, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	groups, err := api.ServerGroups()
	require.NoError(t, err)
	for _, group := range groups.Groups {
		ours := group.Name == v1.GroupVersion.Group
		kubernetes := !strings.Contains(group.Name, ".") || strings.HasSuffix(group.Name, ".k8s.io")
		require.True(t, ours || kubernetes && group.Name != "snapshot.storage.k8s.io", "the API server has %s: it is not bare", group.Name)
	}
	installRBAC(t, c)
	t.Setenv("TMPDIR", t.TempDir()) // no certificate of OLM there
	t.Setenv(envOperatorCondition, "pgsteward.v0.0.0")
	health := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: freePort(t)}).String()
	seen := startManager(t, config, managerFlags{healthAddress: health, webhookPort: freePort(t)})

	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+"/readyz", http.NoBody)
		require.NoError(collect, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(collect, err)
		defer response.Body.Close()
		assert.Equal(collect, http.StatusOK, response.StatusCode)
	}, patience, tick, "the operator is ready")
	cluster := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: apiserver.Namespace(t, c), Name: "prod-db"},
		Spec:       v1.PostgresClusterSpec{Version: "16"},
	}
	require.NoError(t, c.Create(t.Context(), cluster))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		key := types.NamespacedName{Namespace: cluster.Namespace, Name: "prod-db-1"}
		require.NoError(collect, c.Get(t.Context(), key, &appsv1.StatefulSet{}))
	}, patience, tick, "it works")
	seen.requireAllowed(t)
}
