package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/recovery"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A recovery in place. The primary's agent makes the recovered data beside the present, on which PostgreSQL goes on. When the operator has heard from
// every instance that it knows Config.Floor, so that none with data from before would take over, it lets the primary replace its data: the
// server stops, the directories change places, and it starts again as the primary, on a timeline above all others. What was there before is
// kept until that server has run; if it does not come up, all is as it was. How far it is, is always read from the volume.

const (
	// beforeRecovery is why data from before a recovery in place does not take over.
	beforeRecovery = "its data is from before a recovery in place"
	// inPlaceAttempts is how often the recovered data is begun, inPlaceRetry the pause between two attempts.
	inPlaceAttempts = 3
	inPlaceRetry    = 30 * time.Second
	// inPlaceFailures is how often a server may end on the recovered data, without having run, until that before is put back.
	inPlaceFailures = 4
	// inPlaceSpare is what a recovery needs beside the data, and inPlaceFree the part of the volume, in percent, that it leaves free.
	inPlaceSpare = 256 << 20
	inPlaceFree  = 5
	// inPlaceSocket is the folder of the socket of the server that recovers.
	inPlaceSocket = "inplace"
)

// inPlace is what the loop remembers of a recovery in place.
type inPlace struct {
	// task makes the recovered data, or removes what is not needed any more; making says which.
	task   *task
	making bool
	// attempt is the one of which failures and failed are: it is tried again, or is over.
	attempt  string
	failures failures
	next     time.Time
	failed   string
}

// inPlaceFound is what the volume has of a recovery in place.
type inPlaceFound struct {
	// beside is for which recovery there is complete data beside the present, and control its control file; rest says that there is any.
	beside  string
	control postgres.Control
	rest    bool
	// present is the recovery that has made the present data, before says that what that has replaced is kept.
	present string
	before  bool
}

// findInPlace looks at the volume.
func (a *Agent) findInPlace() (inPlaceFound, error) {
	var found inPlaceFound
	var errs [4]error
	found.beside, found.control, errs[0] = a.volume.Beside()
	found.present, errs[1] = a.volume.RecoveredBy()
	found.before, errs[2] = a.volume.HasBefore()
	found.rest, errs[3] = a.volume.HasBeside()
	return found, errors.Join(errs[:]...)
}

// keepInPlace makes the recovered data while this instance is the primary, and removes what is not needed.
func (a *Agent) keepInPlace(ctx context.Context, w *world) {
	p, wanted := &a.inPlace, a.config.InPlace
	a.noteInPlace(w)
	primary := w.decision.Action == election.RunPrimary
	if p.making && (wanted == nil || !primary || wanted.Name != p.attempt || a.fillsVolume()) && !p.task.isDone() {
		p.task.cancel()
		return
	}
	if !w.found.Complete || !p.task.isSettled() {
		return
	}
	found, err := a.findInPlace()
	if err != nil {
		a.log.Error("Looking for the data of a recovery in place failed", "error", err)
		return
	}
	// An agent that was restarted is not the primary again yet; what it has made counts until another instance is.
	isAnothers := w.view.Known && w.view.Holder != "" && w.view.Holder != a.options.Instance
	runs := w.state != nil && !w.state.InRecovery && w.server.Writable
	switch {
	case found.before && runs:
		a.log.Info("Removing the data that was replaced", "recovery", found.present)
		a.inPlaceTask(ctx, false, func(context.Context) error { return a.volume.DropBefore() })
	case found.rest && (wanted == nil || isAnothers || found.beside != wanted.Name && found.beside != "" || p.failed != "" && p.attempt == wanted.Name):
		a.log.Info("Removing data that was recovered beside the present", "recovery", found.beside)
		a.inPlaceTask(ctx, false, func(context.Context) error { return a.volume.DropBeside() })
	case wanted == nil || !primary || !runs || found.present == wanted.Name || found.beside == wanted.Name:
	default:
		a.prepareInPlace(ctx, w, *wanted)
	}
}

func (a *Agent) inPlaceTask(ctx context.Context, making bool, do func(context.Context) error) {
	a.inPlace.making = making
	a.inPlace.task = a.begin(ctx, "in place", do)
}

