package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestUserAssigned: where the platform assigns uids, Pods that name one are refused.
func TestUserAssigned(t *testing.T) {
	t.Parallel()
	user := func(assigned bool) *int64 {
		in := input(t, minimal)
		in.Settings.UserAssigned = assigned
		for _, object := range build.Objects(in) {
			if set, ok := object.(*appsac.StatefulSetApplyConfiguration); ok {
				security := set.Spec.Template.Spec.SecurityContext
				require.True(t, *security.RunAsNonRoot)
				require.Equal(t, security.RunAsUser, security.FSGroup)
				return security.RunAsUser
			}
		}
		require.Fail(t, "no StatefulSet")
		return nil
	}
	assert.Nil(t, user(true))
	assert.NotNil(t, user(false))
}

// TestUnwritten: no Pod is told to look at files that could not be written.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	f := given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("primary", "old")).Facts()
	require.Len(t, build.Pods(in, f), 1)
	in.Unwritten = true
	assert.Empty(t, build.Pods(in, f))
}
