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
)

// world is what one round has observed.
type world struct {
	now    time.Time
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

// round goes round once, and says whether the next should come soon. ctx ends with the agent; background outlives it.
func (a *Agent) round(ctx, background context.Context) (hurry bool) {
	number := a.requests.beginRound()
	w := world{now: time.Now(), server: a.server.Snapshot()}
	result := a.observeAndAct(ctx, background, &w)
	if ctx.Err() != nil {
		return false
	}
	ready := a.publish(w, result)
	a.requests.endRound(number)
	return !ready && w.server.Running && w.now.Sub(w.server.Started) < streamGrace ||
		result.state == agentapi.StateStarting && w.state != nil ||
		!w.server.Running && w.now.Before(a.restarts.next)
}

func (a *Agent) observeAndAct(ctx, background context.Context, w *world) outcome {
	if waiting := a.prepare(ctx, background); waiting != nil {
		return *waiting
	}
	a.observe(ctx, w)
	if w.foundErr != nil {
		if result := a.unreadable(ctx, w); result != nil {
			return *result
		}
	}
	if w.foundErr != nil {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonServer, w.foundErr.Error())}
	}
	if !w.found.Complete && len(w.found.Others) > 0 {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonDataVersion, fmt.Sprintf(
			"the volume has data of PostgreSQL %d, the cluster's version is %d", w.found.Others[0], a.major))}
	}
	w.decision = election.Decide(a.facts(w))
	if text := w.decision.Action.String() + " " + w.decision.Upstream + " " + w.decision.Rule; text != a.lastDecision {
		a.lastDecision = text
		a.log.Info("Deciding", "action", w.decision.Action.String(), "rule", w.decision.Rule,
			"upstream", w.decision.Upstream, "reason", w.decision.Reason)
	}
	return a.act(ctx, w)
}

// observe looks at server, data and lease.
func (a *Agent) observe(ctx context.Context, w *world) {
	w.view = a.view()
	a.noteEnd(w)
	if w.server.Running && w.server.Stopping == 0 {
		state, err := a.observer.Observe(ctx)
		if err == nil {
			w.state = &state
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
	if w.view.Holder != "" || !w.view.Known {
		a.noHolderSince = time.Time{}
	} else if a.noHolderSince.IsZero() {
		a.noHolderSince = w.now
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

// facts are what the election needs.
func (a *Agent) facts(w *world) election.Facts {
	facts := election.Facts{
		Self: a.options.Instance, Pod: a.options.PodUID, Data: ownData(w),
		Lease: election.Lease{
			Known: w.view.Known, Holder: w.view.Holder, HolderPod: w.view.HolderPod,
			SystemIdentifier: w.view.SystemIdentifier, Expired: w.view.Expired, Held: a.keeper != nil && a.fresh(w),
		},
		Bootstrap: a.config.Bootstrap, SystemIdentifier: a.config.SystemIdentifier,
	}
	if !a.noHolderSince.IsZero() {
		facts.Waited = w.now.Sub(a.noHolderSince)
	}
	var others []agentapi.Member
	for _, member := range a.config.Members {
		if member.Name != a.options.Instance {
			others = append(others, member)
		}
	}
	if w.view.Known && w.view.Holder == "" {
		a.peers.Want(others)
	} else {
		a.peers.Want(nil)
	}
	for _, member := range others {
		data := election.Data{}
		if answer, _ := a.peers.Answer(member.Name); answer != nil {
			data = dataOf(answer.Status)
		}
		facts.Members = append(facts.Members, election.Member{
			// Nobody goes on by promises yet, so an answer is as good as one.
			Name: member.Name, Data: data, Promised: data.Kind != election.DataUnknown,
		})
	}
	return facts
}

// ownData is what this instance has: as its server says, else as the control file does.
func ownData(w *world) election.Data {
	if w.found.Torn && w.view.Holder == "" {
		return election.Data{} // there was data, and it cannot be used: nothing may be concluded from that
	}
	if !w.found.Complete {
		return election.Data{Kind: election.DataNone}
	}
	control := w.found.Control
	data := election.Data{Kind: election.DataPrimary, SystemIdentifier: control.SystemIdentifier, Position: control.Position}
	if w.found.Standby {
		data.Kind = election.DataStandby
	}
	if w.state != nil {
		data.Kind = election.DataPrimary
		if w.state.InRecovery {
			data.Kind = election.DataStandby
		}
		data.Position.LSN = max(data.Position.LSN, w.state.Written)
		data.Position.Timeline = max(data.Position.Timeline, w.state.Timeline)
	}
	return data
}

// dataOf is what a member reports to have.
func dataOf(status agentapi.Status) election.Data {
	if !status.DataKnown {
		return election.Data{}
	}
	if !status.HasData {
		return election.Data{Kind: election.DataNone}
	}
	lsn, err := postgres.ParseLSN(status.LSN)
	if err != nil {
		return election.Data{}
	}
	kind := election.DataStandby
	if status.DataRole == agentapi.RolePrimary {
		kind = election.DataPrimary
	}
	return election.Data{
		Kind: kind, SystemIdentifier: status.SystemIdentifier,
		Position: postgres.Position{Timeline: status.Timeline, LSN: lsn},
	}
}

func problem(reason, message string) *agentapi.Problem {
	return &agentapi.Problem{Reason: reason, Message: message}
}
