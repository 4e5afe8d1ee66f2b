//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// clientPod is the Pod from which tests connect, as an application would.
const clientPod = "client"

// newNamespace makes a namespace in which only restricted Pods may run. It is removed when the test ends; if the test failed, what
// is in it is printed before.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-" + strings.ToLower(strings.Trim(strings.TrimPrefix(strings.SplitN(t.Name(), "/", 2)[0], "Test"), "_")) + "-",
		Labels: map[string]string{
			labelSuite:                           thisRun(),
			"pod-security.kubernetes.io/enforce": "restricted",
			"pod-security.kubernetes.io/warn":    "restricted",
		},
	}}
	require.NoError(t, kube.Create(t.Context(), namespace))
	t.Cleanup(func() { endNamespace(t, namespace.Name) })
	return namespace.Name
}

// endNamespace prints and removes a test's namespace. One that does not go is a failure: something holds it.
func endNamespace(t *testing.T, namespace string) {
	t.Helper()
	if t.Failed() {
		dump(t, namespace)
		if os.Getenv("E2E_KEEP") != "" {
			t.Logf("kept: namespace %s", namespace)
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), boundGone)
	defer cancel()
	err := kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for err == nil && ctx.Err() == nil {
		time.Sleep(tick)
		err = kube.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	}
	if !apierrors.IsNotFound(err) {
		dump(t, namespace)
		t.Errorf("namespace %s is not gone after %s: %v", namespace, boundGone, err)
	}
}

// startClient starts a Pod with psql and waits for it.
func startClient(t *testing.T, namespace string) {
	t.Helper()
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")}
	pod := &corev1.Pod{
		ObjectMeta: meta(namespace, clientPod),
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			AutomountServiceAccountToken:  new(bool),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: clientPod, Image: postgresImage(t, "17"), Command: []string{"sleep", "infinity"},
				Env:       []corev1.EnvVar{{Name: "PGCONNECT_TIMEOUT", Value: "5"}},
				Resources: corev1.ResourceRequirements{Requests: small},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(bool),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	require.NoError(t, kube.Create(t.Context(), pod))
	eventually(t, 2*time.Minute, "the client's Pod runs", func(c *assert.CollectT) {
		require.NoError(c, kube.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		assert.Equal(c, corev1.PodRunning, pod.Status.Phase)
	})
}

// eventually waits until the check has no complaints, and logs how long that took.
func eventually(t *testing.T, bound time.Duration, what string, check func(c *assert.CollectT)) {
	t.Helper()
	started := time.Now()
	if !assert.EventuallyWithT(t, check, bound, tick, "not within %s: %s", bound, what) {
		t.FailNow()
	}
	t.Logf("%s (%.1f s)", what, time.Since(started).Seconds())
}

// dump prints what a person would look at first, and writes more of it to a file under bin/.
func dump(t *testing.T, namespace string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var brief, full strings.Builder
	section := func(title string, args ...string) {
		out, err := kubectl(ctx, "", args...)
		if err != nil {
			out += err.Error() + "\n"
		}
		full.WriteString("--- " + title + "\n" + out)
		brief.WriteString("--- " + title + "\n" + lastLines(out, dumpedLines))
	}
	section("clusters", "-n", namespace, "get", "pgc", "-o", "yaml")
	section("objects", "-n", namespace, "get", "pod,statefulset,pvc,service,pdb,lease", "-o", "wide", "--show-labels")
	section("events", "-n", namespace, "get", "events", "--sort-by=.lastTimestamp")
	pods := &corev1.PodList{}
	if err := kube.List(ctx, pods, client.InNamespace(namespace)); err == nil {
		for _, pod := range pods.Items {
			section("log of "+pod.Name, "-n", namespace, "logs", pod.Name, "--all-containers", "--tail=300")
			section("log of "+pod.Name+" before it restarted", "-n", namespace, "logs", pod.Name, "--all-containers", "--previous", "--tail=100")
			section("pod "+pod.Name, "-n", namespace, "describe", "pod", pod.Name)
		}
	}
	section("the operator", "-n", operatorNamespace, "get", "pods", "-o", "wide")
	section("log of the operator", "-n", operatorNamespace, "logs", "deployment/"+operatorDeployment, "--all-pods", "--prefix", "--tail=300")
	t.Logf("the state of namespace %s:\n%s", namespace, brief.String())
	dir := filepath.Join(root, "bin", "e2e-failures")
	if os.MkdirAll(dir, 0o755) == nil {
		_ = os.WriteFile(filepath.Join(dir, namespace+".txt"), []byte(full.String()), 0o644)
	}
}

// dumpedLines is how much of each section is printed.
const dumpedLines = 40

// lastLines are the last n lines of the text.
func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// newCluster is a PostgresCluster as a test wants it.
func newCluster(namespace, name, version string, replicas int32) *v1.PostgresCluster {
	return &v1.PostgresCluster{
		ObjectMeta: meta(namespace, name),
		Spec:       v1.PostgresClusterSpec{Version: version, Replicas: &replicas},
	}
}
