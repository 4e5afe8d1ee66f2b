package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/datadir"
	"github.com/pgsteward/pgsteward/internal/agent/logs"
	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// Coming back: data that has something which the present primary does not have cannot follow it. It is rewound, and if that
// fails, or does not help, copied again. Each way has a bound, and ends in the next.
//
// Who is asked first differs. A server that was shut down is simply started as a standby: PostgreSQL itself compares timelines,
// and says so when its own has gone further than the fork. A primary that crashed would first bring back what nobody else has;
// the new primary's history decides about it before it is started.

const (
	// DefaultRewindBound is how long a rewind may take before the data is copied instead.
	DefaultRewindBound = 5 * time.Minute
	// upstreamPatience is how long a primary that crashed waits for its successor's history.
	upstreamPatience = 20 * time.Second
	// upstreamInterval is between two questions meanwhile.
	upstreamInterval = time.Second
	// rewindsAtMost is how often the data is rewound without being able to follow afterwards.
	rewindsAtMost = 2
	// checkpointsAtMost is how often the checkpoint that a rewind needs may not end in time.
	checkpointsAtMost = 3
	// damageAtMost is how often a standby may end because of damaged data before it is copied again.
	damageAtMost = 3
	// unreadableBound is how long a control file may be unreadable before the data is copied again.
	unreadableBound = 10 * time.Second
	// The pause before data is copied again that was copied, and still could not be used, doubles from copyAgainFirst.
	copyAgainFirst = 30 * time.Second
	copyAgainLast  = 15 * time.Minute
)

// comeback is what the loop remembers about data that must be mended.
type comeback struct {
	// rewind is why the data must be rewound; empty if it need not be. rewinding says that the task a.seed does it.
	rewind    string
	rewinding bool
	// rewinds and copies count those since the server last followed for a while.
	rewinds int
	copies  int
	// checkpoints counts the checkpoints of the upstream that did not end in time.
	checkpoints int
	// waiting is since when the upstream's history is waited for, unreadable since when the control file cannot be read.
	waiting    time.Time
	unreadable time.Time
	// damage counts the ends of the server that were due to damaged data.
	damage failures
}

// comeBack makes sure, before a server is started as a standby, that it can be one; nil if it can, as far as is known.
func (a *Agent) comeBack(ctx context.Context, w *world, upstream string) *outcome {
	control := w.found.Control
	if upstream == "" || w.found.Standby || control.StoppedCleanly() {
		a.back.waiting = time.Time{}
		return nil
	}
	holder := upstreamOf(a.askUpstream(ctx, w.now, upstream, upstreamInterval))
	way := election.ComeBack(ownData(w), holder, a.programs.Rewind != "")
	if way == election.WaitForUpstream {
		if a.back.waiting.IsZero() {
			a.back.waiting = w.now
		}
		if w.now.Sub(a.back.waiting) < upstreamPatience {
			return &outcome{
				state: agentapi.StateWaiting, role: agentapi.RoleStandby,
				notReady: fmt.Sprintf("this instance was primary and crashed; waiting for %s to say where its timeline began", upstream),
			}
		}
		return nil // PostgreSQL will say whether it can follow
	}
	a.back.waiting = time.Time{}
	why := fmt.Sprintf("it crashed as the primary of timeline %d, and may have gone further than what timeline %d of %s has of it",
		control.Position.Timeline, holder.Timeline, upstream)
	switch way {
	case election.Rewind, election.Reclone:
		if way == election.Reclone && a.programs.Rewind != "" {
			a.wantCopy(why)
		} else {
			a.wantRewind(why)
		}
	case election.Follow, election.WaitForUpstream:
		return nil
	}
	result := a.mend(ctx, w, upstream)
	return &result
}

// wantRewind notes that the data must be rewound; or copied, if it cannot be rewound or that did not help.
func (a *Agent) wantRewind(why string) {
	switch {
	case a.programs.Rewind == "":
		a.wantCopy(why + "; " + datadir.ErrNoRewind.Error())
	case a.back.rewinds >= rewindsAtMost:
		a.wantCopy(why + ", although it was rewound")
	default:
		a.log.Warn("Rewinding the data", "reason", why)
		a.back.rewind = why
	}
}

// wantCopy notes that the data must be copied again. A copy that did not help is made again ever more rarely.
func (a *Agent) wantCopy(why string) {
	a.reclone, a.back.rewind = why, ""
	if copies := a.back.copies; copies > 0 {
		a.clones.next = time.Now().Add(min(copyAgainFirst<<min(copies-1, 10), copyAgainLast))
	}
	a.log.Warn("Copying the data again", "reason", why, "copies", a.back.copies)
}

// rewind makes the data one that can follow the upstream.
func (a *Agent) rewind(ctx context.Context, w *world, upstream string) outcome {
	result := a.seedOutcome(agentapi.RoleStandby, a.rewindText(upstream))
	if !a.stopForSeed(w) || !a.maySeed(w, upstream) {
		return result
	}
	conninfo := a.conninfo(upstream, postgres.Keyword{Name: "dbname", Value: "postgres"})
	checkpointBound := cmp.Or(a.options.CheckpointBound, sql.DefaultCheckpointBound)
	seeder, bound, stanza := a.seeder, a.options.RewindBound, backup.Stanza(a.major, w.found.Control.SystemIdentifier)
	if bound <= 0 {
		bound = DefaultRewindBound
	}
	a.log.Info("Rewinding", "upstream", upstream, "attempt", a.back.rewinds+1)
	a.back.rewinding = true
	a.seed = a.begin(ctx, upstream, func(ctx context.Context) error {
		err := (sql.Upstream{Conninfo: conninfo, Bound: checkpointBound}).Checkpoint(ctx)
		if errors.Is(err, sql.ErrCheckpointSlow) {
			return fmt.Errorf("the checkpoint on %s, which rewinding needs, did not end within %s: %w", upstream, checkpointBound, err)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errUpstream, err)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("pg_rewind was not done after %s", bound))
		defer cancel()
		if err := a.volume.PutBackWAL(stanza); err != nil {
			return err
		}
		return seeder.Rewind(ctx, conninfo)
	})
	return result
}

