//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// boundScript is for a script that deploys or removes the operator. It may have to build one that was released long ago.
const boundScript = 5 * time.Minute

// TestKustomizeUpgrade: who installs without the Operator Lifecycle Manager, by kubectl apply -k, goes from the last release to this
// tree while a cluster is written to: it is not restarted, and obeys the new operator. It runs alone, since the operator is everybody's.
func TestKustomizeUpgrade(t *testing.T) {
	runScript(t, "hack/deploy/undeploy.sh")
	t.Cleanup(func() { runScript(t, "hack/deploy/deploy.sh") }) // what all other tests need; after the test's own, it changes nothing
	runScript(t, "hack/deploy/release.sh")
	old := operatorImage(t)

	namespace := newNamespace(t)
	startClient(t, namespace)
	c := create(t, newCluster(namespace, "db", "17", 2))
	c.waitReady(t)
	c.waitServed(t, "before")
	before, started := c.podUIDs(t), c.postmasters(t)
	w := startWriter(t, c)
	w.waitWritten(t, 20)

	runScript(t, "hack/deploy/deploy.sh", "CLIENT_SIDE=1")
	require.NotEqual(t, old, operatorImage(t), "it is the same operator")
	w.waitWritten(t, 20)
	c.patch(t, func(spec *v1.PostgresClusterSpec) {
		spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "5MB"}
	})
	eventually(t, boundSettle, "the new operator is obeyed by the old agents", func(collect *assert.CollectT) {
		for pod := range c.pods(collect) {
			require.Equal(collect, "5MB", c.superuser(collect, pod, "SHOW work_mem"))
		}
	})
	c.waitSound(t)
	require.Equal(t, "db", strings.TrimSpace(mustKubectl(t, "-n", namespace, "get", "postgresclusters.v1alpha1.pgsteward.io", "-o", "jsonpath={.items[*].metadata.name}")))
	w.waitWritten(t, 20)
	w.stop(t)

	require.Equal(t, before, c.podUIDs(t), "Pods were replaced")
	require.Equal(t, started, c.postmasters(t), "PostgreSQL was restarted")
	require.Empty(t, w.requireKept(t), "writes were refused")
}

// runScript runs a script of this tree, as make does, with these variables set.
func runScript(t *testing.T, path string, variables ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), boundScript)
	defer cancel()
	begun := time.Now()
	command := exec.CommandContext(ctx, filepath.Join(root, path))
	command.Env = append(append(command.Environ(), "REGISTRY="+registry()), variables...)
	command.WaitDelay = boundRequest
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	require.NoError(t, command.Run(), "%s: %s", path, &out)
	t.Logf("%s (%.1f s)", path, time.Since(begun).Seconds())
}

// registry is the one that make images pushed to.
func registry() string {
	name := images["OPERATOR_IMAGE"]
	return name[:max(0, strings.LastIndex(name, "/"))]
}

// operatorImage is the image that the operator's Deployment has.
func operatorImage(t *testing.T) string {
	t.Helper()
	deployment := &appsv1.Deployment{}
	require.NoError(t, kube.Get(t.Context(), key(operatorNamespace, operatorDeployment), deployment))
	return deployment.Spec.Template.Spec.Containers[0].Image
}

// podUIDs are the UIDs of the cluster's Pods.
func (c cluster) podUIDs(t require.TestingT) map[string]types.UID {
	found := map[string]types.UID{}
	for name, pod := range c.pods(t) {
		found[name] = pod.UID
	}
	return found
}

// postmasters says when PostgreSQL was started in each of the cluster's Pods.
func (c cluster) postmasters(t require.TestingT) map[string]string {
	started := map[string]string{}
	for pod := range c.pods(t) {
		started[pod] = c.superuser(t, pod, "SELECT pg_postmaster_start_time()")
	}
	return started
}
