//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// resting is for how long a settled cluster is left to itself, and quiet for how long passes may write nothing.
const (
	resting = 30 * time.Second
	quiet   = time.Minute
)

// TestOperator is what a cluster sees of its operator: it rests, looks in vain, is replaced, and is away for a while. It runs alone: it
// counts what the operator does for everybody, and then nobody has one.
func TestOperator(t *testing.T) {
	namespace := newNamespace(t)
	startClient(t, namespace)
	began := time.Now()
	c := create(t, newCluster(namespace, "db", "17", 3))
	eventually(t, boundReady, "three instances are ready", func(collect *assert.CollectT) { requireReady(collect, c.get(collect)) })
	t.Logf("MEASURED: a three-instance cluster was Ready %.1f s after its creation", time.Since(began).Seconds())
	c.waitReady(t)
	t.Run("at rest", func(t *testing.T) { atRest(t, c) })
	c.waitServed(t, "before")
	t.Run("second reconcile writes nothing", func(t *testing.T) { secondReconcile(t, c) })
	t.Run("restarted", func(t *testing.T) { operatorRestarted(t, c) })
	t.Run("absent", func(t *testing.T) { operatorAbsent(t, c) })
	for pod, bytes := range operatorMetric(t, "process_resident_memory_bytes") {
		t.Logf("MEASURED: operator Pod %s has %.0f MiB resident", pod, bytes/(1<<20))
	}
}

// atRest: a settled cluster causes no pass and no write.
func atRest(t *testing.T, c cluster) {
	c.settled(t)
	passes := total(operatorMetric(t, "controller_runtime_reconcile_total"))
	version := c.get(t).ResourceVersion
	never(t, resting, func() {})
	assert.InDelta(t, passes, total(operatorMetric(t, "controller_runtime_reconcile_total")), 0, "passes at rest")
	assert.Equal(t, version, c.get(t).ResourceVersion)
	t.Logf("MEASURED: at rest, %s: no pass and no write for a cluster of 3 instances", resting)
}

// secondReconcile: passes over a settled cluster write nothing. Passes are caused by an annotation on the ServiceAccount, which is
// no concern of the operator's.
func secondReconcile(t *testing.T, c cluster) {
	account := naming.ServiceAccount(c.name)
	before := c.settled(t)
	status := withoutPositions(c.get(t))
	passes := total(operatorMetric(t, "controller_runtime_reconcile_total"))
	touches := 0
	for end := time.Now().Add(quiet); time.Now().Before(end); time.Sleep(5 * time.Second) {
		touches++
		mustKubectl(t, "-n", c.namespace, "annotate", "--overwrite", "serviceaccount", account, "e2e/touched="+strconv.Itoa(touches))
	}
	more := total(operatorMetric(t, "controller_runtime_reconcile_total")) - passes
	require.GreaterOrEqual(t, int(more), touches, "passes of the operator for %d touches", touches)
	after := c.versions(t)
	delete(before, "ServiceAccount/"+account)
	delete(after, "ServiceAccount/"+account)
	require.Equal(t, before, after, "resource versions of the children after %.0f passes", more)
	require.Equal(t, status, withoutPositions(c.get(t)))
	t.Logf("%.0f passes in %s wrote nothing", more, quiet)
}

// versions are the resource versions of the children, but for the Lease, which is renewed all the time.
func (c cluster) versions(t require.TestingT) map[string]string {
	versions := map[string]string{}
	for name, child := range c.children(t) {
		if child.Kind != "Lease" {
			versions[name] = child.ResourceVersion
		}
	}
	return versions
}

// settled waits until a new cluster's last touches are done: nothing has changed for five seconds.
func (c cluster) settled(t *testing.T) map[string]string {
	t.Helper()
	versions, since := c.versions(t), time.Now()
	eventually(t, boundSettle, c.name+" has settled", func(collect *assert.CollectT) {
		if now := c.versions(collect); !assert.ObjectsAreEqual(versions, now) {
			versions, since = now, time.Now()
		}
		require.Greater(collect, time.Since(since), 5*time.Second)
	})
	return versions
}

// withoutPositions is the PostgresCluster without what moves by itself.
func withoutPositions(c *v1.PostgresCluster) *v1.PostgresCluster {
	c.ResourceVersion = ""
	c.ManagedFields = nil
	for i := range c.Status.Instances {
		c.Status.Instances[i].LSN, c.Status.Instances[i].LagBytes = "", nil
	}
	return c
}

// operatorRestarted: while the operator is replaced, and after, no Pod restarts and the cluster stays Ready; the new operator works.
func operatorRestarted(t *testing.T, c cluster) {
	const started = "SELECT pg_postmaster_start_time()"
	before := c.pods(t)
	server := map[string]string{}
	for name := range before {
		server[name] = c.superuser(t, name, started)
	}
	mustKubectl(t, "-n", operatorNamespace, "rollout", "restart", "deployment", operatorDeployment)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), boundReady)
		defer cancel()
		_, err := kubectl(ctx, "", "-n", operatorNamespace, "rollout", "status", "deployment", operatorDeployment)
		done <- err
	}()
	for running := true; running; time.Sleep(tick) {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
		}
		requireReady(t, c.get(t))
	}
	require.NoError(t, kube.Delete(t.Context(), &corev1.Service{ObjectMeta: meta(c.namespace, naming.ServiceRO(c.name))}))
	eventually(t, 2*boundSettle, "the new operator works: a deleted Service comes back", func(collect *assert.CollectT) {
		require.NoError(collect, kube.Get(context.Background(), key(c.namespace, naming.ServiceRO(c.name)), &corev1.Service{}))
	})
	never(t, 10*time.Second, func() { requireReady(t, c.get(t)) })
	for name, pod := range c.pods(t) {
		require.Equal(t, before[name].UID, pod.UID, "%s is another Pod", name)
		require.Equal(t, before[name].Status.ContainerStatuses[0].RestartCount, pod.Status.ContainerStatuses[0].RestartCount, name)
		require.Equal(t, server[name], c.superuser(t, name, started), "PostgreSQL of %s was restarted", name)
	}
	c.waitServed(t, "after-the-operator")
}

// operatorMetric is the sum of a metric's series for each of the operator's Pods.
func operatorMetric(t *testing.T, metric string) map[string]float64 {
	t.Helper()
	pods := &corev1.PodList{}
	require.NoError(t, kube.List(t.Context(), pods, client.InNamespace(operatorNamespace), client.MatchingLabels{naming.LabelName: "pgsteward"}))
	require.NotEmpty(t, pods.Items, "the operator has no Pods")
	values := map[string]float64{}
	for _, pod := range pods.Items {
		text, err := kubectl(t.Context(), "", "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/metrics", operatorNamespace, pod.Name))
		if err != nil {
			continue // on its way out
		}
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Scan() {
			name, value, ok := strings.Cut(lines.Text(), " ")
			if ok && (name == metric || strings.HasPrefix(name, metric+"{")) {
				number, err := strconv.ParseFloat(value, 64)
				require.NoError(t, err)
				values[pod.Name] += number
			}
		}
	}
	return values
}

func total(values map[string]float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum
}
