//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// fault is something that happens to a healthy cluster.
type fault struct {
	name string
	// do lets it happen, and returns what undoes it, if anything.
	do func(ctx context.Context, s scene, random *rand.Rand) (undo func(context.Context) error, err error)
	// hold is how long it lasts, until it is undone.
	hold time.Duration
	// bound is how long there may be no row through the Service; with stalls, how long after it was undone.
	bound  time.Duration
	stalls func(kind) bool
}

// The bounds are those after which something is wrong, on a busy machine; `make bench-gaps` measures what is usual.
const (
	boundNone     = 5 * time.Second  // nothing happened to the primary
	boundQuick    = 10 * time.Second // handed over, or restarted in place
	boundFailover = 30 * time.Second // by the Lease's end
	boundReturn   = 60 * time.Second // after something without which nobody can be primary
	boundBeside   = 90 * time.Second // with BESIDE=1: beside a run that breaks nodes, whose faults are met here too
)

func never(kind) bool      { return false }
func always(kind) bool     { return true }
func withSync(k kind) bool { return k.mode == "sync" }

// faults are all that there are, in the order in which TestEach does them.
var faults = []fault{
	{name: "postmaster-killed", bound: boundQuick, do: onPrimary(kill(isPostmaster))},
	{name: "standby-postmaster-killed", bound: boundNone, do: onStandby(kill(isPostmaster))},
	{name: "agent-killed", bound: boundFailover, do: onPrimary(kill(isAgent))},
	{name: "agent-and-postmaster-killed", bound: boundFailover, do: onPrimary(kill(isPostmaster, isAgent))},
	{name: "standby-agent-killed", bound: boundNone, do: onStandby(kill(isAgent))},
	{name: "agent-stopped-5s", hold: 5 * time.Second, bound: boundFailover, do: onPrimary(stop(isAgent))},
	{name: "agent-stopped-15s", hold: 15 * time.Second, bound: boundFailover, do: onPrimary(stop(isAgent))},
	{name: "agent-stopped-60s", hold: 60 * time.Second, bound: boundFailover, do: onPrimary(stop(isAgent))},
	{name: "standby-agent-stopped-15s", hold: 15 * time.Second, bound: boundNone, do: onStandby(stop(isAgent))},
	{name: "pod-frozen-15s", hold: 15 * time.Second, bound: boundFailover, do: onPrimary(stop(isAny))},
	{name: "standby-pod-frozen-15s", hold: 15 * time.Second, bound: boundNone, do: onStandby(stop(isAny))},
	{name: "pod-deleted", bound: boundQuick, do: onPrimary(deletePod())},
	{name: "pod-force-deleted", bound: boundFailover, do: onPrimary(deletePod(client.GracePeriodSeconds(0)))},
	{name: "standby-pod-deleted", bound: boundNone, do: onStandby(deletePod())},
	{name: "standby-pod-force-deleted", bound: boundNone, do: onStandby(deletePod(client.GracePeriodSeconds(0)))},
	{name: "switchover", bound: boundQuick, do: switchover},
	{name: "drain", bound: boundQuick, do: drain},
	{name: "node-killed", hold: 30 * time.Second, bound: boundFailover, do: onPrimary(onNode("kill", "up"))},
	{name: "standby-node-killed", hold: 15 * time.Second, bound: boundNone, do: onStandby(onNode("kill", "up"))},
	{name: "node-cut-off", hold: 20 * time.Second, bound: boundFailover, do: onPrimary(onNode("cut", "join"))},
	{name: "standby-node-cut-off", hold: 15 * time.Second, bound: boundNone, do: onStandby(onNode("cut", "join"))},
	{name: "cut-off-from-api", hold: 20 * time.Second, bound: boundFailover, do: onPrimary(block("both", true, false))},
	{name: "cut-off-from-peers", hold: 15 * time.Second, bound: boundFailover, stalls: withSync, do: onPrimary(block("both", false, true))},
	{name: "cut-off-from-api-and-peers", hold: 20 * time.Second, bound: boundFailover, do: onPrimary(block("both", true, true))},
	{name: "packets-out-lost", hold: 20 * time.Second, bound: boundFailover, do: onPrimary(block("out", true, true))},
	{name: "packets-in-lost", hold: 20 * time.Second, bound: boundFailover, do: onPrimary(block("in", true, true))},
	{name: "standby-cut-off-from-api-and-peers", hold: 20 * time.Second, bound: boundNone, do: onStandby(block("both", true, true))},
	{name: "api-server-stopped-60s", hold: 60 * time.Second, bound: boundQuick, do: stopAPIServer},
	{name: "operator-down-pod-force-deleted", hold: 20 * time.Second, bound: boundFailover,
		do: both(operatorDown, onPrimary(deletePod(client.GracePeriodSeconds(0))))},
	{name: "operator-and-node-lost", hold: 30 * time.Second, bound: boundFailover,
		do: both(operatorDown, onPrimary(onNode("kill", "up")))},
	{name: "disk-full", hold: 10 * time.Second, bound: boundReturn, stalls: always, do: onPrimary(fillDisk)},
	{name: "two-faults", hold: 15 * time.Second, bound: boundReturn, stalls: always, do: twoFaults},
}

