package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// runStandby runs the server as a standby of the upstream that was decided, or of the last one if that is not known.
func (a *Agent) runStandby(ctx context.Context, w *world) outcome {
	upstream := w.decision.Upstream
	if upstream == "" {
		upstream = a.upstream
		if time.Since(a.keeperSince) < leasePatience && !w.server.Running {
			return outcome{state: agentapi.StateWaiting, role: agentapi.RoleStandby, notReady: "reading the lease"}
		}
	}
	a.setupPID, a.setupDone, a.setupFailed = 0, "", failures{}
	a.wasSetUp.Store(false)
	if a.reclone != "" && upstream != "" {
		return a.clone(ctx, w, upstream)
	}
	var result outcome
	switch {
	case !a.seed.isSettled():
		result = a.seedOutcome(agentapi.RoleStandby, "data is being copied")
	case w.server.Running && w.server.Stopping != 0:
		result = a.serverOutcome(w)
	case !w.server.Running && a.mustReclone(w):
		return a.clone(ctx, w, upstream)
	case !w.server.Running:
		result = a.start(ctx, w, false, upstream)
	default:
		result = a.follow(ctx, w, upstream)
	}
	result.role = agentapi.RoleStandby
	return result
}

// follow is the round of a standby that runs.
func (a *Agent) follow(ctx context.Context, w *world, upstream string) outcome {
	a.label(ctx, naming.RoleStandby)
	a.reload(ctx, w, upstream)
	a.dropSlots(ctx, w)
	result := a.serverOutcome(w)
	if a.restartIfTooSmall(ctx, w) {
		return result
	}
	if a.mustReclone(w) {
		return a.clone(ctx, w, upstream)
	}
	if w.state == nil || w.state.Streaming {
		return result
	}
	since := w.server.Started
	if a.lastStreamed.After(since) {
		since = a.lastStreamed
	}
	if w.now.Sub(since) > streamGrace {
		message := fmt.Sprintf("does not stream from %s", upstream)
		if word := a.reader.Words.Last(since); word != "" {
			message += ": " + word
		}
		result.notReady = message
		if result.problem == nil {
			result.problem = problem(reasonNotStreaming, message)
		}
	}
	return result
}

// dropSlots drops what a standby has left from a time as primary: such slots would keep WAL for ever.
func (a *Agent) dropSlots(ctx context.Context, w *world) {
	current := fingerprint("standby", w.server.PID)
	if w.state == nil || !a.setup.isDone() || a.setup != nil && a.setup.name == current {
		return
	}
	a.setup = a.begin(ctx, current, func(ctx context.Context) error {
		defer a.admin.Close()
		return a.admin.EnsureSlots(ctx, nil)
	})
}

// restartIfTooSmall restarts a standby whose replay has paused because the primary has greater settings than it: it starts
// with settings that are as great.
func (a *Agent) restartIfTooSmall(ctx context.Context, w *world) bool {
	if w.state == nil || !w.state.ReplayPaused {
		return false
	}
	small, err := a.observer.Below(ctx, w.found.Control.Minimums)
	if err != nil || len(small) == 0 {
		return false // somebody has paused it
	}
	a.log.Warn("Restarting PostgreSQL, since the primary has greater settings than this standby", "settings", small)
	a.server.Stop(supervise.Fast)
	return true
}

// mustReclone says whether PostgreSQL has said for long enough that it cannot follow its upstream.
func (a *Agent) mustReclone(w *world) bool {
	if w.state != nil && w.state.Streaming || w.view.Holder == "" {
		return false
	}
	since := w.server.Started
	if a.lastStreamed.After(since) {
		since = a.lastStreamed
	}
	if w.server.Running && w.now.Sub(since) < a.options.FollowBound || !w.server.Running && a.restarts.failures < 2 {
		return false
	}
	why := a.reader.Words.CannotFollow(since)
	if why == "" {
		return false
	}
	a.log.Warn("Copying the data again, since this standby cannot follow", "upstream", w.decision.Upstream, "error", why)
	a.reclone = why
	return true
}

// clone copies the upstream's data.
func (a *Agent) clone(ctx context.Context, w *world, upstream string) outcome {
	a.label(ctx, naming.RoleStandby)
	result := a.seedOutcome(agentapi.RoleStandby, "data is being copied from "+upstream)
	if a.reclone != "" {
		result.notReady += ", since it could not follow: " + a.reclone
	}
	if w.server.Running {
		a.server.Stop(supervise.Fast)
		return result
	}
	if !a.seed.isSettled() {
		if a.seed.name != upstream {
			a.log.Info("Stopping the copy, since the primary has changed", "from", a.seed.name, "to", upstream)
			a.seed.stop() // its result is taken note of in the next round
		}
		return result
	}
	if w.now.Before(a.clones.next) {
		return result
	}
	a.log.Info("Copying data", "upstream", upstream, "attempt", a.clones.failures+1)
	// PostgreSQL asks a program that streams for a sign of life; pg_basebackup gives one only every ten seconds.
	conninfo := a.conninfo(upstream, postgres.Keyword{Name: "options", Value: "-c wal_sender_timeout=60s"})
	seeder, slot := a.seeder, naming.SlotName(a.options.Instance)
	a.seed = a.begin(ctx, upstream, func(ctx context.Context) error { return seeder.Clone(ctx, conninfo, slot) })
	return result
}
