package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/backrest"
)

const (
	// savedRetry is the pause after saved WAL could not be archived.
	savedRetry = 30 * time.Second
	// savedRoom is how much of the volume, in percent, must be free for WAL to be saved: a standby that cannot write is no standby any more.
	savedRoom = 5
)

// savedWAL is the WAL that waited to be archived when this instance ceased to be primary, as the loop knows it (datadir.SaveWAL).
type savedWAL struct {
	// none says that there is none: it was looked for.
	none bool
	push *task
	next time.Time
}

// saveWAL keeps the WAL of a primary that is about to run as a standby.
func (a *Agent) saveWAL(w *world) {
	b := &a.backups
	if a.detach || a.config.Backup == nil || !b.usable || b.command == dropWAL || !w.found.Control.StoppedCleanly() {
		return
	}
	count, err := a.volume.SaveWAL(b.stanza, w.found.Control.Redo)
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
		s.next = w.now.Add(savedRetry)
		if err != nil {
			a.log.Warn("Archiving WAL that was saved failed, and is tried again", "error", err)
		}
	}
	if s.none || !s.push.isSettled() || w.now.Before(s.next) {
		return
	}
	keep := b.stanza
	if a.disk.size > 0 && percent(a.disk.free, a.disk.size) < savedRoom {
		keep = ""
	}
	dropped, err := a.volume.DropSavedWAL(keep)
	if len(dropped) > 0 {
		a.log.Error("Removing WAL that was never archived: it is of another system, or the volume is full", "stanzas", dropped)
	}
	paths, listErr := a.volume.SavedWAL(b.stanza)
	if err := errors.Join(err, listErr); err != nil {
		s.next = w.now.Add(savedRetry)
		a.log.Warn("Looking after WAL that was saved failed", "error", err)
		return
	}
	if s.none = len(paths) == 0; s.none {
		return
	}
	tool, stanza := b.tool, b.stanza
	s.push = a.begin(background, "archive saved WAL", func(ctx context.Context) error {
		for n, path := range paths {
			err := tool.Push(ctx, backrest.HostConfiguration, stanza, path)
			if errors.Is(err, backrest.ErrOtherWAL) {
				a.log.Error("The repository has other WAL under that name: what was saved is removed", "file", filepath.Base(path), "error", err)
			} else if err != nil {
				return fmt.Errorf("%w (%d files are left)", err, len(paths)-n)
			}
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("removing WAL that is archived: %w", err)
			}
		}
		a.log.Info("The WAL that was saved is archived", "files", len(paths))
		return nil
	})
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
