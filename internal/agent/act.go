package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/conf"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agent/recovery"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// act does what was decided, as far as one round goes.
func (a *Agent) act(ctx context.Context, w *world) outcome {
	a.takeSeed(w)
	a.keepForce()
	if !a.giving.isDone() {
		return outcome{state: agentapi.StateStopping, role: agentapi.RolePrimary, notReady: "giving the lease away"}
	}
	a.want(w)
	if a.fence(w) {
		return outcome{state: agentapi.StateStopping, notReady: "runs read-write without the lease"}
	}
	if waiting := a.replaceInPlace(w); waiting != nil {
		return *waiting
	}
	switch w.decision.Action {
	case election.Bootstrap:
		return a.bootstrap(ctx, w)
	case election.RunPrimary:
		return a.runPrimary(ctx, w)
	case election.RunStandby:
		return a.runStandby(ctx, w)
	case election.CloneFrom:
		return a.clone(ctx, w, w.decision.Upstream)
	case election.Refuse:
		a.server.Stop(supervise.Fast)
		return outcome{state: agentapi.StateFailed, problem: problem(refusals[w.decision.Problem], w.decision.Reason)}
	case election.Stop:
		return a.stop(ctx, w)
	case election.HandOver, election.Release:
		return a.giveAway(ctx, w)
	case election.Wait, election.Campaign:
		return a.wait(w)
	}
	return outcome{}
}

// want tells the keeper whether the lease is wanted.
func (a *Agent) want(w *world) {
	a.forgetSync(w)
	a.publishLease(w)
	w.view.Syncs = a.view().Syncs // with what was on its way until then
	decision := w.decision
	claim := lease.Claim{
		Seen: w.view.Record, Timeline: decision.Timeline,
		Campaign: decision.Action == election.Campaign, HandedOver: a.wasHandedOver(w),
	}
	if decision.Sync != nil {
		claim.Sync = &lease.Sync{Set: decision.Sync.String(), Mode: string(a.config.Availability.Synchronous.Mode)}
	}
	switch decision.Action {
	case election.Bootstrap, election.RunPrimary, election.Campaign:
		a.keeper.Take(claim)
	case election.Stop: // a lease that is held is kept; one that another Pod of this instance may hold is not taken
		if w.view.Holder == a.options.Instance && w.view.HolderPod == a.options.PodUID {
			a.keeper.Take(claim)
		} else {
			a.keeper.Hold(false)
		}
	case election.HandOver, election.Release: // that is the hand-over's
	case election.Wait, election.RunStandby, election.CloneFrom, election.Refuse:
		a.keeper.Hold(false)
	}
}

var refusals = map[election.Problem]string{
	election.SystemMismatch: reasonSystem, election.DataLost: reasonDataLost, election.MembersSilent: reasonNoPrimary,
	election.LagTooGreat: reasonLag, election.QuorumMissing: reasonQuorum, election.InstanceFenced: reasonFenced,
}

// fence stops a server that writes, or may, although this instance is not to be primary. The guard does that too when the
// lease is lost; here are also the cases in which somebody promoted a standby by hand.
func (a *Agent) fence(w *world) bool {
	writes := w.server.Writable || w.state != nil && !w.state.InRecovery
	held := w.server.Writable && w.view.Holding
	if !writes || w.decision.Action == election.RunPrimary && w.server.Writable || w.decision.Action == election.Stop && held {
		return false
	}
	a.server.Stop(supervise.Immediate) // before anything is said, which may block
	a.log.Error("Stopping PostgreSQL, which runs read-write without the lease", "holder", w.view.Holder)
	return true
}

// wait runs nothing that may write; a standby goes on, and may be read for a while.
func (a *Agent) wait(w *world) outcome {
	result := a.serverOutcome(w)
	if w.state != nil && w.state.InRecovery && w.server.Stopping == 0 {
		result.role = agentapi.RoleStandby
	}
	if !a.readable(w) {
		result.notReady = w.decision.Reason
	}
	if reason, ok := refusals[w.decision.Problem]; ok {
		result.problem = problem(reason, w.decision.Reason)
	}
	return result
}

