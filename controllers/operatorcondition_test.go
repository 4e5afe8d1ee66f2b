package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	olmv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

// TestOperatorConditionWrites: a write is tried again at once when somebody else was faster, and with a growing pause when it fails.
func TestOperatorConditionWrites(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: olmv2.GroupVersion.Group, Resource: "operatorconditions"}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		refusal error
		want    ctrl.Result
		err     error
	}{
		"written":           {},
		"changed meanwhile": {refusal: apierrors.NewConflict(resource, "pgsteward", nil), want: ctrl.Result{RequeueAfter: outdatedRecheck}},
		"deleted meanwhile": {refusal: apierrors.NewNotFound(resource, "pgsteward"), want: ctrl.Result{RequeueAfter: outdatedRecheck}},
		"cannot be written": {refusal: broken, err: broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := apiserver.Scheme(t)
			require.NoError(t, olmv2.AddToScheme(scheme))
			key := types.NamespacedName{Namespace: "operators", Name: "pgsteward"}
			c := fake.NewClientBuilder().WithScheme(scheme).
				WithObjects(&olmv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 1}}).
				WithInterceptorFuncs(interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
						if test.refusal != nil {
							return test.refusal
						}
						return c.Patch(ctx, o, p, options...)
					},
				}).Build()
			r := &OperatorCondition{Key: key, Writer: &apply.Writer{Client: c}, Now: time.Now, clusters: c, conditions: c}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, result)
			written := &olmv2.OperatorCondition{}
			require.NoError(t, c.Get(t.Context(), key, written))
			require.Equal(t, test.refusal == nil, len(written.Spec.Conditions) == 1)
		})
	}
}

// TestBlocks: only what changes the answer leads to a look at all clusters.
func TestBlocks(t *testing.T) {
	t.Parallel()
	cluster := func(phase v1.Phase, annotations map[string]string) *v1.PostgresCluster {
		return &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Status: v1.PostgresClusterStatus{Phase: phase}}
	}
	running, failed, upgrading := cluster(v1.PhaseRunning, nil), cluster(v1.PhaseFailed, nil), cluster(v1.PhaseUpgrading, nil)
	held := cluster(v1.PhaseRunning, map[string]string{naming.AnnotationHoldUpgrades: "true"})
	p := blocks()
	require.False(t, p.Create(event.CreateEvent{Object: running}))
	require.True(t, p.Create(event.CreateEvent{Object: upgrading}))
	require.False(t, p.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: failed}))
	require.False(t, p.Update(event.UpdateEvent{ObjectOld: held, ObjectNew: held}))
	require.True(t, p.Update(event.UpdateEvent{ObjectOld: running, ObjectNew: held}))
	require.True(t, p.Update(event.UpdateEvent{ObjectOld: held, ObjectNew: running}))
	require.False(t, p.Delete(event.DeleteEvent{Object: running}))
	require.True(t, p.Delete(event.DeleteEvent{Object: upgrading}))
}
