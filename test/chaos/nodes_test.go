//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clientNode is where the client runs, and nothing else; it is never disturbed. Instances run on the others.
const (
	clientNode    = 4
	clientTaint   = "pgsteward-chaos"
	operatorCount = 2
)

var instanceNodes = []int{1, 2, 3}

// node does something to a node, see hack/cluster/node.sh.
func node(ctx context.Context, n int, what string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	_, err := command(ctx, filepath.Join(root, "hack", "cluster", "node.sh"), append([]string{what, strconv.Itoa(n)}, args...)...)
	return err
}

// nodeNumber is N of nodeN.
func nodeNumber(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "node"))
	return n
}

// otherNodes are those of the instances, without n.
func otherNodes(n int) []string {
	var names []string
	for _, other := range instanceNodes {
		if other != n {
			names = append(names, strconv.Itoa(other))
		}
	}
	return names
}

// mendAll undoes all that a fault can do to the Kubernetes cluster.
func mendAll(ctx context.Context) error {
	errs := []error{signalAPIServer(syscall.SIGCONT)}
	for _, n := range instanceNodes {
		errs = append(errs, node(ctx, n, "up"))
	}
	for _, n := range instanceNodes {
		_, err := kubectl(ctx, "uncordon", fmt.Sprintf("node%d", n))
		errs = append(errs, err)
	}
	return errors.Join(append(errs, scaleOperator(ctx, operatorCount))...)
}

// startClientNode adds the client's node. The end of the run removes it, unless it was there.
func startClientNode(ctx context.Context) error {
	existed := kube.Get(ctx, client.ObjectKey{Name: fmt.Sprintf("node%d", clientNode)}, &corev1.Node{}) == nil
	if err := node(ctx, clientNode, "up"); err != nil {
		return err
	}
	removeClientNode = !existed
	_, err := kubectl(ctx, "taint", "--overwrite", "node", fmt.Sprintf("node%d", clientNode), clientTaint+"=client:NoSchedule")
	return err
}

var removeClientNode bool

func endClientNode(ctx context.Context) error {
	if !removeClientNode {
		return nil
	}
	return node(ctx, clientNode, "rm")
}

// signalAPIServer signals the local cluster's API server.
func signalAPIServer(sig syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join(clusterDir, "run", "kube-apiserver.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// scaleOperator sets the number of the operator's Pods and waits until they are so many.
func scaleOperator(ctx context.Context, replicas int32) error {
	_, err := kubectl(ctx, "-n", operatorNamespace, "scale", "deployment", operatorDeployment, fmt.Sprintf("--replicas=%d", replicas))
	if err != nil {
		return err
	}
	if replicas == 0 {
		return until(ctx, time.Minute, noOperator)
	}
	return until(ctx, 2*time.Minute, func(ctx context.Context) error {
		deployment := &appsv1.Deployment{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: operatorDeployment}, deployment); err != nil {
			return err
		}
		if deployment.Status.ReadyReplicas < replicas {
			return fmt.Errorf("the operator has %d ready Pods of %d", deployment.Status.ReadyReplicas, replicas)
		}
		return nil
	})
}

// noOperator says which Pod of the operator is there: one that ends works until then.
func noOperator(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := kube.List(ctx, pods, client.InNamespace(operatorNamespace)); err != nil {
		return err
	}
	if len(pods.Items) > 0 {
		return fmt.Errorf("%s is not gone", pods.Items[0].Name)
	}
	return nil
}

// process is one of a Pod's.
type process struct {
	pid, parent, inside int
	name                string
	args                []string
}

// processes are those of the Pod, as this machine sees them.
func processes(pod corev1.Pod) ([]process, error) {
	folders, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, file := range folders {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), "pod"+string(pod.UID)) {
			continue // or it has ended meanwhile
		}
		if p, ok := readProcess(filepath.Dir(file)); ok && p.name != "pause" {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no process of Pod %s", pod.Name)
	}
	return found, nil
}

func readProcess(folder string) (process, bool) {
	var p process
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(status)) {
		field := strings.Fields(line)
		if len(field) < 2 {
			continue
		}
		last := field[len(field)-1]
		switch field[0] {
		case "Name:":
			p.name = last
		case "Pid:":
			p.pid, _ = strconv.Atoi(last)
		case "PPid:":
			p.parent, _ = strconv.Atoi(last)
		case "NSpid:":
			p.inside, _ = strconv.Atoi(last)
		}
	}
	args, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
	p.args = strings.Split(string(args), "\x00")
	return p, true
}

// The processes that faults are about.
func isAgent(_ []process, p process) bool { return p.inside == 1 }
func isPostmaster(all []process, p process) bool {
	return p.name == "postgres" && !slices.ContainsFunc(all, func(q process) bool { return q.pid == p.parent && q.name == "postgres" })
}
func isAny([]process, process) bool { return true }

// signalPod signals the Pod's processes of that kind.
func signalPod(pod corev1.Pod, sig syscall.Signal, kinds ...func([]process, process) bool) error {
	all, err := processes(pod)
	if err != nil {
		return err
	}
	hit := false
	for _, p := range all {
		if slices.ContainsFunc(kinds, func(is func([]process, process) bool) bool { return is(all, p) }) {
			hit = true
			if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	if !hit {
		return fmt.Errorf("Pod %s has no such process to signal", pod.Name)
	}
	return nil
}
