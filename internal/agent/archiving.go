package agent

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// watchArchiver looks after a primary's archiver.
func (a *Agent) watchArchiver(ctx context.Context, w *world) {
	b := &a.backups
	if !w.decisionHoldsPrimary(a) || !b.usable {
		b.archive = nil
		return
	}
	a.holdArchive(false)
	if !b.rearchive.Equal(w.server.Started) {
		b.rearchive = w.server.Started
		if w.state.Timeline > 1 {
			a.archiveAgain(w.state.Timeline)
		}
	}
	if w.now.Sub(b.askedAt) < archiverInterval {
		return
	}
	b.askedAt = w.now
	archiver, err := a.observer.Archiver(ctx)
	if err != nil {
		return // the server's own state says that it does not answer
	}
	b.archive = a.describeArchiver(archiver, w.now)
}

func (a *Agent) describeArchiver(archiver sql.Archiver, now time.Time) *agentapi.Archive {
	b := &a.backups
	archive := &agentapi.Archive{LastWAL: archiver.LastWAL, LastAt: archiver.LastAt}
	if archiver.FailedAt == nil || archiver.LastAt != nil && archiver.LastAt.After(*archiver.FailedAt) {
		if b.archive != nil && b.archive.Failing != nil {
			b.runner.Doubt() // the repository is back
		}
		return archive
	}
	archive.FailedAt, archive.Failing = archiver.FailedAt, &now
	if b.archive != nil && b.archive.Failing != nil {
		archive.Failing = b.archive.Failing
	} else {
		b.runner.Doubt() // it has better words than the archiver, which may still wait
	}
	archive.Error = b.tool.ArchiveError(b.stanza)
	a.measureWaiting(archive)
	return archive
}

// measureWaiting says how much of the volume is WAL that waits to be archived, and how much is free.
func (a *Agent) measureWaiting(archive *agentapi.Archive) {
	waiting, err := a.volume.WaitingWAL()
	if err != nil || a.disk.size <= 0 {
		return // what the repository said is news enough
	}
	archive.KeptPercent, archive.FreePercent = percent(waiting, a.disk.size), percent(a.disk.free, a.disk.size)
}

// percent is the part of the whole, rounded down to a multiple of 5.
func percent(part, whole int64) int {
	const step = 5
	return int(part*100/whole) / step * step
}

// archiveAgain has the archiver see to all WAL that is here. While this instance was a standby the primary was to archive it, and may
// not have come to it; what is in the repository already is not stored twice.
func (a *Agent) archiveAgain(timeline int64) {
	count, err := a.volume.ArchiveAgain(timeline)
	if err != nil {
		a.log.Warn("Having the WAL of the former primary archived failed", "error", err)
		return
	}
	a.log.Info("Having the archiver see to the WAL of the former primary", "files", count)
}

// archivingFails says whether the repository takes no WAL just now: a server that stops would wait for it in vain. What is not archived
// stays here.
func (a *Agent) archivingFails() bool {
	return a.backups.archive != nil && a.backups.archive.Failing != nil
}

// archiverPatience is for how long a server that stops waits for an archiver that gets nothing done.
const archiverPatience = 15 * time.Second

// lastWAL is the WAL that a server archives before it ends.
type lastWAL struct {
	// waiting is how many bytes of it there were at since, when the archiver last got something done.
	waiting int64
	since   time.Time
	held    bool
}

// stuck says whether the archiver has got nothing done for its patience.
func (l *lastWAL) stuck(waiting int64, now time.Time) bool {
	if l.since.IsZero() || waiting < l.waiting {
		l.waiting, l.since = waiting, now
	}
	return now.Sub(l.since) >= archiverPatience
}

// watchLastWAL ends the archiver of a server that is shut down but for its last WAL, if the repository takes none: PostgreSQL tries six
// times before it ends, and each time can take half a minute. What is not archived stays here, and is archived at the next start.
func (a *Agent) watchLastWAL(w *world) {
	l := &a.backups.last
	if l.held || a.config.Backup == nil || w.found.Control.State != postgres.StateShutdown {
		return
	}
	waiting, err := a.volume.WaitingWAL()
	if err != nil || !l.stuck(waiting, w.now) {
		return
	}
	l.held = true
	a.log.Warn("The repository takes no WAL: stopping without", "waiting", waiting)
	a.holdArchive(true)
}

// holdArchive keeps PostgreSQL from archiving while it stops for a hand-over: a repository that does not answer would make writes wait.
func (a *Agent) holdArchive(hold bool) {
	if a.config.Backup == nil {
		return
	}
	path := a.options.Paths.holdArchive()
	if hold {
		if err := os.WriteFile(path, nil, 0o644); err != nil { //nolint:gosec // PostgreSQL may run as another user
			a.log.Warn("Holding the archiver failed", "error", err)
		} else if a.backups.tool != nil {
			a.backups.tool.EndPushes()
		}
		return
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("Letting the archiver go on failed", "error", err)
	}
}
