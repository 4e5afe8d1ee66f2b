package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestForce: what forces an instance to take over goes when it has done so, and no sooner.
func TestForce(t *testing.T) {
	t.Parallel()
	promoting := func(s *agentapi.Status) { s.DataRole = agentapi.RoleStandby }
	for what, test := range map[string]struct {
		f    *given.ClusterBuilder
		over bool
	}{
		"nobody is forced":       {three(), false},
		"it is primary":          {three().Forces("prod-db-1"), true},
		"another is primary yet": {three().Forces("prod-db-2"), false},
		"it is being promoted":   {cluster().HasSystem().With(given.Member(1).Primary().Ready().Report(promoting)).Forces("prod-db-1"), false},
		"it is paused":           {three().Forces("prod-db-1").Paused(), false},
		"its agent is not heard": {cluster().HasSystem().With(given.Member(1).Primary().Ready().Unheard(time.Minute)).Forces("prod-db-1"), false},
		"a switchover is wished": {three().Forces("prod-db-1").Wish("prod-db-2"), true},
		"the cluster is deleted": {three().Forces("prod-db-1").Deleting(), false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.over, plan.Decide(test.f.Facts()).Forced)
		})
	}
}
