package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/sql"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A server that was started and has answered can still stop working without ending: its processes stand still, its storage hangs, or
// its replay waits for something before it can be promoted. The Lease is renewed meanwhile, so nobody else would take over. Therefore
// each of these has a bound, after which the server counts as down; before that the status says what is the matter.

const (
	// hungBound is how long a server may be without any answer. It is long, since a machine without CPU time looks the same; what
	// follows is safe in both cases, as the server is stopped first.
	hungBound    = 30 * time.Second
	hungReported = 10 * time.Second
	// hungAttempts is how many questions must have gone without an answer: an agent that stood still itself has asked too few.
	hungAttempts = 3
	// knockInterval is between two new connections to a primary. The one that is kept goes on while the postmaster stands still.
	knockInterval = 5 * time.Second
	// promotionBound is how long a promotion may take during which replay does not move.
	promotionBound    = 20 * time.Second
	promotionReported = 5 * time.Second
	// conflictsFirst is how long a promotion may take before what holds it up is looked for, conflictsInterval is between two looks.
	conflictsFirst    = 100 * time.Millisecond
	conflictsInterval = time.Second
)

// pulse is what the loop remembers of the server that was started then.
type pulse struct {
	started time.Time
	// observing are the failures of questions on the connection that is kept, knocking those to connect anew.
	observing, knocking silence
	knock               *task
	knockedAt           time.Time
	// promoting is since when it is to be promoted, moved when its replay has moved since, to replayed.
	promoting time.Time
	moved     time.Time
	replayed  postgres.LSN
	// waits is what its replay waits for, as of lookedAt.
	waits    string
	lookedAt time.Time
}

// silence is since when there was no answer, and to how many questions.
type silence struct {
	since   time.Time
	count   int
	message string
}

func (s *silence) note(now time.Time, err error) {
	if err == nil || sql.IsAnswer(err) {
		*s = silence{}
		return
	}
	if s.since.IsZero() {
		s.since = now
	}
	s.count++
	s.message = err.Error()
}

// lasts says whether there was no answer for longer than the bound.
func (s *silence) lasts(now time.Time, bound time.Duration) bool {
	return s.count >= hungAttempts && now.Sub(s.since) > bound
}

// takePulse takes note of whether the server works. What was noted stays while the server is being stopped for it.
func (a *Agent) takePulse(ctx context.Context, w *world) {
	p := &a.pulse
	if !p.started.Equal(w.server.Started) {
		*p = pulse{started: w.server.Started}
	}
	if !w.server.Running || w.server.Stopping != 0 || !a.answered.Equal(w.server.Started) || ctx.Err() != nil {
		return
	}
	p.observing.note(w.now, w.stateErr)
	if w.server.Writable {
		a.knock(ctx, w)
	}
	switch {
	case !a.toRun, w.state != nil && !w.state.InRecovery:
		p.promoting = time.Time{}
	case w.state != nil && w.state.Replayed > p.replayed:
		p.replayed, p.moved = w.state.Replayed, w.now
	}
}

// knock looks, beside the loop, whether the server takes new connections.
func (a *Agent) knock(ctx context.Context, w *world) {
	p := &a.pulse
	if err, isNew := p.knock.result(); isNew {
		p.knocking.note(w.now, err)
	}
	if !p.knock.isSettled() || w.now.Sub(p.knockedAt) < knockInterval {
		return
	}
	p.knockedAt = w.now
	p.knock = a.begin(ctx, "knock", a.observer.Knock)
}

// hung is why a server that runs does not work, if that has lasted for longer than the bounds; empty: it works.
func (p *pulse) hung(now time.Time, answer, promotion time.Duration) string {
	if s := p.observing; s.lasts(now, answer) {
		return fmt.Sprintf("PostgreSQL does not answer, since %s: %s", moment(s.since), s.message)
	}
	if s := p.knocking; s.lasts(now, answer) {
		return fmt.Sprintf("PostgreSQL does not answer new connections, since %s: %s", moment(s.since), s.message)
	}
	last := p.promoting
	if p.moved.After(last) {
		last = p.moved
	}
	if p.promoting.IsZero() || now.Sub(last) <= promotion {
		return ""
	}
	waits := ""
	if p.waits != "" {
		waits = ", waiting for " + p.waits
	}
	return fmt.Sprintf("PostgreSQL does not end recovery: replay stands at %s since %s%s", p.replayed, moment(last), waits)
}

// moment is a time for people; a duration would make the text another one in each round.
func moment(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// hungProblem is the problem that the server hangs; nil if it does not.
func (a *Agent) hungProblem(now time.Time) *agentapi.Problem {
	if text := a.pulse.hung(now, hungReported, promotionReported); text != "" {
		return problem(reasonServer, text)
	}
	return nil
}

// hurryReplay has queries on a standby that is to be promoted keep no WAL from being replayed: a promotion takes effect only when
// everything is replayed, and nobody else may write meanwhile.
func (a *Agent) hurryReplay(w *world) {
	changed, err := a.conf.Apply(a.settings(w, a.upstream))
	if err != nil {
		a.log.Warn("Writing the configuration for the promotion failed", "error", err) // it may do without
	}
	if changed && !a.server.Reload() {
		a.reloadPID = w.server.PID
	}
}

// endConflicts ends the transactions that replay waits for already: PostgreSQL reads its configuration again only after that.
func (a *Agent) endConflicts(ctx context.Context, w *world) {
	p := &a.pulse
	if w.now.Sub(a.promotedAt) < conflictsFirst || w.now.Sub(p.lookedAt) < conflictsInterval {
		return
	}
	p.lookedAt = w.now
	waits, ended, err := a.admin.EndConflicts(ctx)
	if err != nil {
		a.log.Warn("What the promotion waits for is not known", "error", err)
		return
	}
	if p.waits = waits; ended > 0 {
		a.log.Warn("Ended transactions that kept this instance from being promoted", "count", ended, "wait", waits)
	}
}

// promotes says whether the server is a standby that is to be the primary.
func promotes(w *world) bool {
	return w.decision.Action == election.RunPrimary && w.state != nil && w.state.InRecovery
}