// readable says whether a standby may be read although nobody is primary: it has received all there was a moment ago.
func (a *Agent) readable(w *world) bool {
	return w.state != nil && w.state.InRecovery && w.server.Stopping == 0 &&
		a.lastStreamed.After(w.server.Started) && w.now.Sub(a.lastStreamed) < orphanGrace
}

// bootstrap makes a new PostgreSQL system, once the lease is held.
func (a *Agent) bootstrap(ctx context.Context, w *world) outcome {
	if !a.fresh(w) {
		return outcome{state: agentapi.StateWaiting, notReady: "taking the lease", problem: a.leaseProblem(w)}
	}
	if a.config.Recovery != nil {
		return a.recoverData(ctx, w)
	}
	if a.seed.isSettled() && !w.now.Before(a.clones.next) {
		a.log.Info("Making a new PostgreSQL system")
		seeder := a.seeder
		a.seed = a.begin(ctx, "initdb", seeder.InitDB)
	}
	return a.seedOutcome(agentapi.RolePrimary, "a new PostgreSQL system is being made")
}

// takeSeed takes note of a seed that has ended.
func (a *Agent) takeSeed(w *world) {
	err, isNew := a.seed.result()
	if !isNew {
		return
	}
	a.conf.Forget()
	a.noteSeed(err)
	if err != nil {
		a.clones.failed(w.now, err.Error())
		a.clones.unreachable = errors.As(err, new(recovery.UnreachableError))
		a.log.Warn("Making the data failed", "attempts", a.clones.failures, "error", err)
		return
	}
	a.log.Info("The data is complete")
	a.clones, a.reclone = clones{}, ""
	a.restarts.reset()
	a.lastStreamed = time.Time{}
	found, err := a.volume.Inspect()
	if err != nil {
		a.log.Error("The new data cannot be read", "error", err)
		w.decision = election.Decision{Action: election.Wait, Reason: err.Error()}
		return
	}
	w.found, w.foundErr = found, nil
	if w.decision.Action == election.Bootstrap {
		a.keeper.SetSystemIdentifier(found.Control.SystemIdentifier)
	}
	w.decision = election.Decide(a.facts(w))
}

// seedOutcome is the outcome while data is being made.
func (a *Agent) seedOutcome(role agentapi.Role, what string) outcome {
	result := outcome{state: agentapi.StateSeeding, role: role, notReady: what}
	if a.clones.failures > 0 && time.Since(a.clones.since) > seedPatience {
		result.problem = problem(reasonSeed, a.clones.message)
	}
	return result
}

// start starts the server if it may be started by now.
func (a *Agent) start(ctx context.Context, w *world, writable bool, upstream string) outcome {
	if w.now.Before(a.restarts.next) {
		return a.serverOutcome(w)
	}
	if !a.seed.isSettled() {
		return a.seedOutcome("", "data is being made")
	}
	if size, _, err := a.volume.Space(); err == nil {
		a.volumeSize = size // as it is at the start: some file systems change it all the time
	}
	settings := a.settings(w, upstream)
	if !writable { // also a primary's data that begins a new timeline: it recovers as a standby first
		settings.Minimums = w.found.Control.Minimums
	}
	a.conf.Choose(ctx, a.choice(), settings)
	a.conf.Forget()
	if !writable {
		a.saveWAL(w)
	}
	err := errors.Join(a.volume.SetStandby(!writable), a.volume.DropReserved())
	if err == nil {
		_, err = a.conf.Apply(settings)
	}
	if err == nil {
		err = errors.Join(a.volume.RemovePIDFile(), datadir.RemoveSockets(a.options.Paths.Run))
	}
	if err == nil && writable && !a.detach && !a.fresh(&world{view: a.view()}) {
		return outcome{state: agentapi.StateWaiting, notReady: "renewing the lease"} // it took too long to come here
	}
	if err == nil {
		a.upstream, a.reloadedAt, a.admits = upstream, time.Time{}, false
		a.files.certificatesChanged(a.options.Paths) // the server reads them now
		a.log.Info("Starting PostgreSQL", "writable", writable, "upstream", upstream)
		err = a.server.Start(supervise.Spec{Program: a.programs.Postgres, DataDirectory: a.volume.Dir(), Writable: writable, Detached: a.detach})
	}
	if err != nil {
		a.restarts.failed(w.now, err.Error())
		a.log.Error("Starting PostgreSQL failed", "error", err)
	}
	w.server = a.server.Snapshot()
	return a.serverOutcome(w)
}

