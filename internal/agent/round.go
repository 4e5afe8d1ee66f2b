package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Reasons of problems: those of apis/v1, which the agent does not import.
const (
	reasonImage         = "ImageMajorMismatch"
	reasonDataVersion   = "DataVersionMismatch"
	reasonSystem        = "SystemMismatch"
	reasonDataLost      = "DataLost"
	reasonServer        = "ServerFailed"
	reasonSeed          = "SeedFailed"
	reasonSetup         = "SetupFailed"
	reasonNotStreaming  = "NotStreaming"
	reasonConfiguration = "ConfigurationRejected"
	reasonLease         = "LeaseLost"
	reasonNoPrimary     = "WaitingForPrimary"
	reasonLag           = "LagTooGreat"
	reasonQuorum        = "QuorumMissing"
	reasonFenced        = "Fenced"
)

// world is what one round has observed.
type world struct {
	now time.Time
	// clock is now as lease.Boottime has it, which goes on while the machine sleeps.
	clock  time.Duration
	server supervise.Snapshot
	// state is the running server's; nil if it does not answer, and stateErr says why.
	state    *sql.State
	stateErr error
	// found is what is on the volume; foundErr means that nothing is known.
	found    datadir.Found
	foundErr error
	looked   bool
	view     lease.View
	decision election.Decision
}

// outcome is what came of a round.
type outcome struct {
	state    agentapi.State
	role     agentapi.Role
	problem  *agentapi.Problem
	notReady string
}

// round goes round once, and says how long to wait for the next. ctx ends with the agent; background outlives it.
func (a *Agent) round(ctx, background context.Context) (pause time.Duration) {
	number := a.requests.beginRound()
	w := world{now: time.Now(), clock: lease.Boottime(), server: a.server.Snapshot()}
	result := a.observeAndAct(ctx, background, &w)
	a.hasten(&w)
	if ctx.Err() != nil {
		return 0
	}
	ready := a.publish(w, result)
	a.requests.endRound(number)
	switch {
	case promotes(&w) || a.handover.phase == agentapi.SwitchoverStopping || a.switching.active():
		return urgentInterval
	case a.handover.active():
		return a.handover.pause(w.now)
	case !ready && w.server.Running && w.now.Sub(w.server.Started) < streamGrace,
		result.state == agentapi.StateStarting && w.state != nil,
		!w.server.Running && w.now.Before(a.restarts.next):
		return hurriedInterval
	}
	return roundInterval
}

func (a *Agent) observeAndAct(ctx, background context.Context, w *world) outcome {
	if waiting := a.prepare(ctx, background); waiting != nil {
		return *waiting
	}
	a.observe(ctx, w)
	a.keepReserve(w)
	a.prepareBackups(ctx, background, w)
	if w.foundErr != nil {
		if result := a.unreadable(ctx, w); result != nil {
			return *result
		}
	}
	if w.foundErr != nil {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonServer, w.foundErr.Error())}
	}
	if !a.isAside(w) {
		if waiting := a.settle(ctx, w); waiting != nil {
			return *waiting
		}
	}
	if !w.found.Complete && len(w.found.Others) > 0 && a.config.Upgrade == nil {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonDataVersion, fmt.Sprintf(
			"the volume has data of PostgreSQL %d, the cluster's version is %d", w.found.Others[0], a.major))}
	}
	a.noteGiven(w)
	if waiting := a.whileStopped(w); waiting != nil {
		return *waiting
	}
	if a.outside = false; a.isAside(w) && a.giving.isSettled() {
		return a.stepAside(ctx, w)
	}
	a.upgradeStatus = agentapi.UpgradeStatus{}
	if a.ending && a.gave {
		return outcome{state: agentapi.StateStopping, notReady: "the Pod ends"}
	}
	a.prepareHandover(ctx, w)
	a.restartWanted(ctx, w)
	w.decision = election.Decide(a.facts(w))
	a.explainForce(w)
	a.noteUndone(w)
	a.noteToRun(w)
	a.askMembers(w)
	a.seek(ctx, w)
	if text := w.decision.Action.String() + " " + w.decision.Upstream + " " + w.decision.Rule; text != a.lastDecision {
		a.lastDecision = text
		a.log.Info("Deciding", "action", w.decision.Action.String(), "rule", w.decision.Rule,
			"upstream", w.decision.Upstream, "reason", w.decision.Reason)
	}
	defer a.takeBackups(background, w)
	a.watchArchiver(ctx, w)
	a.keepInPlace(ctx, w)
	return a.act(ctx, w)
}

