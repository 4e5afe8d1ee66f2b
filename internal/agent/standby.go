package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
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
	if others := a.others(); upstream == "" && w.view.Known && len(others) > 0 && a.reclone == "" && a.back.rewind == "" {
		upstream = others[0].Name // it asks for WAL, and only then knows that it has read all of its own
	}
	a.setupPID, a.setupDone, a.setupFailed = 0, "", failures{}
	a.wasSetUp.Store(false)
	if upstream != "" && (a.reclone != "" || a.back.rewind != "") {
		return a.mend(ctx, w, upstream)
	}
	var result outcome
	switch {
	case !a.seed.isSettled():
		result = a.seedOutcome(agentapi.RoleStandby, "data is being copied")
	case w.server.Running && w.server.Stopping != 0:
		result = a.serverOutcome(w)
	case !w.server.Running && a.mustMend(w):
		return a.mend(ctx, w, upstream)
	case !w.server.Running:
		if waiting := a.comeBack(ctx, w, upstream); waiting != nil {
			return *waiting
		}
		result = a.start(ctx, w, false, upstream)
	default:
		result = a.follow(ctx, w, upstream)
	}
	result.role = agentapi.RoleStandby
	a.describeOrphan(w, &result)
	return result
}

// describeOrphan says of a standby while nobody is primary whether it may be read, and what keeps it from taking over.
func (a *Agent) describeOrphan(w *world, result *outcome) {
	if !w.view.Known || w.view.Holder != "" && !w.view.Expired {
		return
	}
	switch {
	case a.readable(w) && result.state == agentapi.StateRunning:
		result.notReady = ""
		if result.problem != nil && result.problem.Reason == reasonNotStreaming {
			result.problem = nil
		}
	case result.notReady == "":
		result.notReady = w.decision.Reason
	}
	if reason, ok := refusals[w.decision.Problem]; ok {
		result.problem = problem(reason, w.decision.Reason)
	}
}

// follow is the round of a standby that runs.
func (a *Agent) follow(ctx context.Context, w *world, upstream string) outcome {
	a.label(ctx, a.ownRole(naming.RoleStandby))
	a.reload(ctx, w, upstream)
	a.keepSlots(ctx, w, upstream)
	result := a.serverOutcome(w)
	if a.restartIfTooSmall(ctx, w) {
		return result
	}
	if a.mustMend(w) {
		return a.mend(ctx, w, upstream)
	}
	a.noteFollowing(w)
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

// clone copies the upstream's data.
func (a *Agent) clone(ctx context.Context, w *world, upstream string) outcome {
	a.label(ctx, a.ownRole(naming.RoleStandby))
	if a.back.rewinding {
		a.maySeed(w, upstream)
		return a.seedOutcome(agentapi.RoleStandby, a.rewindText(upstream))
	}
	if w.found.Torn && a.reclone == "" {
		a.reclone = "rewinding it was not finished"
	}
	result := a.seedOutcome(agentapi.RoleStandby, "data is being copied from "+upstream)
	if a.reclone != "" {
		result.notReady += ", since the data here cannot be used: " + a.reclone
		if a.back.copies > 0 && result.problem == nil {
			result.problem = problem(reasonSeed, "the data was copied again and still cannot be used: "+a.reclone)
		}
	}
	if !a.stopForSeed(w) || !a.maySeed(w, upstream) {
		return result
	}
	a.log.Info("Copying data", "upstream", upstream, "attempt", a.clones.failures+1)
	conninfo := a.conninfo(upstream,
		// PostgreSQL asks a program that streams for a sign of life; pg_basebackup gives one only every ten seconds.
		postgres.Keyword{Name: "options", Value: "-c wal_sender_timeout=60s"},
		// It confirms WAL as a standby does, but what it has is no standby yet: no commit may count it as one by its name.
		postgres.Keyword{Name: "application_name", Value: a.options.Instance + " clone"})
	seeder, slot := *a.seeder, naming.SlotName(a.options.Instance)
	seeder.Reachable = sql.Upstream{Conninfo: a.conninfo(upstream, postgres.Keyword{Name: "dbname", Value: "postgres"})}.Reachable
	a.seed = a.begin(ctx, upstream, func(ctx context.Context) error { return seeder.Clone(ctx, conninfo, slot) })
	return result
}