// choice is what the user wants.
func (a *Agent) choice() conf.Choice {
	return conf.Choice{Parameters: a.config.Parameters, HBA: a.config.HBA, Generation: a.config.Generation}
}

// settings are those of a standby of upstream, or of a primary if that is empty.
func (a *Agent) settings(w *world, upstream string) postgres.Settings {
	paths := a.options.Paths
	settings := postgres.Settings{
		Major: a.major, Name: a.options.Instance, MemoryLimit: a.options.MemoryLimit,
		ListenAddresses: "*", Port: a.options.Ports.Postgres,
		SocketDirectory: paths.Run, LogDirectory: paths.logs(),
		HBAFile: a.volume.Dir() + "/pg_hba.conf", IdentFile: a.volume.Dir() + "/pg_ident.conf",
		CertFile: paths.secret(naming.DirServer, naming.KeyTLSCert), KeyFile: paths.secret(naming.DirServer, naming.KeyTLSKey),
		CAFile: paths.secret(naming.DirServer, naming.KeyCACert),
	}
	if a.options.ListenAddress != "" {
		settings.ListenAddresses = a.options.ListenAddress
	}
	settings.VolumeSize = a.volumeSize
	detached := a.detach || w.server.Detached && a.outside
	settings.Still = a.switching.isClosed()
	settings.Closed = settings.Still || detached
	settings.Upgrade = a.config.Upgrade != nil && (a.config.Upgrade.Seed != "" || a.config.Upgrade.Origin != "")
	settings.ArchiveCommand = a.archiveCommand()
	if detached && a.besides.spare && settings.ArchiveCommand != "" { // its stanza is made when it has the writes: until then WAL would pile up
		settings.ArchiveCommand = dropWAL
	}
	if !detached { // nobody waits for what a detached server commits
		settings.SyncStandbys = syncNames(a.syncToUse(w))
	}
	settings.ReadOnly = a.disk.full != ""
	settings.Promoting = promotes(w)
	if w.found.Standby || upstream != "" {
		settings.Minimums = w.found.Control.Minimums
	}
	if upstream != "" {
		settings.PrimaryConninfo = a.conninfo(upstream)
		settings.PrimarySlot = naming.SlotName(a.options.Instance)
	}
	return settings
}

// conninfo is how a standby connects to its upstream: over TLS, by certificate, to the instance's own stable name, and never
// waiting long for a host that is gone.
func (a *Agent) conninfo(upstream string, more ...postgres.Keyword) string {
	return a.conninfoOf(a.hostOf(upstream), naming.ReplicationUser, more...)
}

// conninfoOf is how one of our roles connects to a host. It may be called from beside the loop.
func (a *Agent) conninfoOf(host, user string, more ...postgres.Keyword) string {
	paths := a.options.Paths
	keywords := []postgres.Keyword{
		{Name: "host", Value: host},
		{Name: "port", Value: fmt.Sprint(a.options.Ports.Postgres)},
		{Name: "user", Value: user},
		{Name: "application_name", Value: a.options.Instance},
		{Name: "sslmode", Value: "verify-full"},
		{Name: "sslrootcert", Value: paths.secret(naming.DirReplication, naming.KeyCACert)},
		{Name: "sslcert", Value: paths.secret(naming.DirReplication, naming.KeyTLSCert)},
		{Name: "sslkey", Value: paths.secret(naming.DirReplication, naming.KeyTLSKey)},
		{Name: "connect_timeout", Value: "3"},
		{Name: "keepalives_idle", Value: "5"},
		{Name: "keepalives_interval", Value: "2"},
		{Name: "keepalives_count", Value: "3"},
		{Name: "tcp_user_timeout", Value: "10000"},
	}
	return postgres.Conninfo(append(keywords, more...)...)
}