// act is something done to one instance.
type act func(ctx context.Context, s scene, pod corev1.Pod) (undo func(context.Context) error, err error)

// deed is what a fault does.
type deed = func(ctx context.Context, s scene, random *rand.Rand) (func(context.Context) error, error)

func onPrimary(a act) deed {
	return func(ctx context.Context, s scene, _ *rand.Rand) (func(context.Context) error, error) {
		return a(ctx, s, s.primary)
	}
}

func onStandby(a act) deed {
	return func(ctx context.Context, s scene, random *rand.Rand) (func(context.Context) error, error) {
		return a(ctx, s, s.standbys[random.IntN(len(s.standbys))])
	}
}

// both does one after the other, and undoes them so.
func both(first, second deed) deed {
	return func(ctx context.Context, s scene, random *rand.Rand) (func(context.Context) error, error) {
		undoFirst, errFirst := first(ctx, s, random)
		undoSecond, errSecond := second(ctx, s, random)
		return func(ctx context.Context) error {
			var errs []error
			for _, undo := range []func(context.Context) error{undoSecond, undoFirst} {
				if undo != nil {
					errs = append(errs, undo(ctx))
				}
			}
			return errors.Join(errs...)
		}, errors.Join(errFirst, errSecond)
	}
}

func kill(kinds ...func([]process, process) bool) act {
	return func(_ context.Context, _ scene, pod corev1.Pod) (func(context.Context) error, error) {
		return nil, signalPod(pod, syscall.SIGKILL, kinds...)
	}
}

func stop(kinds ...func([]process, process) bool) act {
	return func(_ context.Context, _ scene, pod corev1.Pod) (func(context.Context) error, error) {
		return func(context.Context) error {
			_ = signalPod(pod, syscall.SIGCONT, isAny) // there may be no Pod any more
			return nil
		}, signalPod(pod, syscall.SIGSTOP, kinds...)
	}
}

func deletePod(options ...client.DeleteOption) act {
	return func(ctx context.Context, _ scene, pod corev1.Pod) (func(context.Context) error, error) {
		return nil, kube.Delete(ctx, &pod, options...)
	}
}

func onNode(what, undo string) act {
	return func(ctx context.Context, _ scene, pod corev1.Pod) (func(context.Context) error, error) {
		n := nodeNumber(pod.Spec.NodeName)
		return func(ctx context.Context) error { return node(ctx, n, undo) }, node(ctx, n, what)
	}
}

// block drops the node's packets to or from the API server, the other instances' nodes, or both.
func block(way string, api, peers bool) act {
	return func(ctx context.Context, _ scene, pod corev1.Pod) (func(context.Context) error, error) {
		n := nodeNumber(pod.Spec.NodeName)
		args := []string{way}
		if api {
			args = append(args, "api")
		}
		if peers {
			args = append(args, otherNodes(n)...)
		}
		return func(ctx context.Context) error { return node(ctx, n, "unblock") }, node(ctx, n, "block", args...)
	}
}

