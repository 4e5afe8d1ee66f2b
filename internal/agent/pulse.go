package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// A server that answers can still be of no use: its replay waits for something before it can be promoted. The Lease is renewed meanwhile,
// so nobody else would take over. Therefore that has a bound, after which the server counts as down; before that the status says what
// is the matter.

const (
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
	// promoting is since when it is to be promoted, moved when its replay has moved since, to replayed.
	promoting time.Time
	moved     time.Time
	replayed  postgres.LSN
	// waits is what its replay waits for, as of lookedAt.
	waits    string
	lookedAt time.Time
}

// takePulse takes note of whether the server works. What was noted stays while the server is being stopped for it.
func (a *Agent) takePulse(w *world) {
	p := &a.pulse
	if !p.started.Equal(w.server.Started) {
		*p = pulse{started: w.server.Started}
	}
	if !w.server.Running || w.server.Stopping != 0 || !a.answered.Equal(w.server.Started) {
		return
	}
	switch {
	case !a.toRun, w.state != nil && !w.state.InRecovery:
		p.promoting = time.Time{}
	case w.state != nil && w.state.Replayed > p.replayed:
		p.replayed, p.moved = w.state.Replayed, w.now
	}
}

// hung is why a server that runs does not work, if that has lasted for longer than the bounds; empty: it works.
func (p *pulse) hung(now time.Time, promotion time.Duration) string {
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
	if text := a.pulse.hung(now, promotionReported); text != "" {
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