func (a *Agent) hostOf(instance string) string {
	for _, member := range a.config.Members {
		if member.Name == instance && member.Host != "" {
			return member.Host
		}
	}
	return naming.InstanceHost(a.config.Cluster, a.config.Namespace, instance)
}

// reload puts changed settings and certificates in force on a running server.
func (a *Agent) reload(ctx context.Context, w *world, upstream string) {
	a.refuseWhatRefusesSessions(ctx, w)
	settings := a.settings(w, upstream)
	a.conf.Choose(ctx, a.choice(), settings)
	changed, err := a.conf.Apply(settings)
	if err != nil {
		a.log.Error("Writing the configuration failed", "error", err)
		return
	}
	if changed && w.state != nil {
		if refused, err := a.observer.HBAErrors(ctx); err == nil && len(refused) > 0 {
			a.conf.Refuse("pg_hba " + refused[0])
			if _, err := a.conf.Apply(settings); err != nil {
				a.log.Error("Writing the configuration failed", "error", err)
				return
			}
		}
	}
	a.confClosed = settings.Closed
	certificates := a.files.certificatesChanged(a.options.Paths)
	if changed || certificates || a.reloadPID == w.server.PID {
		if certificates {
			a.reloadBackupServer()
		}
		a.log.Info("Reloading PostgreSQL", "configuration", changed, "certificates", certificates)
		a.upstream = upstream
		a.reloadPID, a.reloadedAt, a.admits = 0, time.Now(), false
		if !a.server.Reload() {
			a.reloadPID = w.server.PID // again in the next round
		}
		return // what it did to the server is seen in the next round
	}
	if w.state != nil && a.hasReloaded(w) && len(w.state.PendingRestart) == 0 {
		if err := a.conf.Proved(); err != nil {
			a.log.Error("Keeping the configuration failed", "error", err)
		}
	}
}

// refuseWhatRefusesSessions goes back to the last configuration with which sessions could begin. PostgreSQL checks some parameters only then,
// such as session_preload_libraries; the connection that looks at the server was there before.
func (a *Agent) refuseWhatRefusesSessions(ctx context.Context, w *world) {
	if a.admits || !a.conf.Unproven() || !a.hasReloaded(w) {
		return
	}
	err := w.stateErr
	if w.state != nil {
		err = a.observer.Admits(ctx)
	}
	a.admits = w.state != nil && err == nil
	if sql.RefusesSessions(err) {
		a.log.Warn("Going back to the configuration before, since no session can begin with this one", "error", err)
		a.conf.Refuse("no session can begin with it: " + err.Error())
	}
}

// serverOutcome is the outcome as the server's process has it.
func (a *Agent) serverOutcome(w *world) outcome {
	result := outcome{}
	switch {
	case w.server.Running && w.server.Stopping != 0:
		result.state, result.notReady = agentapi.StateStopping, "PostgreSQL is stopping"
	case w.server.Running && w.state != nil:
		result.state = agentapi.StateRunning
	case w.server.Running:
		result.state, result.notReady = agentapi.StateStarting, "PostgreSQL is starting"
		if a.answered.Equal(w.server.Started) && w.stateErr != nil && !sql.IsAnswer(w.stateErr) {
			result.notReady, result.problem = "PostgreSQL does not answer", a.hungProblem(w.now)
		}
		if w.stateErr != nil {
			result.notReady += ": " + w.stateErr.Error()
		}
	default:
		result.state, result.notReady = agentapi.StateWaiting, "PostgreSQL is not running"
	}
	if a.restarts.failures >= failuresReported {
		result.problem = problem(reasonServer, a.restarts.message)
		if !w.server.Running {
			result.state = agentapi.StateFailed
		}
	}
	return result
}

// fingerprint is a short text that changes when any of the values does.
func fingerprint(values ...any) string {
	content, err := json.Marshal(values)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}
