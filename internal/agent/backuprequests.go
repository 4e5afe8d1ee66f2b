package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// backupAsked is something about backups that somebody has asked for, and where the loop's answer goes.
type backupAsked struct {
	begin  func(background context.Context, w *world) error
	answer chan error
}

// answerBound is how long a request waits for the loop.
const answerBound = 5 * time.Second

// askBackup has the loop begin a backup, or say why it does not.
func (a *Agent) askBackup(request agentapi.BackupRequest) error {
	return a.askLoop(func(background context.Context, w *world) error { return a.beginBackup(background, w, request) })
}

// askRemoval has the loop begin to remove a backup, or say why it does not.
func (a *Agent) askRemoval(request agentapi.RemovalRequest) error {
	return a.askLoop(func(background context.Context, _ *world) error { return a.beginRemoval(background, request) })
}

func (a *Agent) askLoop(begin func(background context.Context, w *world) error) error {
	asked := backupAsked{begin: begin, answer: make(chan error, 1)}
	timeout := time.NewTimer(answerBound)
	defer timeout.Stop()
	select {
	case a.backupsAsked <- asked:
	case <-timeout.C:
		return errors.New("the agent's loop does not go round")
	}
	a.poke()
	select {
	case err := <-asked.answer:
		return err
	case <-timeout.C:
		return errors.New("the agent's loop does not go round")
	}
}

// cancelBackup ends the backup of that ID.
func (a *Agent) cancelBackup(request agentapi.BackupRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.backupRunner != nil {
		a.backupRunner.Cancel(request.ID, backrest.ErrCancelled)
	}
	return nil
}

// takeBackups answers who has asked for a backup.
func (a *Agent) takeBackups(background context.Context, w *world) {
	for {
		select {
		case asked := <-a.backupsAsked:
			asked.answer <- asked.begin(background, w)
		default:
			return
		}
	}
}

// beginBackup begins a backup of the data here, if this is where it is to be read.
func (a *Agent) beginBackup(background context.Context, w *world, request agentapi.BackupRequest) error {
	b := &a.backups
	if err := a.canUseRepository(); err != nil {
		return err
	}
	if w.state == nil || w.server.Stopping != 0 {
		return errors.New("PostgreSQL does not run")
	}
	self := a.options.Instance
	hosts := []backrest.Host{a.backupHost(self)}
	switch {
	case request.Standby == self && w.state.InRecovery && w.state.Streaming:
		hosts = append(hosts, a.backupHost(request.Primary))
	case request.Standby == self:
		return fmt.Errorf("%s is not a standby that streams", self)
	case request.Standby == "" && request.Primary == self && w.decisionHoldsPrimary(a):
	default:
		return fmt.Errorf("%s is not the primary", self)
	}
	settings := a.backupSettings(b.stanza, hosts...)
	settings.Standby = request.Standby != ""
	a.mu.Lock()
	a.backupRunner = b.runner
	a.mu.Unlock()
	return b.runner.Begin(background, backrest.Job{
		Request: request, Stanza: b.stanza, Settings: settings,
		Retention: time.Duration(a.config.Backup.RetentionDays) * 24 * time.Hour,
	})
}

// canUseRepository is why the repository cannot be used from here.
func (a *Agent) canUseRepository() error {
	b := &a.backups
	switch {
	case a.config.Backup == nil:
		return errors.New("the cluster has no spec.backup")
	case b.missing != nil:
		return b.missing
	case a.config.Backup.Repository.Kind == agentapi.RepositoryHost:
		return errors.New("the repository host makes the backups, and removes them")
	case !b.usable:
		return errors.New("the repository cannot be used yet")
	}
	return nil
}

// beginRemoval begins to remove a backup of the system whose data is here.
func (a *Agent) beginRemoval(background context.Context, request agentapi.RemovalRequest) error {
	if err := a.canUseRepository(); err != nil {
		return err
	}
	if request.Stanza != a.backups.stanza {
		return fmt.Errorf("the backups of this instance are in the stanza %s, not in %s", a.backups.stanza, request.Stanza)
	}
	return a.backups.runner.Remove(background, request)
}
