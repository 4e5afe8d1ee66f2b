//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestSwitchover: a user wishes another primary by an annotation; what cannot be is refused, with the reason, and changes nothing.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "17", 3))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")

	t.Run("to a standby", func(t *testing.T) {
		target := c.instanceOf(t, v1.RoleStandby)
		before := c.get(t)
		uids := c.uids(t)
		c.annotate(t, naming.AnnotationSwitchover, target)
		c.waitSwitchover(t, v1.SwitchoverCompleted, target)
		require.Equal(t, target, c.get(t).Status.CurrentPrimary)
		c.waitServed(t, "after-the-first")
		c.waitRows(t, naming.ServiceRW(c.name), "before")
		c.waitSound(t)
		c.requireOnePrimary(t)
		require.Equal(t, uids, c.uids(t), "no Pod is made anew")
		require.Greater(t, c.get(t).Status.Timeline, before.Status.Timeline)
		require.NotEmpty(t, c.events(t, v1.ReasonSwitchedOver))
	})
	t.Run("to the best", func(t *testing.T) {
		before := c.get(t).Status.CurrentPrimary
		c.annotate(t, naming.AnnotationSwitchover, naming.SwitchoverBest)
		c.waitSwitchover(t, v1.SwitchoverCompleted, naming.SwitchoverBest)
		require.NotEqual(t, before, c.get(t).Status.CurrentPrimary)
		c.waitServed(t, "after-the-second")
		c.waitSound(t)
		c.requireOnePrimary(t)
	})
	t.Run("refused at once", func(t *testing.T) {
		primary := c.get(t).Status.CurrentPrimary
		for target, words := range map[string]string{primary: "is the primary already", "db-9": "there is no such instance", "nonsense": "there is no such instance"} {
			err := c.tryAnnotate(naming.AnnotationSwitchover, target)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, words)
		}
		require.Equal(t, primary, c.get(t).Status.CurrentPrimary)
	})
	t.Run("refused by the webhook's successor", func(t *testing.T) {
		primary := c.get(t).Status.CurrentPrimary
		c.annotate(t, naming.AnnotationValidation, naming.ValidationWarn)
		c.annotate(t, naming.AnnotationSwitchover, "db-9")
		c.waitSwitchover(t, v1.SwitchoverRefused, "db-9")
		eventually(t, boundSettle, "an event says why", func(collect *assert.CollectT) {
			require.Contains(collect, c.events(collect, v1.ReasonSwitchoverRefused), "No switchover from "+primary+" to db-9: there is no such instance")
		})
		require.Equal(t, primary, c.get(t).Status.CurrentPrimary)
		c.waitServed(t, "after-the-refusal")
	})
}

// instanceOf is an instance of that role.
func (c cluster) instanceOf(t require.TestingT, role v1.Role) string {
	for _, i := range c.get(t).Status.Instances {
		if i.Role == role && i.Ready {
			return i.Name
		}
	}
	require.Fail(t, "no instance is ready", "role %s", role)
	return ""
}

// uids are the UIDs of the cluster's Pods.
func (c cluster) uids(t require.TestingT) map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range c.pods(t) {
		uids[name] = pod.UID
	}
	return uids
}

// tryAnnotate sets an annotation of the PostgresCluster; an empty value removes it.
func (c cluster) tryAnnotate(key, value string) error {
	object := &v1.PostgresCluster{ObjectMeta: meta(c.namespace, c.name)}
	if err := kube.Get(context.Background(), client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	before := object.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[key] = value
	if value == "" {
		delete(object.Annotations, key)
	}
	return kube.Patch(context.Background(), object, client.MergeFrom(before))
}

func (c cluster) annotate(t *testing.T, key, value string) {
	t.Helper()
	require.NoError(t, c.tryAnnotate(key, value))
}

// waitSwitchover waits until the switchover to the target has ended so, and the wish is gone.
func (c cluster) waitSwitchover(t *testing.T, phase v1.SwitchoverPhase, target string) {
	t.Helper()
	began := time.Now()
	eventually(t, boundSettle, "the switchover to "+target+" is "+string(phase), func(collect *assert.CollectT) {
		object := c.get(collect)
		s := object.Status.Switchover
		require.NotNil(collect, s, "the status says nothing of a switchover")
		require.Equal(collect, target, s.Target)
		require.Equal(collect, phase, s.Phase, s.Message)
		require.NotNil(collect, s.CompletedAt)
		require.NotContains(collect, object.Annotations, naming.AnnotationSwitchover, "the wish is still there")
	})
	t.Logf("the switchover to %s was %s after %s: %s", target, phase, time.Since(began).Round(time.Millisecond), c.get(t).Status.Switchover.Message)
}
