package backrest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// Names of configurations: that of the host itself, and that for one backup.
const (
	HostConfiguration   = "pgbackrest"
	backupConfiguration = "backup"
)

const (
	// infoInterval is how often the repository is looked at while nothing is done with it.
	infoInterval = 10 * time.Minute
	// retryFirst and retryLast bound the pause after a look, or a stanza, that failed.
	retryFirst = 5 * time.Second
	retryLast  = 2 * time.Minute
	// gapInterval is when it is looked at again if WAL is missing, and gapPatience for how long that is no gap yet: files are pushed beside each
	// other, and what a former primary still has comes late.
	gapInterval = time.Minute
	gapPatience = 3 * time.Minute
)

// Runner uses the repository: it looks after the stanza, knows what there is, and makes one backup at a time. Its methods may be
// called from several goroutines; none waits for the engine.
type Runner struct {
	Tool *Tool
	Log  *slog.Logger
	// Changed is called, from any goroutine, when there is news.
	Changed func()

	mu     sync.Mutex
	report agentapi.RepositoryReport
	run    *agentapi.BackupRun
	cancel context.CancelCauseFunc
	// removal is the removal of a backup that runs, or ran last; endRemoval ends it, nil: none runs.
	removal    *agentapi.RemovalRun
	endRemoval context.CancelCauseFunc
	// looking says that the stanza or the list is being seen to, next when that is due again, doubted when it last came to be
	// doubted, failures how often it failed in a row.
	looking  bool
	next     time.Time
	doubted  time.Time
	failures int
	stanza   string
	// gap is WAL that the list before lacked, gapSeen since when.
	gap     *backup.Gap
	gapSeen time.Time
	wait    sync.WaitGroup
}

// Report is what is known of the repository; nil if nothing was ever asked of it here.
func (r *Runner) Report() *agentapi.RepositoryReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.report.Stanza == "" && r.report.Error == "" {
		return nil
	}
	report := r.report
	return &report
}

// Run is the backup that runs, or ran last; nil if none did.
func (r *Runner) Run() *agentapi.BackupRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.run == nil {
		return nil
	}
	run := *r.run
	return &run
}

// Fail takes note of why the repository cannot be used at all.
func (r *Runner) Fail(why string) {
	r.mu.Lock()
	changed := r.report.Error != why || r.report.Ready
	r.report.Error, r.report.Ready, r.next = why, false, time.Time{}
	r.mu.Unlock()
	if changed {
		r.Log.Warn("The repository cannot be used", "error", why)
		r.Changed()
	}
}

// Keep sees to it that the stanza exists and that what is in it is known. It is called again and again, by who is to do so. remote is
// the address of the repository; empty: it is on this host.
func (r *Runner) Keep(ctx context.Context, stanza, remote string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stanza != stanza {
		r.stanza, r.next, r.failures = stanza, time.Time{}, 0
		r.report, r.gap = agentapi.RepositoryReport{Stanza: stanza}, nil
	}
	if r.looking || r.cancel != nil || r.endRemoval != nil || now.Before(r.next) {
		return
	}
	r.looking = true
	r.wait.Go(func() { r.look(ctx, stanza, remote) })
}

// Doubt has the repository looked at again soon, since something else says that it does not answer.
func (r *Runner) Doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.doubted = time.Time{}, time.Now()
}

