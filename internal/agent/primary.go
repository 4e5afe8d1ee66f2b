package agent

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// reasonAccess is ReasonAccessRevoked of apis/v1.
const reasonAccess = "AccessRevoked"

// fresh says whether the lease is held and was renewed recently enough to begin something that writes.
func (a *Agent) fresh(w *world) bool {
	return w.view.Holding && w.view.SinceRenewal < a.keeper.Timings().StopFast()
}

// leaseProblem is that the lease cannot be held although it should be; nil if it is only a matter of a moment.
func (a *Agent) leaseProblem(w *world) *agentapi.Problem {
	if w.view.Err == nil {
		return nil
	}
	if rejected := a.accessProblem(w); rejected != nil {
		return rejected
	}
	return problem(reasonLease, fmt.Sprintf("the lease cannot be renewed: %v", w.view.Err))
}

// accessProblem is that the API server does not know this Pod any more: its token is of a ServiceAccount that was deleted. A Pod
// that is made anew gets a new token, this one never does. The API server also denies a good token when it cannot check it, for
// a moment; so one denial says nothing.
func (a *Agent) accessProblem(w *world) *agentapi.Problem {
	if !apierrors.IsUnauthorized(w.view.Err) || a.fresh(w) {
		return nil
	}
	bound := deniedBound
	if w.view.Holding { // which does not write any more, so nothing is lost by a new Pod
		bound = a.keeper.Timings().Renew
	}
	if w.view.Denied < bound {
		return nil
	}
	return problem(reasonAccess, "the API server rejects the Pod's token: its ServiceAccount was deleted; the Pod must be made anew")
}

// runPrimary runs the server read-write while the lease is held.
func (a *Agent) runPrimary(ctx context.Context, w *world) outcome {
	a.keeper.SetSystemIdentifier(w.found.Control.SystemIdentifier)
	a.reclone, a.back = "", comeback{}
	if w.server.Running && w.server.Stopping != 0 {
		result := a.serverOutcome(w)
		result.problem = a.leaseProblem(w)
		return result
	}
	if !a.fresh(w) {
		// A server that writes goes on for as long as the guard lets it; one that does not run waits.
		result := a.serverOutcome(w)
		result.role = agentapi.RolePrimary
		result.notReady = "renewing the lease"
		result.problem = a.leaseProblem(w)
		return result
	}
	var result outcome
	switch {
	case !w.server.Running && w.view.Holder == "":
		result = a.serverOutcome(w)
		result.notReady = "taking back the lease, which was made anew"
	case !w.server.Running:
		// A standby's data is started as a standby and promoted, so that it begins a timeline of its own.
		result = a.start(ctx, w, !w.found.Standby && w.decision.Timeline == 0, "")
	case w.state == nil:
		if sql.RefusesSessions(w.stateErr) {
			a.reload(ctx, w, "") // the configuration may be to blame, and may have been mended
		}
		result = a.serverOutcome(w)
	case w.state.InRecovery:
		result = a.promote(ctx, w)
	default:
		result = a.servePrimary(ctx, w)
	}
	if result.problem == nil {
		result.problem = a.hungProblem(w.now)
	}
	result.role = agentapi.RolePrimary
	return result
}

// promote ends recovery, once the lease says to which timeline. The server counts as one that writes from before it is told to.
func (a *Agent) promote(ctx context.Context, w *world) outcome {
	result := outcome{state: agentapi.StateStarting, notReady: "being promoted"}
	if a.readable(w) {
		result.notReady = "" // it was ready as a standby, and is about to be as the primary
	}
	if a.pulse.promoting.IsZero() {
		a.pulse.promoting = w.now
	}
	if w.server.Writable {
		a.endConflicts(ctx, w)
	}
	if w.server.Writable && w.now.Sub(a.promotedAt) < promoteRetry {
		return result // it was told so already
	}
	timeline := w.decision.Timeline
	if w.view.Timeline < timeline {
		result.notReady = "writing the timeline to the lease"
		return result
	}
	if !a.maySyncPromote(ctx, w) {
		result.notReady = "putting the synchronous standbys in force"
		return result
	}
	a.log.Info("Promoting", "timeline", timeline, "from", w.state.Timeline, "lsn", w.state.Written.String())
	if timeline > 0 {
		if err := a.volume.ReserveTimelines(w.state.Timeline, timeline); err != nil {
			a.log.Error("Reserving timelines failed", "error", err)
			result.problem = problem(reasonServer, err.Error())
			return result
		}
	}
	a.hurryReplay(w)
	if !a.fresh(&world{view: a.view()}) {
		result.notReady = "renewing the lease" // it took too long to come here
		return result
	}
	a.server.SetWritable()
	a.promotedAt = w.now
	a.promoting = true
	a.label(ctx, a.primaryRoles()...) // clients come when it is done
	if err := a.admin.Promote(ctx); err != nil {
		a.log.Error("Promoting failed", "error", err)
		result.problem = problem(reasonServer, "promoting failed: "+err.Error())
	}
	return result
}