// noteInPlace takes note of the end of the task.
func (a *Agent) noteInPlace(w *world) {
	p, wanted := &a.inPlace, a.config.InPlace
	if wanted != nil && wanted.Name != p.attempt && p.task.isDone() {
		*p = inPlace{task: p.task, attempt: wanted.Name}
	}
	err, isNew := p.task.result()
	if !isNew {
		return
	}
	if !p.making || err == nil {
		if err != nil {
			a.log.Warn("Removing data of a recovery in place failed", "error", err)
		}
		return
	}
	p.failures = failures{count: p.failures.count + 1, message: err.Error()}
	p.next = w.now.Add(inPlaceRetry)
	a.log.Warn("Making the data of a recovery in place failed", "attempts", p.failures.count, "error", err)
	if p.failures.count >= inPlaceAttempts || !errors.As(err, new(recovery.UnreachableError)) && !errors.Is(err, context.Canceled) {
		p.failed = err.Error()
	}
	if a.fillsVolume() {
		p.failed = fmt.Sprintf("less than %d %% of the volume were left while the data was made: make spec.storage.size greater", inPlaceFree)
	}
}

// fillsVolume says whether the volume has so little room left that PostgreSQL may need it.
func (a *Agent) fillsVolume() bool {
	size, free, err := a.volume.Space()
	return err == nil && free < size/100*inPlaceFree
}

// prepareInPlace begins to make the recovered data.
func (a *Agent) prepareInPlace(ctx context.Context, w *world, wanted agentapi.InPlace) {
	p := &a.inPlace
	if wanted.Replace { // it is another instance's, which is not the primary any more
		p.attempt, p.failed = wanted.Name, a.options.Instance+" is the primary now, and has no recovered data"
	}
	if p.failed != "" || w.now.Before(p.next) || a.config.Backup == nil || !a.backups.usable {
		return
	}
	seeder, tool, settings := *a.seeder, a.backups.tool, a.backupSettings("")
	stanza, port, users := a.backups.stanza, a.options.Ports.Postgres, a.users()
	socket := filepath.Join(a.options.Paths.Run, inPlaceSocket)
	a.log.Info("Making the data of a recovery in place", "recovery", wanted.Name, "target", wanted.Target.String())
	a.inPlaceTask(ctx, true, func(ctx context.Context) error {
		if _, err := tool.Write(recoveryConfiguration, settings); err != nil {
			return err
		}
		repository := recovery.Repository{Tool: tool, Configuration: recoveryConfiguration, Stanza: stanza}
		found, err := repository.Find(ctx, seeder.Programs.Version.Major, wanted.Target)
		if err != nil {
			return err
		}
		if err := roomFor(seeder.Volume, found.Backup); err != nil {
			return err
		}
		return repository.RecoverBeside(ctx, &seeder, found, recovery.Server{
			Socket: socket, Port: port, Users: users, // Its subscriptions would get, and confirm, what those of the database that serves are to get.
			Parameters: postgres.Parameters{"max_wal_size": "128MB", "max_logical_replication_workers": "0"},
		}, wanted.Name)
	})
}

// roomFor says, in figures, that there is no room for the data of the backup beside the present.
func roomFor(volume *datadir.Volume, b backup.Backup) error {
	size, free, err := volume.Space()
	if err != nil {
		return err
	}
	const mebi = 1 << 20
	if need := b.Size + b.Size/10 + inPlaceSpare + size/100*inPlaceFree; free < need {
		return fmt.Errorf("the recovered data is made beside the present, for which %d MiB must be free: %d MiB are. Make spec.storage.size greater", need/mebi, free/mebi)
	}
	return nil
}

// replaceInPlace puts the recovered data in place when it may, and that before back if no server runs on it; nil: there is nothing to wait for.
func (a *Agent) replaceInPlace(w *world) *outcome {
	p, wanted := &a.inPlace, a.config.InPlace
	if wanted == nil || !wanted.Replace || w.decision.Action != election.RunPrimary || !p.task.isSettled() || !a.seed.isSettled() || !a.fresh(w) {
		return nil
	}
	found, err := a.findInPlace()
	if err != nil {
		a.log.Error("Looking for the data of a recovery in place failed", "error", err)
		return nil
	}
	switch {
	case p.failed != "" && p.attempt == wanted.Name:
		return nil
	case found.present == wanted.Name:
		if found.before && !w.server.Running && a.restarts.failures >= inPlaceFailures {
			return a.change(w, "putting back the data from before", func() error {
				message := a.restarts.message
				if err := a.volume.GoBack(); err != nil {
					return err
				}
				p.attempt, p.failed = wanted.Name, "PostgreSQL did not come up on the recovered data, and that before was put back: "+message
				return nil
			})
		}
		return nil
	case found.beside != wanted.Name:
		return nil
	}
	why := a.cannotReplace(w, found.control)
	if why == "" && !w.server.Running {
		why = a.leavesWAL(w)
	}
	if why != "" {
		p.attempt, p.failed = wanted.Name, why
		return nil
	}
	if w.server.Running {
		if w.server.Stopping == 0 {
			a.log.Info("Stopping PostgreSQL, to put the recovered data in place", "recovery", wanted.Name)
			a.backups.last = lastWAL{}
			a.server.Stop(supervise.Fast)
			a.observer.Close()
		} else {
			a.watchLastWAL(w)
		}
		return &outcome{state: agentapi.StateStopping, role: agentapi.RolePrimary, notReady: "PostgreSQL is stopping, to be recovered in place"}
	}
	return a.change(w, "putting the recovered data in place", a.volume.ReplaceInPlace)
}

