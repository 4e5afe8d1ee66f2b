package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/testing/memory"
)

// TestOutdated: what a cache gives that has not seen our last write is not to be worked on, or events would be said twice.
func TestOutdated(t *testing.T) {
	t.Parallel()
	kubernetes := memory.New(t, &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db"}})
	writer := &apply.Writer{Client: kubernetes, API: kubernetes}
	key := client.ObjectKey{Namespace: "demo", Name: "prod-db"}
	cached := &v1.PostgresCluster{}
	require.NoError(t, kubernetes.Get(t.Context(), key, cached))
	assert.False(t, writer.Outdated(cached), "nothing was written yet")

	written := cached.DeepCopy()
	require.NoError(t, writer.Status(t.Context(), written, v1.PostgresClusterStatus{Phase: v1.PhaseCreating}))
	assert.True(t, writer.Outdated(cached))
	assert.False(t, writer.Outdated(written))

	writer.Forget(key)
	assert.False(t, writer.Outdated(cached))
}
