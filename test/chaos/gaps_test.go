//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// measure is an event whose write gap is measured. goal is for the 95th percentile; inSum, for the sum of the gaps.
type measure struct {
	name  string
	fault fault
	goal  time.Duration
	inSum bool
}

func measures() []measure {
	return []measure{
		{name: "switchover", fault: fault{do: switchover}, goal: time.Second},
		{name: "drain of the primary's node", fault: fault{do: drain}, goal: time.Second},
		{name: "postmaster killed", fault: fault{do: onPrimary(kill(isPostmaster))}, goal: 3 * time.Second},
		{name: "Pod deleted", fault: fault{do: onPrimary(deletePod())}, goal: 3 * time.Second},
		{name: "Pod force-deleted", fault: fault{do: onPrimary(deletePod(client.GracePeriodSeconds(0)))}, goal: 3 * time.Second},
		{name: "node lost", fault: fault{do: onPrimary(onNode("kill", "up")), hold: 20 * time.Second}, goal: 10 * time.Second},
		{name: "rolling image change", fault: fault{do: changeImage}, goal: time.Second, inSum: true},
		{name: "operator upgrade", fault: fault{do: upgradeOperator}, goal: threshold},
	}
}

// threshold is from where on the client calls a pause a gap.
const threshold = 250 * time.Millisecond

// changeImage gives all instances another image: another reference to the same content, so that any build can do it.
func changeImage(ctx context.Context, s scene, random *rand.Rand) (func(context.Context) error, error) {
	c := &v1.PostgresCluster{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: clusterName}, c); err != nil {
		return nil, err
	}
	before := c.DeepCopy()
	// the nodes' registry is the same under every name
	_, path, _ := strings.Cut(images["POSTGRES_"+s.version+"_IMAGE"], "/")
	c.Spec.Image = fmt.Sprintf("registry-%d.test/%s", random.IntN(1e6), path)
	if err := kube.Patch(ctx, c, client.MergeFrom(before)); err != nil {
		return nil, err
	}
	return nil, until(ctx, boundHealthy, func(ctx context.Context) error {
		pods, err := s.pods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if pod.Spec.Containers[0].Image != c.Spec.Image || !podReady(pod) {
				return fmt.Errorf("%s has not the new image, or is not ready", pod.Name)
			}
		}
		return nil
	})
}

// upgradeOperator gives the operator another program, waits a while for what that one may do to instances, and looks whether it has
// restarted any.
func upgradeOperator(ctx context.Context, s scene, _ *rand.Rand) (func(context.Context) error, error) {
	before, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	deployment := &appsv1.Deployment{}
	if err := kube.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: operatorDeployment}, deployment); err != nil {
		return nil, err
	}
	next := images["CHAOS_NEXT_OPERATOR_IMAGE"]
	if deployment.Spec.Template.Spec.Containers[0].Image == next {
		next = images["OPERATOR_IMAGE"]
	}
	if err := setOperatorImage(ctx, next); err != nil {
		return nil, err
	}
	pass(ctx, 20*time.Second)
	after, err := s.servers(ctx)
	if err == nil && after != before {
		err = fmt.Errorf("an upgrade of the operator has restarted something: %s before, %s after", before, after)
	}
	return nil, err
}

// setOperatorImage changes the operator's program, and the one that it gives to instances, and waits until it runs.
func setOperatorImage(ctx context.Context, image string) error {
	if image == "" {
		return errors.New("bin/images.env names no CHAOS_NEXT_OPERATOR_IMAGE: run hack/bench/next.sh")
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%[2]q,"env":[{"name":"OPERATOR_IMAGE","value":%[2]q}]}]}}}}`,
		operatorContainer, image)
	if _, err := kubectl(ctx, "-n", operatorNamespace, "patch", "deployment", operatorDeployment, "-p", patch); err != nil {
		return err
	}
	_, err := command(ctx, kubectlBin, "-n", operatorNamespace, "rollout", "status", "deployment/"+operatorDeployment, "--timeout=120s")
	return err
}

// servers tells each Pod from another in its place, and each start of a server from the one before.
func (s scene) servers(ctx context.Context) (string, error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, pod := range pods {
		started, err := s.sql(ctx, pod, "SELECT pg_postmaster_start_time()::text")
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%s %s %s", pod.Name, pod.UID, started))
	}
	return strings.Join(all, ", "), nil
}

// TestGaps measures and prints. A goal that is missed is a line of the table, not a failure: figures belong to the machine and its
// load. Rows lost, or a cluster that does not recover, are failures.
func TestGaps(t *testing.T) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), boundReady)
		defer cancel()
		if err := setOperatorImage(ctx, images["OPERATOR_IMAGE"]); err != nil {
			t.Error(err)
		}
	})
	s := &beds{}
	runs, number := setting(t, "RUNS", 10), 0
	var table strings.Builder
	fmt.Fprintf(&table, "%-9s %-28s %4s %8s %8s %8s %8s %10s %6s %8s\n", "kind", "event", "runs", "min", "median", "p95", "max", "recovered", "lost", "goal")
	for _, k := range kinds(t, "17-async") {
		k.alone = true
		for _, m := range measures() {
			if !wanted(t, m.name) {
				continue
			}
			var gaps, recovered []float64
			lost := 0
			m.fault.name, m.fault.bound, m.fault.stalls = m.name, boundReturn, never
			for range runs {
				number++
				o := s.tryTimed(t, k, number, m.fault)
				if len(o.Problems) > 0 {
					continue
				}
				g := o.MaxGapMS / 1000
				if m.inSum {
					g = o.SumGapsMS / 1000
				}
				gaps, recovered, lost = append(gaps, g), append(recovered, o.Recovered), lost+o.Lost
			}
			verdict := "met"
			if len(gaps) == 0 || percentile(gaps, 95) > m.goal.Seconds() {
				verdict = "missed"
			}
			fmt.Fprintf(&table, "%-9s %-28s %4d %8.2f %8.2f %8.2f %8.2f %10.1f %6d %5.2f %s\n", k, m.name, len(gaps), percentile(gaps, 0),
				percentile(gaps, 50), percentile(gaps, 95), percentile(gaps, 100), percentile(recovered, 50), lost, m.goal.Seconds(), verdict)
		}
	}
	fmt.Printf("\nWrite gap in seconds (a rolling change: all gaps above %s in sum); load %s\n%s", threshold, load(), table.String())
}

// percentile is the least value that p percent of all are not above; no value: 0.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}
