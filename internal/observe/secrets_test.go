package observe_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
)

// vault is what reads Secrets, with caches that can be read at once, or never.
type vault struct {
	*observe.Secrets
	made    map[string]*informertest.FakeInformers
	changes chan types.NamespacedName
}

func newVault(t *testing.T, readable bool) *vault {
	t.Helper()
	v := &vault{made: map[string]*informertest.FakeInformers{}, changes: make(chan types.NamespacedName, 10)}
	v.Secrets = &observe.Secrets{
		NewCache: func(namespace string) (cache.Cache, error) {
			v.made[namespace] = &informertest.FakeInformers{Synced: &readable}
			return v.made[namespace], nil
		},
		Changed: func(c types.NamespacedName) { v.changes <- c },
		Log:     testr.New(t),
	}
	return v
}

func (v *vault) changed(t *testing.T) types.NamespacedName {
	t.Helper()
	select {
	case c := <-v.changes:
		return c
	case <-time.After(patience):
		require.Fail(t, "no pass was asked for")
		return types.NamespacedName{}
	}
}

// TestSecretsAreWatchedByNamespace: one watch for all clusters of a namespace, as long as there is one.
func TestSecretsAreWatchedByNamespace(t *testing.T) {
	t.Parallel()
	v := newVault(t, true)
	other := types.NamespacedName{Namespace: key.Namespace, Name: "other"}
	elsewhere := types.NamespacedName{Namespace: "elsewhere", Name: key.Name}
	assert.False(t, v.Watches(key.Namespace))

	secrets, unknownFor, err := v.In(key)
	require.NoError(t, err)
	assert.Nil(t, secrets)
	assert.Positive(t, unknownFor)
	assert.Equal(t, key, v.changed(t), "they can be read now")
	secrets, unknownFor, err = v.In(key)
	require.NoError(t, err)
	assert.NotNil(t, secrets)
	assert.Zero(t, unknownFor)

	secrets, _, err = v.In(other)
	require.NoError(t, err)
	assert.NotNil(t, secrets, "the same watch")
	_, _, err = v.In(elsewhere)
	require.NoError(t, err)
	assert.Equal(t, elsewhere, v.changed(t))
	assert.Len(t, v.made, 2)

	v.Forget(key)
	assert.True(t, v.Watches(key.Namespace), "another cluster needs it")
	v.Forget(other)
	assert.False(t, v.Watches(key.Namespace))
	v.Forget(other)
	assert.True(t, v.Watches("elsewhere"))
}

func TestSecretsChange(t *testing.T) {
	t.Parallel()
	v := newVault(t, true)
	_, _, err := v.In(key)
	require.NoError(t, err)
	v.changed(t)
	informer, err := v.made[key.Namespace].FakeInformerFor(t.Context(), &corev1.Secret{})
	require.NoError(t, err)
	secret := parse(t, &corev1.Secret{}, `metadata: {name: prod-db-app}`)

	informer.Add(secret)
	assert.Equal(t, key, v.changed(t))
	informer.Update(secret, secret)
	assert.Equal(t, key, v.changed(t))
	informer.Delete(secret)
	assert.Equal(t, key, v.changed(t))
	somebodys := secret.DeepCopy()
	somebodys.Labels = nil
	informer.Add(somebodys)
	assert.Empty(t, v.changes)
}

// TestSecretsCannotBeRead: it is known for how long.
func TestSecretsCannotBeRead(t *testing.T) {
	t.Parallel()
	v := newVault(t, false)
	_, first, err := v.In(key)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		secrets, unknownFor, err := v.In(key)
		return err == nil && secrets == nil && unknownFor > first
	}, patience, time.Millisecond)
	assert.Empty(t, v.changes)

	v.NewCache = func(string) (cache.Cache, error) { return nil, errors.New("no cache") }
	_, _, err = v.In(types.NamespacedName{Namespace: "elsewhere", Name: "a"})
	require.ErrorContains(t, err, "no cache")
	assert.False(t, v.Watches("elsewhere"))
}

// TestObserveWithoutSecrets: nothing is taken for known before the operator has the right to read Secrets.
func TestObserveWithoutSecrets(t *testing.T) {
	t.Parallel()
	v := newVault(t, false)
	w := newWorld(t)
	w.reader.Secrets = v.Secrets
	assert.Equal(t, time.Nanosecond, w.observe().Facts.SecretsUnknownFor)
	assert.False(t, v.Watches("demo"), "without the right there is no use in trying")

	binding := parse(t, &rbacv1.RoleBinding{}, `metadata: {name: prod-db-operator}`)
	require.Equal(t, naming.OperatorBinding("prod-db"), binding.Name)
	require.NoError(t, w.c.Create(t.Context(), binding))
	assert.Positive(t, w.observe().Facts.SecretsUnknownFor)
	assert.True(t, v.Watches("demo"))
	w.reader.Forget(key)
	assert.False(t, v.Watches("demo"))
}
