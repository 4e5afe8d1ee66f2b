package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/backup"
)

// savedRetry is the pause after saved WAL could not be archived.
const savedRetry = 30 * time.Second

// savedWAL is the WAL that waited to be archived when this instance ceased to be primary, as the loop knows it (datadir.SaveWAL).
type savedWAL struct {
	// none says that there is none: it was looked for.
	none bool
	push *task
	next time.Time
	// failed says that the last push failed: what is kept may have to go then.
	failed bool
}

// saveWAL keeps the WAL of a primary that is about to run as a standby.
func (a *Agent) saveWAL(w *world) {
	b := &a.backups
	if a.detach || a.config.Backup == nil || b.command == dropWAL || !w.found.Control.StoppedCleanly() { // a repository that cannot be used yet will be
		return
	}
	count, err := a.volume.SaveWAL(backup.Stanza(a.major, w.found.Control.SystemIdentifier), w.found.Control.Redo)
	if err != nil {
		a.log.Error("Saving WAL that waits to be archived failed: recovery from a backup may end there", "error", err)
	}
	if count > 0 {
		a.log.Info("Saving WAL that waits to be archived, which a standby would remove", "files", count)
		b.saved.none = false
	}
}

// pushSavedWAL has what was saved archived, beside the loop and the server.
func (a *Agent) pushSavedWAL(background context.Context, w *world) {
	b := &a.backups
	s := &b.saved
	if err, isNew := s.push.result(); isNew {
		s.next, s.failed = w.now.Add(savedRetry), err != nil
		if err != nil {
			a.log.Warn("Archiving WAL that was saved failed, and is tried again", "error", err)
		}
	}
	if s.none || !s.push.isSettled() || w.now.Before(s.next) {
		return
	}
	// What it has written beyond a fork is not the cluster's: whether there is one it knows when it is the primary again, or follows the primary.
	if w.state == nil || w.state.InRecovery && !w.state.Streaming {
		return
	}
	paths, err := a.savedWAL()
	if err != nil {
		s.next = w.now.Add(savedRetry)
		a.log.Warn("Looking after WAL that was saved failed", "error", err)
		return
	}
	if s.none = len(paths) == 0; s.none {
		return
	}
	tool, stanza, timeline := b.tool, b.stanza, w.state.Timeline
	s.push = a.begin(background, "archive saved WAL", func(ctx context.Context) error {
		for n, path := range paths {
			if err := a.pushSaved(ctx, tool, stanza, path, timeline); err != nil {
				return fmt.Errorf("%w (%d files are left)", err, len(paths)-n)
			}
		}
		a.log.Info("The WAL that was saved is archived", "files", len(paths))
		return nil
	})
}

// savedWAL is what there is to push. What nobody can push is removed: that of another PostgreSQL system, and, if pushing fails, the oldest file when
// the volume is full, since a standby that cannot write is no standby any more.
func (a *Agent) savedWAL() ([]string, error) {
	dropped, err := a.volume.DropSavedWAL(a.backups.stanza)
	if len(dropped) > 0 {
		a.log.Error("Removing WAL that was never archived, of another PostgreSQL system", "stanzas", dropped)
	}
	paths, listErr := a.volume.SavedWAL(a.backups.stanza)
	if err := errors.Join(err, listErr); err != nil {
		return nil, err
	}
	if !a.backups.saved.failed || len(paths) == 0 || a.disk.size <= 0 || a.disk.free >= datadir.ReserveSize(a.disk.size) {
		return paths, nil
	}
	a.log.Error("Removing WAL that was never archived, since the volume is full: recovery from a backup may end there", "file", filepath.Base(paths[0]))
	if err := os.Remove(paths[0]); err != nil {
		return nil, fmt.Errorf("removing WAL that was saved: %w", err)
	}
	return paths[1:], nil
}

// pushSaved archives a file that was saved, unless it is not the cluster's any more, which is now on that timeline, and removes it.
func (a *Agent) pushSaved(ctx context.Context, tool *backrest.Tool, stanza, path string, timeline int64) error {
	name := filepath.Base(path)
	ours, err := a.volume.IsOnLine(name, timeline)
	if err != nil {
		return err
	}
	if ours {
		err = tool.Push(ctx, backrest.HostConfiguration, stanza, path)
	}
	switch {
	case !ours:
		a.log.Warn("Removing WAL that is not the cluster's any more: another primary took over before it", "file", name)
	case errors.Is(err, backrest.ErrOtherWAL):
		a.log.Error("The repository has other WAL under that name: what was saved is removed", "file", name, "error", err)
	case err != nil:
		return err
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing WAL that is archived: %w", err)
	}
	return nil
}

// forgetSavedWAL removes what was saved for backups that nobody wants any more.
func (a *Agent) forgetSavedWAL() {
	s := &a.backups.saved
	s.push.stop()
	if s.none {
		return
	}
	if _, err := a.volume.DropSavedWAL(""); err != nil {
		a.log.Warn("Removing WAL that was saved failed", "error", err)
		return
	}
	s.none = true
}
