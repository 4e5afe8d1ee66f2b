package lease

import (
	"context"
	"log/slog"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/election"
)

// guardInterval is how often the guard looks.
const guardInterval = 50 * time.Millisecond

// Guard stops a server that may write when the Lease is not renewed in time or is seen in other hands. It depends on nothing
// but the keeper and the server. A detached server writes without the Lease by order, where no client can reach it.
func Guard(ctx context.Context, keeper *Keeper, server *supervise.Server, log *slog.Logger) {
	ticker := time.NewTicker(guardInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := server.Snapshot()
		if !now.Running || !now.Writable || now.Detached {
			continue
		}
		mode := stopMode(keeper.View(), keeper.Timings())
		if mode > now.Stopping {
			server.Stop(mode) // before anything is said, which may block
			log.Error("Stopping PostgreSQL, since the lease was not renewed in time", "mode", int(mode))
		}
	}
}

// stopMode is how a server that may write must be stopped by now; 0 if it may go on.
func stopMode(view View, timings Timings) supervise.Mode {
	return modes[timings.MustStop(view.Holding, view.SinceRenewal)]
}

var modes = map[election.Stopping]supervise.Mode{
	election.StopFast: supervise.Fast, election.StopImmediate: supervise.Immediate, election.StopKill: supervise.Kill,
}
