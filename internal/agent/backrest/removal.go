package backrest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// Removal is the removal of a backup that runs, or ran last; nil if none did.
func (r *Runner) Removal() *agentapi.RemovalRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removal == nil {
		return nil
	}
	run := *r.removal
	return &run
}

// Remove begins to remove a backup, or says why it does not.
func (r *Runner) Remove(ctx context.Context, request agentapi.RemovalRequest) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.removal != nil && r.removal.ID == request.ID:
		return nil
	case r.endRemoval != nil:
		return fmt.Errorf("the backup %s is being removed", r.removal.Label)
	case r.cancel != nil:
		return fmt.Errorf("a backup is going on: %s", r.run.Name)
	}
	r.removal = &agentapi.RemovalRun{ID: request.ID, Label: request.Label, Started: time.Now()}
	ctx, r.endRemoval = context.WithCancelCause(ctx)
	r.Log.Info("Removing a backup that nobody wants any more", "label", request.Label)
	r.wait.Go(func() { r.remove(ctx, request) })
	go r.Changed()
	return nil
}

// remove removes the backup and takes note of what is left.
func (r *Runner) remove(ctx context.Context, request agentapi.RemovalRequest) {
	err := r.removeOne(ctx, request)
	found, listErr := r.listLast(ctx, request.Stanza)
	r.mu.Lock()
	ended := time.Now()
	r.endRemoval(nil)
	r.endRemoval = nil
	r.removal.Ended = &ended
	if err != nil {
		r.removal.Error = err.Error()
		r.Log.Warn("Removing a backup failed", "label", request.Label, "error", err)
	} else {
		r.Log.Info("A backup is removed", "label", request.Label)
	}
	if r.stanza == "" {
		r.stanza = request.Stanza
	}
	if r.stanza == request.Stanza {
		r.note(found, listErr)
	}
	r.mu.Unlock()
	r.Changed()
}

// removeOne removes the backup, unless it must stay: that may have changed since somebody asked. One that is not there is no error.
func (r *Runner) removeOne(ctx context.Context, request agentapi.RemovalRequest) error {
	found, err := r.list(ctx, request.Stanza)
	if err != nil {
		return err
	}
	backups := found.Backups
	if why := backup.Holds(request.Label, backups); why != "" {
		return errors.New(why)
	}
	if !slices.ContainsFunc(backups, func(b backup.Backup) bool { return b.Label == request.Label }) {
		return nil
	}
	left := 0
	for _, b := range backups {
		if b.Type == backup.Full && b.Label != request.Label {
			left++
		}
	}
	return r.Tool.Remove(ctx, HostConfiguration, request.Stanza, request.Label, left)
}
