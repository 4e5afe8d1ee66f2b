//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestFence: an annotation stops PostgreSQL of an instance, or of all, and its end starts it again, with the same primary.
func TestFence(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	c := create(t, newCluster(namespace, "db", "16", 2))
	startClient(t, namespace)
	c.waitReady(t)
	c.waitServed(t, "before")
	primary, standby := c.instanceOf(t, v1.RolePrimary), c.instanceOf(t, v1.RoleStandby)
	uids := c.uids(t)

	t.Run("nobody", func(t *testing.T) {
		err := c.tryAnnotate(naming.AnnotationFenced, "db-7")
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, "there is no such instance")
	})
	t.Run("a standby", func(t *testing.T) {
		c.annotate(t, naming.AnnotationFenced, standby)
		c.waitDegraded(t, v1.ReasonFenced, standby)
		eventually(t, boundSettle, "it does not serve", func(collect *assert.CollectT) { require.Equal(collect, int32(1), c.get(collect).Status.ReadyReplicas) })
		eventually(t, boundSettle, "the primary does", func(collect *assert.CollectT) { c.write(collect, "standby-fenced") })
		c.annotate(t, naming.AnnotationFenced, "")
		c.waitSound(t)
		c.waitRows(t, naming.ServiceRO(c.name), "standby-fenced")
	})
	t.Run("the primary", func(t *testing.T) {
		c.annotate(t, naming.AnnotationFenced, primary)
		c.waitDegraded(t, v1.ReasonFenced, primary)
		// longer than the lease: a fence is no failure, and nobody takes over
		never(t, 15*time.Second, func() {
			require.Equal(t, primary, c.get(t).Status.CurrentPrimary)
			_, err := c.trySQL(naming.ServiceRW(c.name), "", "sslmode=require connect_timeout=3", "SELECT 1")
			require.Error(t, err, "a fenced primary answers")
		})
		c.annotate(t, naming.AnnotationFenced, "")
		c.waitSound(t)
		require.Equal(t, primary, c.get(t).Status.CurrentPrimary)
		c.waitServed(t, "primary-back")
	})
	t.Run("all", func(t *testing.T) {
		c.annotate(t, naming.AnnotationFenced, naming.FencedAll)
		eventually(t, boundSettle, "nothing serves", func(collect *assert.CollectT) { require.Zero(collect, c.get(collect).Status.ReadyReplicas) })
		c.annotate(t, naming.AnnotationFenced, "")
		c.waitSound(t)
		c.waitRows(t, naming.ServiceRW(c.name), "before", "standby-fenced", "primary-back")
		require.Equal(t, uids, c.uids(t), "no Pod was made anew")
		c.requireOnePrimary(t)
	})
}
