//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

const (
	// operatorNamespace and operatorDeployment are those of config/default.
	operatorNamespace  = "pgsteward-system"
	operatorDeployment = "pgsteward-manager"
	// labelSuite marks what these tests make, so that the next run can remove it. Its value is the run's process id.
	labelSuite = "pgsteward-e2e"

	root = "../.."
)

// Bounds after which something is certainly wrong.
const (
	// boundRequest is for one command or request.
	boundRequest = 30 * time.Second
	// boundReady is for a new cluster, images pulled on busy machines included.
	boundReady = 4 * time.Minute
	// boundSettle is for something that the operator or an agent does without a Pod being started.
	boundSettle = time.Minute
	// boundGone is for a cluster or namespace to be deleted.
	boundGone = 3 * time.Minute
	// tick is how often a condition is looked at.
	tick = 500 * time.Millisecond
)

// The Kubernetes cluster under test; set once by TestMain.
var (
	kube       client.WithWatch
	kubeConfig *rest.Config
	kubectlBin string
	images     map[string]string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	if err := removeLeftovers(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: removing what an earlier run left behind:", err)
		return 1
	}
	return m.Run()
}

// connect sets the variables above.
func connect() error {
	if os.Getenv("KUBECONFIG") == "" {
		return errors.New("KUBECONFIG is not set: run make e2e, or export KUBECONFIG=$(make -s kubeconfig)")
	}
	var err error
	if kubectlBin, err = findKubectl(); err != nil {
		return err
	}
	if images, err = readImages(); err != nil {
		return err
	}
	if kubeConfig, err = config.GetConfig(); err != nil {
		return fmt.Errorf("reading %s: %w", os.Getenv("KUBECONFIG"), err)
	}
	kubeConfig.QPS, kubeConfig.Burst, kubeConfig.Timeout = 50, 100, boundRequest
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return err
	}
	if kube, err = client.NewWithWatch(kubeConfig, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("the cluster of %s: %w", os.Getenv("KUBECONFIG"), err)
	}
	return nil
}

// findKubectl is the one that the local cluster's build made, else the one on PATH.
func findKubectl() (string, error) {
	if ours, err := filepath.Abs(filepath.Join(root, "bin", "kubectl")); err == nil {
		if _, err := os.Stat(ours); err == nil {
			return ours, nil
		}
	}
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return "", errors.New("no kubectl: run make cluster, or install it")
	}
	return path, nil
}

// readImages reads what `make images` wrote.
func readImages() (map[string]string, error) {
	found, err := readEnvironment("images.env")
	if err != nil {
		return nil, fmt.Errorf("no images, run make images: %w", err)
	}
	return found, nil
}

// readEnvironment reads the lines NAME=VALUE of a file in bin/.
func readEnvironment(name string) (map[string]string, error) {
	file, err := os.Open(filepath.Join(root, "bin", name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	found := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			found[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return found, lines.Err()
}

// postgresImage is the operand image of that major.
func postgresImage(t *testing.T, major string) string {
	t.Helper()
	image := images["POSTGRES_"+major+"_IMAGE"]
	if image == "" {
		t.Fatalf("bin/images.env names no POSTGRES_%s_IMAGE: run make images", major)
	}
	return image
}

// removeLeftovers deletes the namespaces of earlier runs, makes nodes schedulable that a drain left, and waits until all is gone.
func removeLeftovers() error {
	ctx, cancel := context.WithTimeout(context.Background(), boundGone)
	defer cancel()
	if err := uncordonLeftovers(ctx); err != nil {
		return err
	}
	for told := false; ; {
		namespaces := &corev1.NamespaceList{}
		if err := kube.List(ctx, namespaces, client.HasLabels{labelSuite}); err != nil {
			return err
		}
		leftovers := slices.DeleteFunc(namespaces.Items, ofAnotherRun)
		if len(leftovers) == 0 {
			return nil
		}
		if !told {
			fmt.Fprintf(os.Stderr, "e2e: removing %d namespaces of an earlier run\n", len(leftovers))
			told = true
		}
		for _, namespace := range leftovers {
			if err := kube.Delete(ctx, &namespace); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("namespace %s is not gone after %s (does the operator run?)", leftovers[0].Name, boundGone)
		case <-time.After(tick):
		}
	}
}

// thisRun is the value of labelSuite.
func thisRun() string { return strconv.Itoa(os.Getpid()) }

// ofAnotherRun says whether the namespace belongs to a run on this machine that still goes on.
func ofAnotherRun(namespace corev1.Namespace) bool {
	command, err := os.ReadFile(filepath.Join("/proc", namespace.Labels[labelSuite], "comm"))
	return err == nil && strings.HasPrefix(string(command), "e2e.test") && namespace.Labels[labelSuite] != thisRun()
}

// uncordonLeftovers undoes what a drain test that was killed has left.
func uncordonLeftovers(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := kube.List(ctx, nodes, client.HasLabels{labelSuite}); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		if _, err := kubectl(ctx, "", "uncordon", node.Name); err != nil {
			return err
		}
		if _, err := kubectl(ctx, "", "label", "node", node.Name, labelSuite+"-"); err != nil {
			return err
		}
	}
	return nil
}

// readyNodes are the names of the nodes on which Pods can run.
func readyNodes(t *testing.T) []string {
	t.Helper()
	nodes := &corev1.NodeList{}
	if err := kube.List(t.Context(), nodes); err != nil {
		t.Fatalf("listing nodes: %v", err)
	}
	var names []string
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && !node.Spec.Unschedulable {
				names = append(names, node.Name)
			}
		}
	}
	return names
}

// key is an object's name for the client.
func key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// meta is the metadata of an object to be made.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
