package controllers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestUnlabelledSecret: a Secret that lost our labels is not seen in the cache. Its password stays; it only gets the labels back.
func TestUnlabelledSecret(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	s.passes()
	for _, name := range naming.Secrets("prod-db") {
		secret := &corev1.Secret{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "demo", Name: name}, secret))
		before := secret.Data
		secret.Labels = nil
		require.NoError(t, c.Update(t.Context(), secret))
		s.passes()
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
		assert.Equal(t, before, secret.Data, name)
		assert.Equal(t, "prod-db", secret.Labels[naming.LabelCluster], name)
	}
}

// TestForeignSecret: a password that cannot be written is not told to anybody: without that every pass would make another one, and
// write to every Pod.
func TestForeignSecret(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db-app"}, Data: map[string][]byte{"password": []byte("theirs")}}
	require.NoError(t, c.Create(t.Context(), theirs))
	s.passes()
	assert.Equal(t, "True NameTaken", s.condition(v1.ConditionDegraded))
	c.Writes()
	for range 3 {
		_, err := s.pass()
		require.NoError(t, err)
	}
	assert.Empty(t, c.Writes())

	require.NoError(t, c.Delete(t.Context(), theirs))
	s.passes()
	assert.Equal(t, "False Healthy", s.condition(v1.ConditionDegraded))
}

// TestRefusedAuthority: nothing is signed by an authority that could not be written.
func TestRefusedAuthority(t *testing.T) {
	t.Parallel()
	s, c := inMemory(t)
	c.FailWrites(func(write string) error {
		if write == "apply Secret prod-db-ca" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "prod-db-ca", errors.New("exceeded quota: secrets"))
		}
		return nil
	})
	s.passes()
	assert.Equal(t, "True QuotaExceeded", s.condition(v1.ConditionDegraded))
	c.Writes()
	_, err := s.pass()
	require.NoError(t, err)
	assert.Equal(t, []string{"apply Secret prod-db-ca"}, c.Writes(), "it is tried again, and nothing else is")
	assert.NotContains(t, strings.Join(c.Writes(), " "), "prod-db-server")
}
