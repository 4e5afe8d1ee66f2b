package cmd

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

const (
	operatorNamespace = "pgsteward-system"
	operatorAccount   = "pgsteward-manager"
	patience          = time.Minute
	tick              = 50 * time.Millisecond
)

func TestMain(m *testing.M) { apiserver.Main(m) }

// traffic notes what the operator asks of the API server, and what it was forbidden.
type traffic struct {
	mu        sync.Mutex
	requests  []string
	forbidden []string
}

// transport notes the requests that go through it.
type transport struct {
	http.RoundTripper
	seen *traffic
}

// RoundTrip implements http.RoundTripper.
func (p transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.RoundTripper.RoundTrip(request)
	line := request.Method + " " + request.URL.Path
	p.seen.mu.Lock()
	defer p.seen.mu.Unlock()
	if !strings.Contains(request.URL.Path, "/namespaces/"+operatorNamespace+"/leases") {
		p.seen.requests = append(p.seen.requests, line)
	}
	if err == nil && response.StatusCode == http.StatusForbidden {
		p.seen.forbidden = append(p.seen.forbidden, line)
	}
	return response, err
}

func (c *traffic) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

// since are the requests after the first n.
func (c *traffic) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.requests[n:]...)
}

// requireRest waits until the operator asks for nothing during a second.
func (c *traffic) requireRest(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		before := c.count()
		select {
		case <-t.Context().Done():
		case <-time.After(time.Second):
		}
		assert.Empty(collect, c.since(before))
	}, patience, tick, "nothing happens any more")
}

// requireAllowed fails the test if the operator asked for something that its roles do not allow.
func (c *traffic) requireAllowed(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, request := range c.forbidden {
		// a RoleBinding that has just been made is not known everywhere at once
		assert.Contains(t, request, "/secrets", "the operator asked for something that its role does not allow")
	}
}

// installRBAC applies the roles that `make deploy` applies, unless an earlier test has.
func installRBAC(t *testing.T, c client.Client) {
	t.Helper()
	create := func(object client.Object, what string) {
		t.Helper()
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), object)), what)
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}, "the operator's namespace")
	for _, pattern := range []string{"rbac/*role.yaml", "rbac/*role_binding.yaml", "certificates/role*.yaml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "config", filepath.FromSlash(pattern)))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, document := range strings.Split(string(text), "\n---\n") {
				object := &unstructured.Unstructured{}
				require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object), file)
				if kind := object.GetKind(); kind == "Role" || kind == "RoleBinding" {
					object.SetNamespace(operatorNamespace)
				}
				create(object, file)
			}
		}
	}
}

