package agent

import (
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
	// damageAtMost is how often a standby may end because of damaged data before it is copied again.
	damageAtMost = 3
	// unreadableBound is how long a control file may be unreadable before the data is copied again.
	unreadableBound = 10 * time.Second
	// stopBeforeSeed is how long a standby whose data is to be replaced may take to stop.
	stopBeforeSeed = time.Minute
)

// comeback is what the loop remembers about data that must be mended.
type comeback struct {
	// rewind is why the data must be rewound; empty if it need not be. rewinding says that the task a.seed does it.
	rewind    string
	rewinding bool
	// rewinds counts those since the server last followed for a while.
	rewinds int
	// waiting is since when the upstream's history is waited for, unreadable since when the control file cannot be read.
	waiting    time.Time
	unreadable time.Time
	stopping   time.Time
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
	status := a.askUpstream(ctx, w.now, upstream, upstreamInterval)
	if status == nil || status.Role != agentapi.RolePrimary || status.DataRole != agentapi.RolePrimary || status.Timeline == 0 {
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
	why := diverged(control.Position, status.Timeline, historyOf(status))
	if why == "" {
		return nil
	}
	a.wantRewind(why)
	result := a.rewind(ctx, w, upstream)
	return &result
}

// diverged says why the data of a primary that crashed may have what the holder does not have; empty if it cannot have. The
// control file of such data does not show how far it came, only that it came at least so far.
func diverged(own postgres.Position, timeline int64, history postgres.History) string {
	if own.Timeline == timeline {
		return ""
	}
	end, known := history.End(own.Timeline)
	if !known {
		return fmt.Sprintf("its timeline %d is not in the history of timeline %d", own.Timeline, timeline)
	}
	return fmt.Sprintf("it crashed on timeline %d, which was left at %s for timeline %d, and may have gone further", own.Timeline, end, timeline)
}

// wantRewind notes that the data must be rewound; or copied, if it cannot be rewound.
func (a *Agent) wantRewind(why string) {
	if a.programs.Rewind == "" {
		a.reclone = why + "; " + datadir.ErrNoRewind.Error()
	} else if a.back.rewinds >= rewindsAtMost {
		a.reclone = why + ", although it was rewound"
	}
	if a.reclone != "" {
		a.log.Warn("Copying the data again", "reason", a.reclone)
		return
	}
	a.log.Warn("Rewinding the data", "reason", why)
	a.back.rewind = why
}

// rewind makes the data one that can follow the upstream.
func (a *Agent) rewind(ctx context.Context, w *world, upstream string) outcome {
	if a.reclone != "" {
		return a.clone(ctx, w, upstream)
	}
	result := a.seedOutcome(agentapi.RoleStandby, a.rewindText(upstream))
	if !a.stopForSeed(w) || !a.maySeed(w, upstream) {
		return result
	}
	conninfo := a.conninfo(upstream, postgres.Keyword{Name: "dbname", Value: "postgres"})
	seeder, bound := a.seeder, a.options.RewindBound
	if bound <= 0 {
		bound = DefaultRewindBound
	}
	a.log.Info("Rewinding", "upstream", upstream, "attempt", a.back.rewinds+1)
	a.back.rewinding = true
	a.seed = a.begin(ctx, upstream, func(ctx context.Context) error {
		if err := (sql.Upstream{Conninfo: conninfo}).Checkpoint(ctx); err != nil {
			return fmt.Errorf("%w: %w", errUpstream, err)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("pg_rewind was not done after %s", bound))
		defer cancel()
		return seeder.Rewind(ctx, conninfo)
	})
	return result
}

func (a *Agent) rewindText(upstream string) string {
	return fmt.Sprintf("data is being rewound to follow %s: %s", upstream, a.back.rewind)
}

// errUpstream is that the upstream does not do what is needed of it before anything is touched.
var errUpstream = errors.New("the upstream cannot be asked")

// noteRewind takes note of the end of a task, if that was a rewind.
func (a *Agent) noteRewind(err error) {
	if !a.back.rewinding {
		return
	}
	a.back.rewinding = false
	switch {
	case err == nil:
		a.back.rewinds++
		a.back.rewind = ""
		a.log.Info("The data is rewound")
	case errors.Is(err, errUpstream), errors.Is(err, context.Canceled):
		// Nothing could be copied from there either; or the upstream has changed.
	default:
		a.back.rewind = ""
		a.reclone = "rewinding failed: " + err.Error()
	}
}

// stopForSeed says whether no server runs on the data that is to be changed; it stops the one that does.
func (a *Agent) stopForSeed(w *world) bool {
	if !w.server.Running {
		a.back.stopping = time.Time{}
		return true
	}
	if a.back.stopping.IsZero() {
		a.back.stopping = w.now
	}
	a.server.Stop(supervise.Fast)
	if w.now.Sub(a.back.stopping) > stopBeforeSeed {
		a.server.Stop(supervise.Immediate)
	}
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
		a.reclone = "its data is damaged: " + a.back.damage.message
		a.log.Warn("Copying the data again", "reason", a.reclone)
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
		a.reclone = why
		a.log.Warn("Copying the data again, since this standby cannot follow", "upstream", w.decision.Upstream, "error", why)
	}
	return true
}

// mend does what mustMend has noted.
func (a *Agent) mend(ctx context.Context, w *world, upstream string) outcome {
	if a.reclone != "" {
		a.back.rewind = ""
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
	a.reclone = w.foundErr.Error()
	result := a.clone(ctx, w, holder)
	return &result
}
