//go:build e2e

package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// boundRoll is for all three instances to be restarted one after the other, on busy machines.
const boundRoll = 2 * boundReady

// TestRolling: what needs new Pods, or restarts, is done to one instance at a time, the old primary last; what is bad stops at the
// first standby, and the rest serves on.
func TestRolling(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "16", 3))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")

	t.Run("bad image", func(t *testing.T) { badImage(t, c) })
	t.Run("resources", func(t *testing.T) {
		order := c.roll(t, func() {
			c.patch(t, func(spec *v1.PostgresClusterSpec) {
				spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("90m")}}
			})
		})
		require.Len(t, order, 3, "each Pod is made anew, once")
		c.waitServed(t, "after-resources")
	})
	t.Run("restart by annotation", func(t *testing.T) {
		order := c.roll(t, func() { c.annotate(t, naming.AnnotationRestart, "2026-12-01") })
		require.Len(t, order, 3)
	})
	t.Run("parameter raised", func(t *testing.T) { c.rollParameter(t, "max_connections", "120") })
	t.Run("parameter lowered", func(t *testing.T) { c.rollParameter(t, "max_connections", "80") })
	t.Run("parameter of the server alone", func(t *testing.T) { c.rollParameter(t, "shared_buffers", "64MB") })
	c.waitRows(t, naming.ServiceRW(c.name), "before")
	c.waitSound(t)
	c.requireOnePrimary(t)
}

// badImage: it stops the roll at the first standby, and mending the spec goes on.
func badImage(t *testing.T, c cluster) {
	primary, before := c.get(t).Status.CurrentPrimary, c.uids(t)
	good := postgresImage(t, "16")
	c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Image = good + "-nonesuch" })
	c.waitDegraded(t, v1.ReasonImagePullFailed, "nonesuch")
	never(t, 10*time.Second, func() {
		changed := 0
		for name, uid := range c.uids(t) {
			if uid != before[name] {
				changed++
				require.NotEqual(t, naming.Pod(primary), name, "the primary was restarted")
			}
		}
		require.LessOrEqual(t, changed, 1, "more than one instance was restarted for a bad image")
	})
	require.Equal(t, primary, c.get(t).Status.CurrentPrimary)
	c.waitServed(t, "while-the-image-is-bad")
	c.patch(t, func(spec *v1.PostgresClusterSpec) { spec.Image = good })
	c.waitRolled(t)
	for name, pod := range c.pods(t) {
		require.NotEqual(t, before[name], pod.UID, "%s has not got the image", name)
	}
	c.waitSound(t)
}

// roll makes a change and waits until it is rolled out, while it watches that never more than one Pod is missing or going. It returns the Pods
// in the order in which they were replaced: the primary's must be the last.
func (c cluster) roll(t *testing.T, change func()) []string {
	t.Helper()
	primary, before := naming.Pod(c.get(t).Status.CurrentPrimary), c.uids(t)
	var order []string
	var most int
	var watching sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	watching.Go(func() {
		seen := map[types.UID]bool{}
		for ctx.Err() == nil {
			list := &corev1.PodList{}
			if err := kube.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabels(naming.ClusterSelector(c.name))); err == nil {
				missing := len(before) - len(list.Items)
				for _, pod := range list.Items {
					if !pod.DeletionTimestamp.IsZero() {
						missing++
					}
					if pod.UID != before[pod.Name] && !seen[pod.UID] {
						seen[pod.UID] = true
						order = append(order, pod.Name)
					}
				}
				most = max(most, missing)
			}
			time.Sleep(tick / 5)
		}
	})
	began := time.Now()
	change()
	c.waitRolled(t)
	stop()
	watching.Wait()
	t.Logf("rolled out in %s: %s", time.Since(began).Round(time.Second), strings.Join(order, ", "))
	require.LessOrEqual(t, most, 1, "two instances were down at the same time")
	if len(order) > 0 {
		require.Equal(t, primary, order[len(order)-1], "the primary is the last: %v", order)
		require.NotEqual(t, primary, c.primaryPod(t), "another one is primary now")
	}
	return order
}

// waitRolled waits until the operator has seen the spec, and all instances are as it wants them.
func (c cluster) waitRolled(t *testing.T) {
	t.Helper()
	eventually(t, boundRoll, "the change is rolled out", func(collect *assert.CollectT) {
		object := c.get(collect)
		requireReady(collect, object)
		progressing := apimeta.FindStatusCondition(object.Status.Conditions, v1.ConditionProgressing)
		require.NotEqual(collect, v1.ReasonUpdatingInstances, progressing.Reason, progressing.Message)
		hashes := map[string]bool{}
		for _, pod := range c.pods(collect) {
			hashes[pod.Annotations[naming.AnnotationSpecHash]+pod.Annotations[naming.AnnotationRestart]] = true
		}
		require.Len(collect, hashes, 1, "the Pods differ")
		require.Equal(collect, object.Annotations[naming.AnnotationRestart], anyPod(c.pods(collect)).Annotations[naming.AnnotationRestart])
		for _, i := range object.Status.Instances {
			require.Empty(collect, i.PendingRestart, i.Name)
		}
	})
}

func anyPod(pods map[string]corev1.Pod) corev1.Pod {
	for _, pod := range pods {
		return pod
	}
	return corev1.Pod{}
}

// rollParameter sets a parameter that only a restart changes, and waits until each server has it. No Pod is made anew.
func (c cluster) rollParameter(t *testing.T, name, value string) {
	t.Helper()
	uids := c.uids(t)
	began := time.Now()
	c.patch(t, func(spec *v1.PostgresClusterSpec) {
		if spec.PostgreSQL.Parameters == nil {
			spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{}
		}
		spec.PostgreSQL.Parameters[name] = v1.ParameterValue(value)
	})
	eventually(t, boundRoll, name+" is "+value+" everywhere", func(collect *assert.CollectT) {
		for _, pod := range slices.Sorted(maps.Keys(uids)) {
			require.Equal(collect, value, c.superuser(collect, pod, "SHOW "+name), pod)
		}
	})
	c.waitRolled(t)
	t.Logf("%s is %s everywhere after %s", name, value, time.Since(began).Round(time.Second))
	require.Equal(t, uids, c.uids(t), "no Pod is made anew for a parameter")
	c.waitServed(t, strings.ReplaceAll(name+value, "_", "-"))
	c.requireOnePrimary(t)
}