// look reads what there is, and makes the stanza if it is not there. Making it takes the archiver's lock, which an archiver that waits
// for a repository out of reach does not let go: what is there already is not made again.
func (r *Runner) look(ctx context.Context, stanza, remote string) {
	began := time.Now()
	var found backup.Contents
	err := reach(ctx, remote)
	if err == nil {
		if found, err = r.survey(ctx, stanza); err == nil && found.Stanza == "" {
			if err = r.Tool.CreateStanza(ctx, HostConfiguration, stanza); err == nil {
				found, err = r.survey(ctx, stanza)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looking = false
	if ctx.Err() != nil || r.stanza != stanza {
		return
	}
	if r.usedSince(began) {
		r.next = time.Time{} // what was read may be older than that
		return
	}
	r.note(found, err)
	if err == nil && r.doubted.After(began) {
		r.next = time.Time{} // what it saw may be of before
	}
}

// note takes note of what was read. The caller holds the lock.
func (r *Runner) note(found backup.Contents, err error) {
	before := r.report
	if err != nil {
		r.next = time.Now().Add(min(retryFirst<<min(r.failures, 10), retryLast))
		r.failures++
		r.report.Error, r.report.Ready = err.Error(), false
	} else {
		r.next, r.failures = time.Now().Add(infoInterval), 0
		r.report = agentapi.RepositoryReport{
			Stanza: r.stanza, Ready: true, Known: true, Backups: found.Backups, Timeline: found.Line.Timeline, At: time.Now(),
			Gap: r.lasting(found.Gap),
		}
		r.report.Unsure = found.Gap != nil && r.report.Gap == nil
	}
	if before.Error != r.report.Error || before.Ready != r.report.Ready {
		r.Log.Info("The repository", "stanza", r.stanza, "ready", r.report.Ready, "backups", len(found.Backups), "error", r.report.Error)
	}
	if !reflect.DeepEqual(before, r.report) {
		go r.Changed()
	}
}

// lasting is the gap if it has been there for a while; else it has the repository looked at again before long. The caller holds the lock.
func (r *Runner) lasting(gap *backup.Gap) *backup.Gap {
	if gap == nil || r.gap == nil || r.gap.WAL != gap.WAL {
		r.gapSeen = time.Now()
	}
	r.gap = gap
	if gap == nil {
		return nil
	}
	r.next = time.Now().Add(gapInterval)
	if time.Since(r.gapSeen) < gapPatience {
		return nil
	}
	return gap
}

// survey is what is in the stanza, and what is missing after the newest good backup.
func (r *Runner) survey(ctx context.Context, stanza string) (backup.Contents, error) {
	found, err := r.list(ctx, stanza)
	if newest, ok := backup.Newest(found.Backups); err == nil && ok {
		found.Gap, err = r.Tool.Gap(ctx, HostConfiguration, found, newest)
	}
	return found, err
}

// list is what is in the stanza, as it is to a recovery along the newest timeline. It has no name if there is none.
func (r *Runner) list(ctx context.Context, stanza string) (backup.Contents, error) {
	all, err := r.Tool.Info(ctx, HostConfiguration, stanza)
	if err != nil {
		return backup.Contents{}, err
	}
	for _, contents := range all {
		if contents.Stanza == stanza {
			return r.Tool.Follow(ctx, HostConfiguration, contents, 0)
		}
	}
	return backup.Contents{}, nil
}

// Job is a backup to make.
type Job struct {
	Request  agentapi.BackupRequest
	Stanza   string
	Settings Settings
	// Retention is for how long every moment stays recoverable.
	Retention time.Duration
}

// Begin begins a backup, or says why it does not.
func (r *Runner) Begin(ctx context.Context, job Job) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	request := job.Request
	if r.run != nil && r.run.ID == request.ID {
		return nil
	}
	if r.cancel != nil {
		return fmt.Errorf("a backup is going on: %s", r.run.Name)
	}
	if r.endRemoval != nil {
		return fmt.Errorf("the backup %s is being removed", r.removal.Label)
	}
	instance := request.Standby
	if instance == "" {
		instance = request.Primary
	}
	r.run = &agentapi.BackupRun{ID: request.ID, Name: request.Name, Type: request.Type, Instance: instance, Started: time.Now()}
	ctx, r.cancel = context.WithCancelCause(ctx)
	r.Log.Info("Making a backup", "backup", request.Name, "primary", request.Primary, "standby", request.Standby)
	r.wait.Go(func() { r.make(ctx, job) })
	go r.Changed()
	return nil
}

// make makes the backup and removes what is not to be kept any more.
func (r *Runner) make(ctx context.Context, job Job) {
	result, err := r.backup(ctx, job)
	var removing error
	if err == nil {
		removing = r.retain(ctx, job)
	}
	found, listErr := r.listLast(ctx, job.Stanza)
	r.mu.Lock()
	ended := time.Now()
	r.cancel(nil)
	r.cancel = nil
	r.run.Ended, r.run.Result = &ended, result
	if err != nil {
		r.run.Error = err.Error()
		r.Log.Warn("A backup failed", "backup", job.Request.Name, "error", err)
	} else {
		r.Log.Info("A backup is complete", "backup", job.Request.Name, "label", result.Label, "size", result.Size, "stored", result.RepositorySize)
	}
	if r.stanza == "" {
		r.stanza = job.Stanza
	}
	if r.stanza == job.Stanza {
		r.note(found, listErr)
	}
	if removing != nil {
		r.report.Error = "removing old backups: " + removing.Error()
		r.Log.Warn("Removing old backups failed", "error", removing)
	}
	r.mu.Unlock()
	r.Changed()
}

func (r *Runner) backup(ctx context.Context, job Job) (*backup.Backup, error) {
	if _, err := r.Tool.Write(backupConfiguration, job.Settings); err != nil {
		return nil, err
	}
	found, err := r.list(ctx, job.Stanza)
	if err != nil {
		return nil, err
	}
	before, request, kind := found.Backups, job.Request, job.Request.Type
	if kind == "" {
		kind = backup.TypeDue(request.Method, before, time.Duration(request.FullEverySeconds)*time.Second, time.Now())
	}
	r.mu.Lock()
	r.run.Type = kind
	r.mu.Unlock()
	if err := r.Tool.Backup(ctx, backupConfiguration, job.Stanza, kind, request.Name); err != nil {
		return nil, err
	}
	found, err = r.list(ctx, job.Stanza)
	if err != nil {
		return nil, fmt.Errorf("the backup was made, and then the repository could not be read: %w", err)
	}
	newest := backup.ByAge(found.Backups)
	if len(newest) == 0 || len(before) > 0 && newest[len(newest)-1].Label == backup.ByAge(before)[len(before)-1].Label {
		return nil, errors.New("pgBackRest said that it made a backup, and the repository has none that is new")
	}
	made := newest[len(newest)-1]
	if made.Name == "" {
		made.Name = request.Name
	}
	return &made, nil
}

// retain removes what is not to be kept any more.
func (r *Runner) retain(ctx context.Context, job Job) error {
	if job.Retention <= 0 {
		return nil
	}
	found, err := r.list(ctx, job.Stanza)
	if err != nil {
		return err
	}
	if plan := backup.Retain(found.Backups, job.Retention, time.Now()); len(plan.Remove) > 0 {
		r.Log.Info("Removing backups that are not to be kept any more", "remove", plan.Remove, "keepFull", plan.KeepFull)
		if err := r.Tool.Expire(ctx, HostConfiguration, job.Stanza, plan.KeepFull); err != nil {
			return err
		}
	}
	return r.removeOutlived(ctx, job, found)
}

// removeOutlived removes what earlier generations of the cluster left in the repository, when none of it is to be kept any more.
func (r *Runner) removeOutlived(ctx context.Context, job Job, present backup.Contents) error {
	all, err := r.Tool.Info(ctx, HostConfiguration, "")
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].Stanza == present.Stanza {
			all[i] = present
		}
	}
	for _, stanza := range backup.Outlived(all, job.Stanza, job.Retention, time.Now()) {
		r.Log.Info("Removing the backups and the WAL of an earlier generation, none of which is to be kept any more", "stanza", stanza)
		if err := r.Tool.DeleteStanza(ctx, HostConfiguration, stanza); err != nil {
			return err
		}
	}
	return nil
}