// cannotReplace is why the recovered data must not take the place of the present; empty: it may.
func (a *Agent) cannotReplace(w *world, control postgres.Control) string {
	own, timeline := w.found.Control, control.Position.Timeline
	switch {
	case control.SystemIdentifier != own.SystemIdentifier:
		return "the recovered data is of PostgreSQL system " + control.SystemIdentifier
	case !control.StoppedCleanly():
		return "the server that recovered did not stop properly"
	case a.archivingFails():
		return "WAL cannot be archived just now, so that what was written last would be lost with the data that is replaced"
	case timeline <= max(own.Position.Timeline, w.found.Newest, w.view.Timeline, w.view.Position.Timeline):
		return fmt.Sprintf("the recovered data is on timeline %d, which was given to a promotion meanwhile: try again", timeline)
	case !a.config.Floor.Excludes(own.SystemIdentifier, timeline-1) || a.config.Floor.Timeline != timeline:
		return fmt.Sprintf("the recovered data is on timeline %d, and another one was announced", timeline)
	}
	return ""
}

// leavesWAL is why the data that was just stopped cannot be replaced, although the recovered may take its place: what was written to it last is not in
// the repository. An orderly stop archives it.
func (a *Agent) leavesWAL(w *world) string {
	waiting, err := a.volume.WaitingWAL()
	saved, errSaved := a.volume.SavedWAL(a.backups.stanza)
	switch err = errors.Join(err, errSaved); {
	case err != nil:
		return err.Error()
	case !w.found.Control.StoppedCleanly():
		return "PostgreSQL did not stop in an orderly way, so that what was written last may not be archived"
	case waiting > 0 || len(saved) > 0:
		return fmt.Sprintf("what was written last is not in the repository: %d bytes of WAL wait to be archived, and %d files from before a hand-over", waiting, len(saved))
	}
	return ""
}

// change changes the data directory while no server runs, and decides anew; nil: all is well.
func (a *Agent) change(w *world, what string, do func() error) *outcome {
	a.log.Info("Changing the data directory", "what", what)
	err := do()
	if err == nil {
		w.found, w.foundErr = a.volume.Inspect()
		err = w.foundErr
	}
	if err != nil {
		a.log.Error("Changing the data directory failed", "what", what, "error", err)
		return &outcome{state: agentapi.StateFailed, role: agentapi.RolePrimary, problem: problem(reasonServer, what+": "+err.Error())}
	}
	a.conf.Forget()
	a.restarts.reset()
	w.decision = election.Decide(a.facts(w))
	return nil
}

// describeInPlace adds how far a recovery in place is.
func (a *Agent) describeInPlace(w *world, status *agentapi.Status) {
	if a.config == nil || a.volume == nil {
		return
	}
	p, wanted := &a.inPlace, a.config.InPlace
	if floor := a.config.Floor; floor != nil && w.looked && (!w.found.Complete || floor.SystemIdentifier == w.found.Control.SystemIdentifier) {
		status.Floor = floor.Timeline
	}
	if wanted == nil || status.Role != agentapi.RolePrimary {
		return
	}
	found, err := a.findInPlace()
	if err != nil {
		return
	}
	report := &agentapi.InPlaceReport{Name: wanted.Name, Stage: agentapi.InPlacePreparing, Error: p.failures.message}
	switch {
	case found.present == wanted.Name:
		if w.state == nil || w.state.InRecovery || !w.server.Writable {
			return // it is about to show whether a server runs on it
		}
		report.Stage, report.Timeline, report.Error = agentapi.InPlaceReplaced, w.state.Timeline, ""
	case p.failed != "" && p.attempt == wanted.Name:
		report.Stage, report.Error = agentapi.InPlaceFailed, p.failed
	case found.beside == wanted.Name:
		report.Stage, report.Timeline, report.Error = agentapi.InPlacePrepared, found.control.Position.Timeline, ""
	}
	status.InPlace = report
}