func (a *Agent) rewindText(upstream string) string {
	return fmt.Sprintf("data is being rewound to follow %s: %s", upstream, a.back.rewind)
}

// errUpstream is that the upstream does not do what is needed of it before anything is touched.
var errUpstream = errors.New("the upstream cannot be asked")

// noteSeed takes note of the end of a task that made data.
func (a *Agent) noteSeed(err error) {
	if err == nil {
		a.back.damage = failures{}
	}
	if !a.back.rewinding {
		if err == nil && a.reclone != "" {
			a.back.copies++
		}
		return
	}
	a.back.rewinding = false
	switch {
	case err == nil:
		a.back.rewinds++
		a.back.rewind, a.back.checkpoints = "", 0
		a.log.Info("The data is rewound")
	case errors.Is(err, sql.ErrCheckpointSlow):
		if a.back.checkpoints++; a.back.checkpoints >= checkpointsAtMost {
			a.wantCopy(err.Error())
		}
	case errors.Is(err, errUpstream), errors.Is(err, context.Canceled):
		// Nothing could be copied from there either; or the upstream has changed.
	default:
		a.wantCopy("rewinding failed: " + err.Error())
	}
}

// stopForSeed says whether no server runs on the data that is to be changed; it stops the one that does.
func (a *Agent) stopForSeed(w *world) bool {
	if !w.server.Running {
		return true
	}
	a.server.Stop(supervise.Fast)
	return false
}

// maySeed says whether a task may begin that makes data from the upstream. One that uses another upstream is stopped.
func (a *Agent) maySeed(w *world, upstream string) bool {
	if a.seed.isSettled() {
		return !w.now.Before(a.clones.next)
	}
	if a.seed.name != upstream {
		a.log.Info("Stopping to make data from another upstream, since the primary has changed", "from", a.seed.name, "to", upstream)
		a.seed.stop() // its result is taken note of in the next round
	}
	return false
}

// mustMend says whether PostgreSQL has said for long enough that it cannot follow its upstream, or has ended often enough because
// its data is damaged; and notes what is to be done about it.
func (a *Agent) mustMend(w *world) bool {
	if a.reclone != "" || a.back.rewind != "" {
		return true
	}
	if w.state != nil && w.state.Streaming || w.view.Holder == "" {
		return false
	}
	if a.back.damage.count >= damageAtMost && !w.server.Running {
		a.wantCopy("its data is damaged: " + a.back.damage.message)
		return true
	}
	since := w.server.Started
	if a.lastStreamed.After(since) {
		since = a.lastStreamed
	}
	if w.server.Running && w.now.Sub(since) < a.options.FollowBound || !w.server.Running && a.restarts.failures < 2 {
		return false
	}
	why := a.reader.Words.CannotFollow(since)
	switch {
	case why == "":
		return false
	case logs.IsFork(why):
		a.wantRewind(why)
	default:
		a.wantCopy("it cannot follow " + w.decision.Upstream + ": " + why)
	}
	return true
}

// mend does what mustMend has noted.
func (a *Agent) mend(ctx context.Context, w *world, upstream string) outcome {
	if a.reclone != "" {
		return a.clone(ctx, w, upstream)
	}
	return a.rewind(ctx, w, upstream)
}

// noteFollowing forgets earlier troubles of a standby that has followed for a while.
func (a *Agent) noteFollowing(w *world) {
	if w.state != nil && w.state.Streaming && w.now.Sub(w.server.Started) > steadyRun {
		a.back = comeback{}
	}
}

// noteDamage counts a server's end if its last words say that data is damaged.
func (a *Agent) noteDamage(message string) {
	if logs.IsDamage(message) {
		a.back.damage = failures{count: a.back.damage.count + 1, message: message}
	}
}

// unreadable copies data again whose control file cannot be read; nil if that is not to be: while nobody else has the data, it is
// for people to look at.
func (a *Agent) unreadable(ctx context.Context, w *world) *outcome {
	a.takeSeed(w)
	if w.foundErr == nil {
		a.back.unreadable = time.Time{}
		return nil
	}
	damaged := errors.Is(w.foundErr, postgres.ErrControl) || errors.Is(w.foundErr, fs.ErrNotExist)
	holder := w.view.Holder
	if !damaged || !w.view.Known || holder == "" || holder == a.options.Instance || w.server.Running {
		a.back.unreadable = time.Time{}
		return nil
	}
	if a.back.unreadable.IsZero() {
		a.back.unreadable = w.now
	}
	if w.now.Sub(a.back.unreadable) < unreadableBound {
		return nil
	}
	if a.reclone == "" {
		a.wantCopy(w.foundErr.Error())
	}
	result := a.clone(ctx, w, holder)
	return &result
}
