package agent

import (
	"context"

	"github.com/pgsteward/pgsteward/internal/agent/generation"
)

// place is the generation's place of work; not there yet.
func (a *Agent) place(context.Context) *generation.Place {
	return &generation.Place{Instance: a.options.Instance}
}

// aside is the round of an instance of the other generation; not there yet.
func (a *Agent) aside(_ context.Context, w *world) outcome { return a.wait(w) }
