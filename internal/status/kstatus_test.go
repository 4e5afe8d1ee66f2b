package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/status"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestKstatus: what deploys with kstatus (Flux, Argo CD's like, kpt) understands a PostgresCluster without knowing it
// (https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md).
func TestKstatus(t *testing.T) {
	t.Parallel()
	running := was(v1.PhaseRunning, "16.14", "True", given.Now.Add(-time.Hour))
	for name, test := range map[string]struct {
		in     status.Input
		change func(*v1.PostgresCluster)
		want   kstatus.Status
	}{
		"created just now":   {after(v1.PostgresClusterStatus{}, cluster()), nil, kstatus.InProgressStatus},
		"ready":              {after(running, healthy()), nil, kstatus.CurrentStatus},
		"a standby is gone":  {after(running, cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby())), nil, kstatus.InProgressStatus},
		"changed meanwhile":  {after(running, healthy()), func(c *v1.PostgresCluster) { c.Generation++ }, kstatus.InProgressStatus},
		"suspended":          {after(running, healthy().Suspended()), nil, kstatus.InProgressStatus},
		"paused, and serves": {after(running, healthy().Paused()), nil, kstatus.CurrentStatus},
		"being deleted": {after(running, healthy().Deleting()), func(c *v1.PostgresCluster) {
			c.DeletionTimestamp = new(metav1.NewTime(given.Now))
		}, kstatus.TerminatingStatus},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1.PostgresCluster{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "PostgresCluster"},
				ObjectMeta: metav1.ObjectMeta{Name: "prod-db", Namespace: given.Namespace, Generation: test.in.Facts.Generation},
				Status:     status.Compute(test.in),
			}
			if test.change != nil {
				test.change(c)
			}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
			require.NoError(t, err)
			got, err := kstatus.Compute(&unstructured.Unstructured{Object: object})
			require.NoError(t, err)
			assert.Equal(t, test.want, got.Status, got.Message)
		})
	}
}
