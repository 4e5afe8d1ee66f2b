package agent

import (
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// publish makes the round's status known to whoever asks, and says whether the instance is ready and, as a standby, streams.
func (a *Agent) publish(w world, result outcome) bool {
	status := agentapi.Status{
		Instance: a.options.Instance, PodUID: a.options.PodUID, AgentVersion: a.options.Version,
		State: result.state, Role: result.role, Problem: result.problem,
		ServerVersion: a.programs.Version.Text, FilesHash: a.options.Paths.hash(),
		Switchover: a.handover.status(), Promised: w.view.Promise != nil,
		UpgradeProtocol: agentapi.UpgradeProtocol, KnowsInPlace: true,
	}
	if a.config != nil {
		status.LiveVersion, status.Upgrade = a.live(), a.describeUpgrade()
		status.Fenced = a.config.IsFenced(a.options.Instance)
	}
	if digest := a.programDigest.Load(); digest != nil {
		status.AgentDigest = *digest
	}
	if w.server.Running {
		status.ServerStarted = &w.server.Started
	}
	if full := a.diskProblem(); full != nil && (status.Problem == nil || status.Problem.Reason == reasonServer) {
		status.Problem = full
	}
	if status.Problem == nil {
		status.Problem = a.accessProblem(&w)
	}
	if a.conf != nil {
		status.ConfigGeneration = a.generationInForce(&w)
		if text := a.conf.Problem(); text != "" && status.Problem == nil {
			status.Problem = problem(reasonConfiguration, text)
		}
	}
	a.describeBackups(&status)
	a.describeInPlace(&w, &status)
	describeData(&w, &status)
	notReady := result.notReady
	if result.state == agentapi.StateRunning && w.state != nil {
		notReady = a.describeRunning(&w, &status, notReady)
	} else if notReady == "" {
		notReady = string(result.state)
	}
	if notReady == "" && status.Role == "" && !a.outside {
		notReady = "the instance has no role yet"
	}
	if notReady != "" && result.problem != nil {
		notReady += ": " + result.problem.Message
	}
	status.Ready = notReady == ""
	if a.outside && status.Ready && !a.expects(w.now) { // as it should be, but not for clients
		notReady = "PostgreSQL " + status.LiveVersion + " is live, and this is " + a.versionOf(a.options.Instance)
	}
	if a.expects(w.now) && w.server.Running && w.server.Stopping == 0 {
		notReady = "" // clients are sent here already: one probe that fails while it takes over would keep them away for seconds
	}
	a.board.Set(status)
	a.health.Beat(a.config != nil && result.state != "", notReady)
	return status.Ready && (status.Role == agentapi.RolePrimary || status.Streaming || a.outside)
}

// hasReloaded says whether the state that was observed is that after the last reload; before, it does not show what waits for a
// restart. PostgreSQL does not count a file with errors as read, so that this is bounded.
func (a *Agent) hasReloaded(w *world) bool {
	return w.state != nil && !w.state.ConfigRead.Before(a.reloadedAt) || w.now.Sub(a.reloadedAt) > reloadBound
}

// generationInForce is the configuration whose effect on the server has been seen: whoever sees its generation sees in the same status
// which parameters wait for a restart.
func (a *Agent) generationInForce(w *world) int64 {
	if a.hasReloaded(w) {
		return a.conf.Generation()
	}
	before, _ := a.board.Status()
	return before.ConfigGeneration
}

// describeData adds what is on the volume, and how far it has come.
func describeData(w *world, status *agentapi.Status) {
	// data of another version beside ours is what a major upgrade left or begins with
	status.DataKnown = w.looked && w.foundErr == nil && (len(w.found.Others) == 0 || w.found.Complete) && !w.found.Torn
	data := ownData(w)
	if !data.Kind.HasData() {
		return
	}
	status.HasData = true
	status.DataRole = agentapi.RolePrimary
	if w.found.Standby && (w.state == nil || w.state.InRecovery) {
		status.DataRole = agentapi.RoleStandby
	}
	status.SystemIdentifier = data.SystemIdentifier
	status.Timeline = data.Position.Timeline
	status.LSN = data.Position.LSN.String()
	status.Exact = data.Exact
}

// describeRunning adds what a running server says, and returns why it is not ready.
func (a *Agent) describeRunning(w *world, status *agentapi.Status, notReady string) string {
	state := w.state
	status.PendingRestart, status.Lowering = state.PendingRestart, state.Lowering
	a.describeSlots(w, status)
	if !state.InRecovery {
		a.describeHistory(w, status)
		a.describeSync(w, status)
		if status.Role != agentapi.RolePrimary && notReady == "" && !w.server.Detached {
			return "runs read-write, but is not the primary"
		}
		return notReady
	}
	status.Streaming, status.Upstream = state.Streaming, a.upstream
	status.ReplayLSN = state.Replayed.String()
	if state.Streaming {
		lag := state.Lag
		status.LagBytes = &lag
	}
	if state.Replayed == postgres.LSN(0) {
		status.ReplayLSN = ""
	}
	return notReady
}
