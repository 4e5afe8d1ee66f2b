package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestDecideAccess: while Secrets cannot be read nothing is written that depends on them, since a password that is not known would
// be replaced by a new one.
func TestDecideAccess(t *testing.T) {
	t.Parallel()
	unread := func(b *given.ClusterBuilder, d time.Duration) plan.Decision {
		f := b.Facts()
		f.SecretsUnknownFor = d
		return plan.Decide(f)
	}
	first := unread(cluster(), time.Millisecond)
	assert.True(t, first.AccessOnly)
	assert.True(t, first.Quiet, "it will be known in a moment: a status now would only flicker")
	assert.Empty(t, first.Members)

	restarted := unread(healthyThree(), time.Millisecond)
	assert.True(t, restarted.AccessOnly)
	assert.Equal(t, numbered(1, 2, 3), restarted.Members)
	assert.Equal(t, plan.None{}, restarted.Action)

	late := unread(healthyThree(), time.Minute)
	assert.False(t, late.Quiet, "the user must be told")
	assert.Equal(t, v1.ReasonNoSecretAccess, late.Reason)
	assert.Contains(t, late.Message, "prod-db-operator")

	assert.Equal(t, "delete", unread(healthyThree().Deleting(), time.Minute).Rule, "a deletion does not need them")
}
