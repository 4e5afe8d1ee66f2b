package apply_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

func TestMain(m *testing.M) { apiserver.Main(m) }

// seen is a cache that has just this object.
type seen struct{ client.Object }

func (s seen) Get(string, string) client.Object { return s.Object }

// TestObjectsReplaced: what was decided from an object that the API server has no more is written neither to a new one nor to another
// one of its name.
func TestObjectsReplaced(t *testing.T) {
	t.Parallel()
	c := apiserver.Client(t)
	namespace := apiserver.Namespace(t, c)
	w := &apply.Writer{Client: c, API: c}
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: naming.ClusterLabels("prod-db")}}
	require.NoError(t, c.Create(t.Context(), old))
	desired := coreac.ConfigMap("a", namespace).WithLabels(naming.ClusterLabels("prod-db")).WithData(map[string]string{"of": "the old one"})

	require.NoError(t, w.Objects(t.Context(), owner(), seen{old}, []runtime.ApplyConfiguration{desired}))
	require.NoError(t, c.Delete(t.Context(), old))
	err := w.Objects(t.Context(), owner(), seen{old}, []runtime.ApplyConfiguration{desired})
	require.True(t, apierrors.IsConflict(err), "it is gone: %v", err)

	another := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}}
	require.NoError(t, c.Create(t.Context(), another))
	err = w.Objects(t.Context(), owner(), seen{old}, []runtime.ApplyConfiguration{desired})
	require.ErrorContains(t, err, "which was replaced since it was observed")
	require.NotErrorAs(t, err, new(*apply.Refused), "nothing for a user to mend: the next pass knows better")
	require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "a"}, another))
	assert.Empty(t, another.Data)
}
