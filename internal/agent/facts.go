package agent

import (
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Defaults of what the configuration says about availability.
const (
	defaultMaximumLag = 16 << 20
	defaultCrashBound = 3 * time.Second
	// crashFailures in a row end the attempts to start a primary again while another instance could take over.
	crashFailures = 2
)

// facts are what the election needs.
func (a *Agent) facts(w *world) election.Facts {
	facts := election.Facts{
		Self: a.options.Instance, Pod: a.options.PodUID, Data: ownData(w), Server: a.serverFacts(w), Lease: a.leaseFacts(w),
		Bootstrap: a.config.Bootstrap, SystemIdentifier: a.systemIdentifier(w), Policy: policyOf(a.config.Availability),
		Fenced: a.config.IsFenced(a.options.Instance), Forced: a.isForced(),
		HolderFenced: w.view.Holder != "" && a.config.IsFenced(w.view.Holder),
		Request:      a.handover.asked(w),
	}
	if own := facts.Data; a.config.Floor.Excludes(own.SystemIdentifier, own.Position.Timeline) && !facts.Forced {
		facts.Server.Unable = beforeRecovery
	}
	if !a.noHolderSince.IsZero() {
		facts.Waited = w.now.Sub(a.noHolderSince)
	}
	if p := w.view.Promise; p != nil {
		facts.Promise = election.Promise{Holder: p.Holder, Pod: p.Pod, Remaining: p.Remaining}
	}
	for _, member := range a.others() {
		facts.Members = append(facts.Members, a.memberFacts(w, member.Name))
	}
	return facts
}

var syncModes = map[agentapi.SyncMode]election.SyncMode{
	agentapi.SyncPreferred: election.SyncPreferred, agentapi.SyncRequired: election.SyncRequired,
}

func policyOf(availability agentapi.Availability) election.Policy {
	policy := election.Policy{
		SyncMode: syncModes[availability.Synchronous.Mode], SyncNumber: max(1, availability.Synchronous.Number),
		MaximumLag: defaultMaximumLag, CrashBound: defaultCrashBound, CrashFailures: crashFailures,
	}
	if lag := availability.MaximumLagBytes; lag > 0 {
		policy.MaximumLag = uint64(lag)
	}
	if seconds := availability.CrashRestartSeconds; seconds > 0 {
		policy.CrashBound = time.Duration(seconds) * time.Second
	}
	return policy
}

// noteForce takes note of a force that has done what it was for. The wish comes by a file that may say it for long after the operator
// has dropped it, and must not count for the next loss of a primary, which nobody has looked at.
func (a *Agent) noteForce(w *world) {
	f := &a.force
	if !f.known {
		done, err := a.volume.ForceDone()
		if err != nil {
			a.log.Error("Reading whether a takeover by force was done failed", "error", err)
			return
		}
		*f = force{known: true, done: done, kept: done}
	}
	held := w.view.Holding && w.view.Holder == a.options.Instance && w.view.HolderPod == a.options.PodUID
	f.done = a.config.ForceFailover == a.options.Instance && (f.done || held)
}

// keepForce writes that down, for the next run of the agent; again and again while it cannot be written.
func (a *Agent) keepForce() {
	f := &a.force
	if !f.known || f.kept == f.done {
		return
	}
	if err := a.volume.NoteForce(f.done); err != nil {
		a.log.Error("Taking note of a takeover by force failed", "error", err)
		return
	}
	f.kept = f.done
}

// explainForce says why a takeover by force that is still asked for has no effect.
func (a *Agent) explainForce(w *world) {
	if a.config.ForceFailover == a.options.Instance && a.force.done && w.decision.Action != election.RunPrimary {
		w.decision.Reason += "; the takeover by force was carried out once: to force it again, remove the annotation " +
			naming.AnnotationForceFailover + ", and set it when that is seen"
	}
}

// isForced says whether this instance is to take over whatever it lacks.
func (a *Agent) isForced() bool {
	return a.config.ForceFailover == a.options.Instance && a.force.known && !a.force.done
}

// leaseFacts are the Lease as it was last seen.
func (a *Agent) leaseFacts(w *world) election.Lease {
	v := w.view
	lease := election.Lease{
		Known: v.Known, Holder: v.Holder, HolderPod: v.HolderPod, SystemIdentifier: v.SystemIdentifier,
		Expired: v.Expired, ExpiredFor: v.ExpiredFor, Held: a.keeper != nil && a.fresh(w),
		Members: v.Members, Position: v.Position, TimelineStart: v.TimelineStart, Timeline: v.Timeline,
		End: v.End,
	}
	if a.wasHandedOver(w) {
		lease.Holder, lease.HolderPod = a.options.Instance, "" // as the holder would have written it
	}
	if v.Sync != "" {
		set, err := election.ParseSyncSet(v.Sync)
		if err != nil {
			set = election.SyncSet{} // what cannot be understood must not be taken for asynchronous
		}
		lease.Sync = &set
	}
	return lease
}

// serverFacts are this instance's PostgreSQL.
func (a *Agent) serverFacts(w *world) election.Server {
	server := election.Server{Running: w.server.Running, Writable: w.server.Writable, Stopping: w.server.Stopping != 0}
	switch exit := w.server.Exit; {
	case w.server.Running:
	case exit != nil:
		server.Ended = max(w.now.Sub(exit.At), 1)
	case !a.volumeSince.IsZero():
		server.Ended = max(w.now.Sub(a.volumeSince), 1)
	}
	if !a.downSince.IsZero() {
		server.Down = max(w.now.Sub(a.downSince), 1)
		server.Failures = a.restarts.failures - a.failuresBefore
	}
	switch {
	case w.state == nil:
		server.Unable = "its PostgreSQL does not answer"
	case w.server.Stopping != 0:
		server.Unable = "its PostgreSQL is stopping"
	}
	return server
}

// noteDown takes note of since when PostgreSQL is not there although this instance is to run as the primary, and may: as long as the
// lease is not renewed it may not. A server that has answered since it was started is there, however slow it is, unless it says that
// it is starting again, or hangs.
func (a *Agent) noteDown(w *world) {
	switch {
	case w.view.Holder != a.options.Instance || !a.toRun || a.keeper == nil || !a.fresh(w):
		a.downSince, a.failuresBefore = time.Time{}, a.restarts.failures
	case w.server.Running && a.answered.Equal(w.server.Started) && !sql.IsStarting(w.stateErr) &&
		a.pulse.hung(w.now, hungBound, promotionBound) == "":
		a.downSince, a.failuresBefore = time.Time{}, 0
	case a.downSince.IsZero():
		a.downSince = w.now
	}
}

// noteToRun takes note of whether the decision is to run as the primary, or to give up doing so.
func (a *Agent) noteToRun(w *world) {
	switch w.decision.Rule {
	case "holder-failing", "holder-data-lost":
		a.toRun = true
	default:
		a.toRun = w.decision.Action == election.RunPrimary
	}
}

// memberFacts are another member, as it said last.
func (a *Agent) memberFacts(w *world, name string) election.Member {
	answer, silent := a.peers.Answer(name)
	member := election.Member{Name: name, Silent: silent}
	if asked, ok := a.promised[name]; ok {
		member.Promised = w.clock-asked < a.keeper.Timings().Duration
	}
	if answer == nil {
		return member
	}
	status := answer.Status
	member.Data, member.Age = dataOf(status), w.clock-answer.AskedAt
	member.Primary = status.Role == agentapi.RolePrimary && status.DataRole == agentapi.RolePrimary && status.State == agentapi.StateRunning
	member.Streaming, member.Fenced = status.Streaming, status.Fenced
	if status.AgentDigest == "" { // an agent of before failover would promote without any of its rules
		member.Unable = "its agent is older, and knows nothing of failover"
	}
	if a.config.Floor.Excludes(status.SystemIdentifier, status.Timeline) {
		member.Unable = beforeRecovery
	}
	if status.State != agentapi.StateRunning {
		member.Unable = fmt.Sprintf("its PostgreSQL does not run (%s)", status.State)
	}
	return member
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
	data := election.Data{
		Kind: election.DataPrimary, SystemIdentifier: control.SystemIdentifier, Position: control.Position,
		Newest: w.found.Newest, Clean: control.StoppedCleanly(),
	}
	if w.found.Standby {
		data.Kind = election.DataStandby
	}
	if w.state != nil {
		data.Kind, data.Clean = election.DataPrimary, false
		if w.state.InRecovery {
			data.Kind = election.DataStandby
			// A standby that crashed soon after it had followed its upstream to a new timeline shows the old one until it streams
			// again; the history that it fetched then tells. Its position must not be taken for one on the old timeline.
			data.Exact = w.state.ReadAll && w.found.Newest <= max(control.Position.Timeline, w.state.Timeline)
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
		Kind: kind, SystemIdentifier: status.SystemIdentifier, Exact: status.Exact,
		Position: postgres.Position{Timeline: status.Timeline, LSN: lsn},
	}
}
