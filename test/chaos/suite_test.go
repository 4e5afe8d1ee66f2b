//go:build e2e

package chaos

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

const (
	root = "../.."

	operatorNamespace  = "pgsteward-system"
	operatorDeployment = "pgsteward-manager"
	operatorContainer  = "manager"

	// boundRequest is for one request or command.
	boundRequest = 10 * time.Second
	// tick is how often a condition is looked at.
	tick = 250 * time.Millisecond
)

// The Kubernetes cluster that is broken; set once by TestMain.
var (
	kube       client.WithWatch
	kubectlBin string
	images     map[string]string
	// clusterDir is the local cluster's folder (hack/cluster/env.sh: STATE).
	clusterDir string
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	err := errors.Join(mendAll(ctx), startClientNode(ctx), removeNamespaces(ctx))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: undoing what an earlier run has left:", err)
		os.Exit(1)
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		fmt.Fprintln(os.Stderr, "chaos: interrupted; undoing what was done to the cluster")
		end()
		os.Exit(130)
	}()
	code := m.Run()
	end()
	os.Exit(code)
}

// end leaves the Kubernetes cluster as it was.
func end() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	errs := []error{mendAll(ctx)}
	if os.Getenv("CHAOS_KEEP") == "" {
		errs = append(errs, removeNamespaces(ctx))
	}
	if err := errors.Join(append(errs, endClientNode(ctx))...); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: the cluster is not as it was:", err)
	}
}

// connect sets the variables above.
func connect() error {
	kubeconfig := os.Getenv("KUBECONFIG")
	clusterDir = filepath.Dir(kubeconfig)
	if _, err := os.Stat(filepath.Join(clusterDir, "run", "kube-apiserver.pid")); err != nil {
		return fmt.Errorf("KUBECONFIG=%q is not of the local cluster, whose nodes can be killed: make cluster, or unset it", kubeconfig)
	}
	if os.Getuid() != 0 {
		return errors.New("root is needed, to signal processes in Pods and to kill nodes")
	}
	var err error
	if kubectlBin, err = filepath.Abs(filepath.Join(root, "bin", "kubectl")); err != nil {
		return err
	}
	if images, err = readImages(); err != nil {
		return err
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst, cfg.Timeout = 50, 100, boundRequest
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return err
	}
	kube, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	return err
}

// readImages reads what `make images` and hack/bench/image.sh wrote.
func readImages() (map[string]string, error) {
	file, err := os.Open(filepath.Join(root, "bin", "images.env"))
	if err != nil {
		return nil, fmt.Errorf("no images, run make images: %w", err)
	}
	defer file.Close()
	found := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			found[name] = value
		}
	}
	if found["CHAOS_IMAGE"] == "" {
		return nil, errors.New("bin/images.env has no CHAOS_IMAGE: run hack/bench/image.sh")
	}
	return found, lines.Err()
}

// command runs a program, bounded, and returns what it prints.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "CL="+clusterDir)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(problems.String())
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, said[max(0, len(said)-500):])
	}
	return strings.TrimSpace(out.String()), nil
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, kubectlBin, append([]string{"--request-timeout=10s"}, args...)...)
}

// setting is a number from the environment, such as ROUNDS.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, value)
	}
	return n
}

// until asks every tick until the answer is nil; it returns the last answer when the bound has passed.
func until(ctx context.Context, bound time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var missing error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if missing == nil || ctx.Err() == nil { // else it is but the bound that was in the way
			missing = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", bound, missing)
		case <-ticker.C:
		}
	}
}

// pass lets time pass, while something shall go on undisturbed.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
