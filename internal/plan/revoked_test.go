package plan_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestDecideRevoked: Pods whose ServiceAccount was deleted have a token that is never valid again.
func TestDecideRevoked(t *testing.T) {
	t.Parallel()
	revoked := func(b *given.MemberBuilder) *given.MemberBuilder { return b.Says(v1.ReasonAccessRevoked, "token") }
	action := func(members ...*given.MemberBuilder) plan.Action {
		return plan.Decide(cluster().Replicas(len(members)).HasSystem().With(members...).Facts()).Action
	}
	primary, standby := func() *given.MemberBuilder { return given.Member(1).Primary() }, func(n int) *given.MemberBuilder { return given.Member(n).Standby() }

	assert.Equal(t, plan.RestartInstance{Instance: "prod-db-1", PodUID: "uid-of-prod-db-1-0"},
		action(revoked(primary()), revoked(standby(2).Ready()), standby(3)),
		"the primary at once: it does not serve, whatever the others do")
	assert.Equal(t, plan.RestartInstance{Instance: "prod-db-2", PodUID: "uid-of-prod-db-2-0"},
		action(primary().Ready(), revoked(standby(2).Ready()), revoked(standby(3).Ready())), "then a standby")
	assert.Equal(t, plan.RestartInstance{Instance: "prod-db-1", PodUID: "uid-of-prod-db-1-0"},
		plan.Decide(cluster().Replicas(2).HasSystem().With(revoked(given.Member(1).Standby()), standby(2)).Facts()).Action,
		"nor when nobody holds the lease: this one may be who should")
	assert.Equal(t, plan.None{}, action(primary(), revoked(standby(2).Ready())), "not while the primary is starting")
	assert.Equal(t, plan.None{}, action(revoked(primary().Ready()), standby(2).Ready()), "a primary that serves is left alone: one answer may be wrong")
	assert.Equal(t, plan.None{}, action(primary().Ready(), standby(2), revoked(standby(3).Ready())), "one at a time")
	assert.Equal(t, plan.None{}, action(primary().Ready(), revoked(standby(2).Ready()).PodDeleting(), standby(3).Ready()), "once")
}
