package apply_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// answering is an agent that answers so.
type answering struct{ err error }

func (a answering) Switchover(context.Context, string, agentapi.SwitchoverRequest) error {
	return a.err
}
func (a answering) Restart(context.Context, string, agentapi.RestartRequest) error { return a.err }
func (a answering) UpgradeSwitchover(context.Context, string, agentapi.UpgradeSwitchoverRequest) error {
	return a.err
}

// TestAsk: an agent that refuses, or is too old, has declined; one that cannot be reached has not answered.
func TestAsk(t *testing.T) {
	t.Parallel()
	w := &apply.Writer{}
	require.NoError(t, w.Switchover(t.Context(), answering{}, "host", "prod-db-1", ""))
	for _, test := range []struct {
		err           error
		reason, words string
	}{
		{&agentapi.RefusedError{Address: "x", Why: "prod-db-2 lags"}, v1.ReasonSwitchoverRefused, "prod-db-2 lags"},
		{fmt.Errorf("asking x: %w", agentapi.ErrOlder), v1.ReasonAgentOlder, "the agent of prod-db-1 is older than this operator"},
		{errors.New("connection refused"), "", "asking the agent of prod-db-1 to hand over: connection refused"},
	} {
		err := w.Switchover(t.Context(), answering{test.err}, "host", "prod-db-1", "")
		require.ErrorContains(t, err, test.words)
		var declined *apply.Declined
		assert.Equal(t, test.reason != "", errors.As(err, &declined))
		if declined != nil {
			assert.Equal(t, test.reason, declined.Reason)
		}
		require.Error(t, w.RestartServer(t.Context(), answering{test.err}, "host", "prod-db-1", agentapi.RestartRequest{}))
	}
}

// TestDropAnnotation: a wish that has been dealt with goes, a newer one stays.
func TestDropAnnotation(t *testing.T) {
	t.Parallel()
	c := owner()
	c.Annotations = map[string]string{naming.AnnotationSwitchover: "best", "other/x~y": "z"}
	f := newFixture(t, c)
	seen := &v1.PostgresCluster{}
	require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(c), seen))
	changed := seen.DeepCopy()
	changed.Annotations[naming.AnnotationSwitchover] = "prod-db-3"
	require.NoError(t, f.c.Update(t.Context(), changed))
	_ = f.w.DropAnnotation(t.Context(), seen.DeepCopy(), naming.AnnotationSwitchover) // whatever it says of the newer one
	require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(c), seen))
	assert.Equal(t, "prod-db-3", seen.Annotations[naming.AnnotationSwitchover])

	require.NoError(t, f.w.DropAnnotation(t.Context(), seen, naming.AnnotationSwitchover))
	require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(c), seen))
	assert.Equal(t, map[string]string{"other/x~y": "z"}, seen.Annotations)
}

// TestForgetPod: a Pod that is being deleted, on a node that does not answer, goes at once; another Pod of its name stays.
func TestForgetPod(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db-1-0", UID: "uid-1"}}
	f := newFixture(t, pod)
	require.NoError(t, f.w.ForgetPod(t.Context(), "demo", "prod-db-1-0", "uid-2"))
	require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.NoError(t, f.w.ForgetPod(t.Context(), "demo", "prod-db-1-0", "uid-1"))
	require.Error(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
}
