package agent

import (
	"context"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/election"
)

const (
	// fastStopBound is how long a fast shutdown may take, whoever asked for it, before it becomes an immediate one. The Lease is kept
	// meanwhile, so nobody else serves.
	fastStopBound = 15 * time.Second
	// endStopBound is that for a primary whose Pod ends, if another instance streams and could take over; else it has all of
	// Options.StopBound.
	endStopBound = 20 * time.Second
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

// hasten is the one place that stops a server with more force whose shutdown takes too long. Only the guard, which goes by the
// Lease, and the end of the agent have bounds of their own.
func (a *Agent) hasten(w *world) {
	server := a.server.Snapshot()
	if !server.Running || server.Stopping == 0 {
		return
	}
	bound := a.stopBound(w, server)
	if mode := a.server.Hasten(bound); mode != 0 {
		a.log.Warn("Stopping PostgreSQL with more force, since it did not stop in time",
			"since", server.StoppingSince, "bound", bound.String(), "kill", mode == supervise.Kill)
	}
}

// stopBound is how long a fast shutdown may take.
func (a *Agent) stopBound(w *world, server supervise.Snapshot) time.Duration {
	if a.handover.kind != election.Termination {
		return fastStopBound
	}
	left := a.options.StopBound - server.StoppingSince.Sub(a.handover.began)
	// There are no clients any more, and a standby that streams has had all this time to receive what they wrote.
	if w.decision.Target != "" && election.Successor(a.facts(w), w.now.Sub(server.StoppingSince)) != "" {
		return min(left, endStopBound)
	}
	return left
}
