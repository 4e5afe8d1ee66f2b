package agent

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/preflight"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

const (
	// preflightAgain is how long what a preflight found holds, preflightSoon how long if there are blockers, or if it could not be made: somebody
	// may have mended them.
	preflightAgain = 5 * time.Minute
	preflightSoon  = 30 * time.Second
	// reasonPreflight is that of a preflight that could not be made.
	reasonPreflight = "PreflightFailed"
)

// preflights keeps the live primary's preflight.
type preflights struct {
	task *task
	next time.Time
	// asked is what the task looks for, and findings what it found, to be read when it has ended.
	asked    agentapi.Upgrade
	findings []agentapi.Finding
	// result is what came of the last one.
	result *agentapi.Preflight
}

// checkUpgrade makes the preflight that the configuration asks for, beside the loop, and again from time to time. The loop forgets
// Preflight in each round, so that only a live primary says it.
func (a *Agent) checkUpgrade(ctx context.Context, w *world) {
	p, upgrade := &a.preflights, a.config.Upgrade
	if upgrade == nil || !upgrade.Check {
		p.next, p.result = time.Time{}, nil
		return
	}
	if err, isNew := p.task.result(); isNew && !errors.Is(err, context.Canceled) {
		a.notePreflight(w, err)
	}
	if p.result != nil && p.result.To == upgrade.To && p.result.Method == upgrade.Method {
		a.upgradeStatus.Preflight = p.result
	}
	current := fingerprint(upgrade.From, upgrade.To, upgrade.ToVersion, upgrade.Method, upgrade.OneWay, a.config.Parameters, w.server.PID)
	if !p.task.isDone() || p.task != nil && p.task.name == current && w.now.Before(p.next) {
		return
	}
	in := preflight.Input{ToVersion: upgrade.ToVersion, Method: upgrade.Method, OneWay: upgrade.OneWay, Parameters: a.config.Parameters}
	var errFrom, errTo, errSpace error
	in.From, errFrom = strconv.Atoi(upgrade.From)
	in.To, errTo = strconv.Atoi(upgrade.To)
	_, in.FreeBytes, errSpace = a.volume.Space()
	if err := errors.Join(errFrom, errTo, errSpace); err != nil {
		a.upgradeStatus.Preflight = &agentapi.Preflight{To: upgrade.To, Method: upgrade.Method, At: w.now, Problem: problem(reasonPreflight, err.Error())}
		return
	}
	p.asked = *upgrade
	p.task = a.begin(ctx, current, func(ctx context.Context) error {
		found, err := preflight.Check(ctx, a.admin.Open, in)
		p.findings = found
		return err
	})
}

// notePreflight takes note of what came of a preflight.
func (a *Agent) notePreflight(w *world, err error) {
	p := &a.preflights
	p.next = w.now.Add(preflightAgain)
	result := &agentapi.Preflight{To: p.asked.To, Method: p.asked.Method, At: w.now, Findings: p.findings}
	if err != nil {
		a.log.Warn("The preflight of a major upgrade could not be made", "error", err)
		result.Problem = problem(reasonPreflight, err.Error())
	}
	if err != nil || slices.ContainsFunc(result.Findings, func(f agentapi.Finding) bool { return f.Severity == agentapi.SeverityBlocker }) {
		p.next = w.now.Add(preflightSoon)
	}
	p.result = result
}