// servePrimary is the round of a primary that runs.
func (a *Agent) servePrimary(ctx context.Context, w *world) outcome {
	if a.promoting {
		a.promoting = false
		a.log.Info("Promoted", "timeline", w.state.Timeline)
	}
	if w.server.Detached { // it was the first of its generation, which is the live one now
		a.server.SetWritable()
		w.server = a.server.Snapshot()
		a.log.Info("Being the primary of a new generation", "version", a.major)
	}
	a.label(ctx, a.primaryRoles()...)
	a.keepSync(w)
	a.reload(ctx, w, "")
	a.noteClosed(w)
	a.serveUpgrade(ctx, w)
	a.setUp(ctx, w)
	result := a.serverOutcome(w)
	if result.problem == nil {
		result.problem = a.syncProblem(w)
	}
	if a.setupFailed.count >= failuresReported && result.problem == nil {
		result.problem = problem(reasonSetup, "roles, passwords, database or slots cannot be made: "+a.setupFailed.message)
	}
	switch {
	case a.pulse.knocking.lasts(w.now, hungReported):
		result.notReady = "PostgreSQL takes no new connections"
	case a.view().Remaining == 0:
		result.notReady = "the lease has run out"
	case a.setupPID != w.server.PID && (!a.wasSetUp.Load() || w.now.Sub(a.runningSince) < setupGrace):
		// Nobody could work yet with data that was never set up; what was once does not wait for a change that fails.
		result.notReady = "roles, database and slots are being made"
	}
	return result
}

// setUp makes roles, passwords, database and slots, beside the loop: after a start, when something that matters has changed,
// and from time to time.
func (a *Agent) setUp(ctx context.Context, w *world) {
	wanted := sql.Wanted{
		Owner: a.config.Owner, Database: a.config.Database,
		OwnerPassword:     a.options.Paths.password(naming.DirApp),
		SuperuserPassword: a.options.Paths.password(naming.DirSuperuser),
	}
	wanted.Slots = a.slotsOfOthers()
	if u := a.config.Upgrade; u != nil {
		wanted.UpgradeRole = (u.Seed != "" || u.Origin != "") && !u.Retire
	}
	current := fingerprint(wanted, w.server.PID)
	if err, isNew := a.setup.result(); isNew {
		a.setupAt = w.now
		a.noteSetup(w, err)
	}
	pause := setupRetry
	if a.setupDone == current {
		pause = setupRefresh
	}
	if !a.setup.isDone() || a.setup != nil && a.setup.name == current && w.now.Sub(a.setupAt) < pause {
		return
	}
	a.setup = a.begin(ctx, current, func(ctx context.Context) error {
		if was, err := a.admin.IsSetUp(ctx, wanted); err == nil && was {
			a.wasSetUp.Store(true)
		}
		return a.admin.Setup(ctx, wanted)
	})
}

// noteSetup takes note of how a setup ended.
func (a *Agent) noteSetup(w *world, err error) {
	switch {
	case err == nil:
		a.setupDone, a.setupPID = a.setup.name, w.server.PID
		a.setupFailed = failures{}
		a.wasSetUp.Store(true)
	case errors.Is(err, context.Canceled):
	case sql.OnlySlotsInUse(err): // that keeps nobody from working
		a.log.Warn("Setting up the server is not finished", "error", err)
		a.setupPID = w.server.PID
		a.setupFailed = failures{}
		a.wasSetUp.Store(true)
	default:
		a.log.Warn("Setting up the server is not finished", "error", err)
		a.setupFailed = failures{count: a.setupFailed.count + 1, message: err.Error()}
	}
}