func stopAPIServer(context.Context, scene, *rand.Rand) (func(context.Context) error, error) {
	return func(context.Context) error { return signalAPIServer(syscall.SIGCONT) }, signalAPIServer(syscall.SIGSTOP)
}

func operatorDown(ctx context.Context, _ scene, _ *rand.Rand) (func(context.Context) error, error) {
	return func(ctx context.Context) error { return scaleOperator(ctx, operatorCount) }, scaleOperator(ctx, 0)
}

// switchover wishes for another primary, as a user does.
func switchover(ctx context.Context, s scene, _ *rand.Rand) (func(context.Context) error, error) {
	_, err := kubectl(ctx, "-n", s.namespace, "annotate", "--overwrite", "pgc", clusterName, naming.AnnotationSwitchover+"=best")
	if err != nil {
		return nil, err
	}
	return nil, until(ctx, boundFailover, func(ctx context.Context) error {
		now, err := s.look(ctx)
		if err == nil && now.primary.Name == s.primary.Name {
			err = errors.New("the primary is the same as before")
		}
		return err
	})
}

// drain drains the primary's node.
func drain(ctx context.Context, s scene, _ *rand.Rand) (func(context.Context) error, error) {
	name := s.primary.Spec.NodeName
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err := kubectl(ctx, "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s")
	return func(ctx context.Context) error {
		_, err := kubectl(ctx, "uncordon", name)
		return err
	}, err
}

// fillDisk leaves no space on the instance's volume, and has the server begin segments of WAL until it finds that out: those that
// it has in stock would last for minutes.
func fillDisk(ctx context.Context, s scene, pod corev1.Pod) (func(context.Context) error, error) {
	const fill = `free=$(df --output=avail -B1 . | tail -n 1); fallocate -l "$free" chaos.fill || fallocate -l $((free - 1048576)) chaos.fill; ` +
		`dd if=/dev/zero bs=4k of=chaos.rest 2>/dev/null || true`
	const useUp = `for i in $(seq 20); do psql -qX -U ` + naming.Superuser + ` -d postgres -c "SELECT pg_logical_emit_message(false, 'chaos', '')" ` +
		`-c "SELECT pg_switch_wal()" >/dev/null 2>&1 || break; done`
	n := nodeNumber(pod.Spec.NodeName)
	_, err := kubectl(ctx, "-n", s.namespace, "exec", pod.Name, "-c", naming.ContainerPostgres, "--",
		"sh", "-c", "cd "+naming.PathData+" && { "+fill+"; "+useUp+"; }")
	return func(ctx context.Context) error {
		return node(ctx, n, "exec", "sh", "-c", "rm -f /var/lib/pv/*/chaos.fill /var/lib/pv/*/chaos.rest")
	}, err
}

// twoFaults does one thing to the primary and another to a standby.
func twoFaults(ctx context.Context, s scene, random *rand.Rand) (func(context.Context) error, error) {
	acts := []struct {
		name string
		act  act
	}{
		{"postmaster killed", kill(isPostmaster)},
		{"agent killed", kill(isAgent)},
		{"agent stopped", stop(isAgent)},
		{"Pod force-deleted", deletePod(client.GracePeriodSeconds(0))},
		{"Pod deleted", deletePod()},
		{"node killed", onNode("kill", "up")},
		{"node cut off", onNode("cut", "join")},
		{"node cut off from API server", block("both", true, false)},
		{"node cut off from peers", block("both", false, true)},
	}
	i, j := random.IntN(len(acts)), random.IntN(len(acts))
	fmt.Printf("           primary: %s, a standby: %s\n", acts[i].name, acts[j].name)
	return both(onPrimary(acts[i].act), onStandby(acts[j].act))(ctx, s, random)
}
