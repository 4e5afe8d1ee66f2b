package agent

import (
	"context"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
)

// restartWanted restarts PostgreSQL in the Pod, if somebody asked for it: a primary writes a checkpoint first.
func (a *Agent) restartWanted(ctx context.Context, w *world) {
	why := a.requests.restartWanted()
	if why == "" || a.handover.active() {
		return
	}
	if !w.server.Running || w.server.Stopping != 0 {
		a.requests.endRestart()
		return
	}
	if w.server.Writable && w.state != nil {
		if a.restartCheckpoint == nil {
			a.restartCheckpoint = a.begin(ctx, "checkpoint", func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, checkpointBound)
				defer cancel()
				return a.admin.Checkpoint(ctx)
			})
		}
		if !a.restartCheckpoint.isDone() {
			return
		}
		if err, _ := a.restartCheckpoint.result(); err != nil {
			a.log.Warn("Writing a checkpoint before the restart failed", "error", err)
		}
	}
	a.restartCheckpoint = nil
	a.log.Info("Restarting PostgreSQL", "why", why)
	a.observer.Close()
	a.server.Stop(supervise.Fast)
	a.requests.endRestart()
}