// observe looks at server, data and lease.
func (a *Agent) observe(ctx context.Context, w *world) {
	w.view = a.view()
	// Answers must not look younger than they were when the Lease was looked at: how late a round got here does not count.
	w.now, w.clock = time.Now(), lease.Boottime()
	a.liveSeen = w.view.LiveVersion
	a.noteEnd(w)
	if w.server.Running && w.server.Stopping == 0 {
		state, err := a.observer.Observe(ctx)
		if err == nil {
			a.noteTimeline(w, &state)
			w.state = &state
			a.syncFlag.note(w.server.Started, w.now, state.SyncNames, state.CheckpointerFree)
			// A receiver says that it streams for a moment before its upstream refuses.
			if state.Streaming && a.reader.Words.CannotFollow(w.now.Add(-refusalMemory)) != "" {
				state.Streaming = false
			}
			if state.Streaming {
				a.lastStreamed = w.now
			}
		}
		w.stateErr = err
	}
	if w.state != nil {
		a.answered = w.server.Started
	}
	if w.state != nil && a.runningSince.IsZero() {
		a.runningSince = w.now
		a.restarts.reset()
	}
	if w.state == nil {
		a.runningSince = time.Time{}
	}
	w.looked = true
	w.found, w.foundErr = a.volume.Inspect()
	if w.foundErr != nil && w.server.Running && errors.Is(w.foundErr, postgres.ErrControl) {
		w.found, w.foundErr = a.volume.Inspect() // it was being written just then
	}
	a.takePulse(ctx, w)
	a.noteDown(w)
	a.noteForce(w)
	if w.view.Holder != "" || !w.view.Known {
		a.noHolderSince = time.Time{}
	} else if a.noHolderSince.IsZero() {
		a.noHolderSince = w.now
	}
}

// noteTimeline keeps the furthest timeline that this server was seen to receive: PostgreSQL says it only while it receives.
func (a *Agent) noteTimeline(w *world, state *sql.State) {
	if !a.received.started.Equal(w.server.Started) {
		a.received.started, a.received.timeline = w.server.Started, 0
	}
	if state.InRecovery {
		a.received.timeline = max(a.received.timeline, state.Timeline)
		state.Timeline = a.received.timeline
	}
}

// noteEnd takes note of a server that has ended.
func (a *Agent) noteEnd(w *world) {
	exit := w.server.Exit
	if exit == nil || !exit.At.After(a.restarts.seen) {
		return
	}
	a.restarts.seen = exit.At
	a.observer.Close()
	a.admin.Close()
	if exit.Asked {
		a.log.Info("PostgreSQL has stopped", "since", exit.At)
		return
	}
	message := a.reader.Words.Ended(exit.Started)
	if message == "" {
		message = fmt.Sprintf("PostgreSQL ended: %v", exit.Err)
	}
	a.noteDamage(message)
	a.crashes.Add(1)
	ran := exit.At.Sub(exit.Started)
	if ran > steadyRun {
		a.restarts.reset()
	}
	a.restarts.failed(w.now, message)
	a.log.Error("PostgreSQL ended without being told to", "ran", ran.String(), "failures", a.restarts.failures, "message", message)
	if !a.answered.Equal(exit.Started) && a.conf.Revert(message) {
		a.log.Error("Going back to the last configuration that worked", "error", message)
		a.restarts.next = w.now
	}
}

func problem(reason, message string) *agentapi.Problem {
	return &agentapi.Problem{Reason: reason, Message: message}
}