// startManager runs the operator as its ServiceAccount, with the rights that `make deploy` gives and no others, until the test ends.
func startManager(t *testing.T, config *rest.Config, flags managerFlags) *traffic {
	t.Helper()
	seen := &traffic{}
	config.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", operatorNamespace, operatorAccount),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace, "system:authenticated"},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, seen} })
	t.Setenv(envNamespace, operatorNamespace)
	flags.leaderElect, flags.metricsAddress = true, "0"
	options, err := managerOptions(flags)
	require.NoError(t, err)
	options.Logger = log.Log
	options.Controller.SkipNameValidation = new(true) // the tests run one operator after the other
	mgr, err := newManager(config, options, newWebhooks(flags.webhookPort), build.Settings{
		OperatorImage: "registry.example/pgsteward:1", PostgresImages: map[string]string{"16": "registry.example/postgres:16"},
		ServiceAccount: operatorAccount, Namespace: operatorNamespace,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	return seen
}

// TestManager runs the operator as it is wired together, with watches, caches and rights, against a real API server.
func TestManager(t *testing.T) {
	config := apiserver.Config(t)
	c := apiserver.Client(t)
	installRBAC(t, c)
	t.Setenv(envOperatorCondition, "") // as where there is no OLM
	seen := startManager(t, config, managerFlags{healthAddress: "0"})
	namespace := apiserver.Namespace(t, c)
	key := types.NamespacedName{Namespace: namespace, Name: "prod-db"}
	eventually := func(what string, condition func(collect *assert.CollectT)) {
		t.Helper()
		require.EventuallyWithT(t, condition, patience, tick, what)
	}
	get := func(collect *assert.CollectT, object client.Object, name string) {
		require.NoError(collect, c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object))
	}

	replicas := int32(2)
	cluster := &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prod-db"},
		Spec:       v1.PostgresClusterSpec{Replicas: &replicas, Version: "16"},
	}
	require.NoError(t, c.Create(t.Context(), cluster))
	set, secret := &appsv1.StatefulSet{}, &corev1.Secret{}
	eventually("the instances exist", func(collect *assert.CollectT) {
		get(collect, set, "prod-db-1")
		get(collect, set, "prod-db-2")
		get(collect, secret, "prod-db-app")
		require.NoError(collect, c.Get(t.Context(), key, cluster))
		assert.Equal(collect, int32(2), cluster.Status.Replicas)
	})

	t.Run("a deleted child comes back", func(t *testing.T) {
		old := set.UID
		require.NoError(t, c.Delete(t.Context(), set))
		eventually("the StatefulSet is back", func(collect *assert.CollectT) {
			get(collect, set, "prod-db-2")
			assert.NotEqual(collect, old, set.UID)
		})
		old = secret.UID
		require.NoError(t, c.Delete(t.Context(), secret))
		eventually("the Secret is back", func(collect *assert.CollectT) {
			get(collect, secret, "prod-db-app")
			assert.NotEqual(collect, old, secret.UID)
		})
	})
	t.Run("an edited child is mended", func(t *testing.T) {
		service := &corev1.Service{}
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "prod-db-rw"}, service))
		service.Spec.Selector[naming.LabelRole] = "standby"
		require.NoError(t, c.Update(t.Context(), service))
		eventually("the Service is mended", func(collect *assert.CollectT) {
			get(collect, service, "prod-db-rw")
			assert.Equal(collect, "primary", service.Spec.Selector[naming.LabelRole])
		})
	})
	t.Run("a settled cluster costs nothing", func(t *testing.T) { seen.requireRest(t) })
	t.Run("a change of the spec arrives", func(t *testing.T) {
		require.NoError(t, c.Get(t.Context(), key, cluster))
		before := cluster.DeepCopy()
		cluster.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "16MB"}
		require.NoError(t, c.Patch(t.Context(), cluster, client.MergeFrom(before)))
		eventually("it is in the configuration", func(collect *assert.CollectT) {
			m := &corev1.ConfigMap{}
			get(collect, m, "prod-db-config")
			assert.Contains(collect, m.Data[naming.FileConfig], `"work_mem": "16MB"`)
		})
	})
	t.Run("deleted, it leaves its volumes", func(t *testing.T) {
		require.NoError(t, c.Delete(t.Context(), cluster))
		eventually("it is gone", func(collect *assert.CollectT) {
			require.Error(collect, c.Get(t.Context(), key, cluster))
		})
		claims, secrets := &corev1.PersistentVolumeClaimList{}, &corev1.SecretList{}
		require.NoError(t, c.List(t.Context(), claims, client.InNamespace(namespace)))
		require.NoError(t, c.List(t.Context(), secrets, client.InNamespace(namespace)))
		assert.Len(t, claims.Items, 2)
		assert.Empty(t, secrets.Items)
	})
	t.Run("metrics tell of backups", func(t *testing.T) {
		saved := &v1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "saved"},
			Spec: v1.PostgresClusterSpec{Replicas: new(int32(1)), Version: "16", Backup: &v1.BackupSpec{
				Schedule: new("@daily"), Retention: "30d", Verify: &v1.VerifySpec{Schedule: "@weekly"},
			}},
		}
		require.NoError(t, c.Create(t.Context(), saved))
		eventually("the API server takes the Jobs that back it up and verify that", func(collect *assert.CollectT) {
			for _, name := range []string{naming.BackupJob(saved.Name), naming.VerifyJob(saved.Name)} {
				require.NoError(collect, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &batchv1.CronJob{}))
			}
		})
		eventually("Prometheus hears that there is none yet", func(collect *assert.CollectT) {
			families, err := ctrlmetrics.Registry.Gather()
			require.NoError(collect, err)
			var told []string
			for _, family := range families {
				if name, ok := strings.CutPrefix(family.GetName(), "pgsteward_cluster_"); ok {
					told = append(told, name)
				}
			}
			assert.Contains(collect, told, "backup_healthy")
			assert.Contains(collect, told, "postgresbackups")
			assert.NotContains(collect, told, "last_backup_timestamp_seconds")
		})
	})
	seen.requireAllowed(t)
}
