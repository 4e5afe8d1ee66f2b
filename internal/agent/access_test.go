package agent

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
)

// TestAgent_accessProblem is about a token that the API server denies: for a moment, or for good.
func TestAgent_accessProblem(t *testing.T) {
	t.Parallel()
	a := New(Options{Output: &syncBuffer{}})
	a.keeper = lease.NewKeeper(lease.Options{Now: lease.Boottime, Log: slog.New(slog.DiscardHandler)},
		lease.Timings{Duration: 8 * time.Second, Renew: 2 * time.Second})
	denied := apierrors.NewUnauthorized("Unauthorized")
	for name, test := range map[string]struct {
		view  lease.View
		wrong bool
	}{
		"nothing failed":                  {view: lease.View{}},
		"a standby, once":                 {view: lease.View{Err: denied}},
		"a standby, for a while":          {view: lease.View{Err: denied, Denied: deniedBound - 1}},
		"a standby, for long":             {view: lease.View{Err: denied, Denied: deniedBound}, wrong: true},
		"a standby, failing otherwise":    {view: lease.View{Err: errors.New("timeout"), Denied: time.Minute}},
		"the holder, whose lease is held": {view: lease.View{Err: denied, Holding: true, SinceRenewal: 5 * time.Second, Denied: 4 * time.Second}},
		"the holder, once after timeouts": {view: lease.View{Err: denied, Holding: true, SinceRenewal: 7 * time.Second}},
		"the holder, whose lease runs out": {
			view: lease.View{Err: denied, Holding: true, SinceRenewal: 6 * time.Second, Denied: 4 * time.Second}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.wrong, a.accessProblem(&world{view: test.view}) != nil)
		})
	}
}
