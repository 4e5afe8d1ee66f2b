package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// seedRound makes the next generation's first server, runs it, and makes it follow.
func (a *Agent) seedRound(ctx context.Context, w *world) outcome {
	if w.view.Holder == "" || w.view.Holder == a.options.Instance {
		return a.seedOutcomeOf(outcome{state: agentapi.StateWaiting, notReady: "there is no primary to make the next version from"})
	}
	place := a.place(ctx)
	made, err := place.IsMade()
	if err != nil {
		return outcome{state: agentapi.StateFailed, problem: problem(reasonUpgrade, err.Error())}
	}
	a.looking(ctx, w, func(ctx context.Context) (generationSeen, error) {
		status, err := place.Look(ctx)
		return generationSeen{seed: &status}, err
	})
	if !made {
		return a.makeSeed(ctx, w, place)
	}
	result, running := a.runDetached(ctx, w)
	if running {
		a.joinSeed(ctx, w, place)
	}
	return a.seedOutcomeOf(result)
}

// makeSeed makes the data, while no server runs.
func (a *Agent) makeSeed(ctx context.Context, w *world, place *generation.Place) outcome {
	if w.server.Running {
		a.server.Stop(supervise.Fast)
		return a.seedOutcomeOf(a.serverOutcome(w))
	}
	result := a.seedOutcomeOf(outcome{state: agentapi.StateSeeding, notReady: "the next version's data is being made"})
	if a.upgradeStatus.Seed.Stage != agentapi.SeedFailed { // only another ID begins again
		a.attempt(ctx, w, "make", place.Make)
	}
	return result
}

// joinSeed makes the server follow, after each start; and again if it has not followed for so long that it is no switch.
func (a *Agent) joinSeed(ctx context.Context, w *world, place *generation.Place) {
	b := &a.besides
	name := fmt.Sprintf("join %d", w.server.PID)
	if seen := a.seen.Load(); seen != nil && seen.seed != nil && seen.seed.Streaming || b.followedAt.IsZero() {
		b.followedAt = w.now
	}
	if b.done == name && w.now.Sub(b.followedAt) > rejoinAfter {
		b.done, b.followedAt = "", w.now
	}
	a.attempt(ctx, w, name, place.Join)
}

// seedOutcomeOf adds to the outcome what was seen of the seed.
func (a *Agent) seedOutcomeOf(result outcome) outcome {
	status := agentapi.SeedStatus{Stage: agentapi.SeedPreparing}
	if marker, err := generation.ReadMarker(a.volume); err == nil && marker != nil && a.config.Upgrade != nil && marker.ID == a.config.Upgrade.ID {
		status = marker.Status() // as it is now; the look may be of before
	}
	if seen := a.seen.Load(); seen != nil && seen.seed != nil {
		status.NewSystem, status.TablesDone, status.TablesTotal = seen.seed.NewSystem, seen.seed.TablesDone, seen.seed.TablesTotal
		status.Streaming, status.LagBytes, status.Findings = seen.seed.Streaming, seen.seed.LagBytes, seen.seed.Findings
		if status.Problem == nil {
			status.Problem = seen.seed.Problem
		}
	}
	if step := a.said.Load(); step != nil && status.Stage != agentapi.SeedFailed {
		status.Step = *step
	}
	if failed := a.besides.failed; status.Problem == nil && failed.count >= failuresReported {
		status.Problem = problem(reasonUpgrade, failed.message)
	}
	if status.Stage == agentapi.SeedFailed && result.problem == nil {
		result.state, result.problem = agentapi.StateFailed, status.Problem
	}
	a.upgradeStatus.Seed = &status
	return result
}

// originRound runs the server that had the writes, as the way back: it follows the one that has them now.
func (a *Agent) originRound(ctx context.Context, w *world) outcome {
	back := agentapi.ReverseStatus{}
	defer func() { a.upgradeStatus.Back = &back }()
	if seen := a.seen.Load(); seen != nil && seen.back != nil {
		back = *seen.back
	}
	if !w.found.Complete {
		back.Problem = problem(reasonUpgrade, "the data of the way back is gone")
		return outcome{state: agentapi.StateFailed, problem: back.Problem}
	}
	result, running := a.runDetached(ctx, w)
	if !running || w.view.Holder == "" || a.config.Upgrade.Method == agentapi.MethodInPlace { // after which nothing goes back
		return result
	}
	place := a.place(ctx)
	a.attempt(ctx, w, fmt.Sprintf("back %d", w.server.PID), place.Back)
	a.looking(ctx, w, func(ctx context.Context) (generationSeen, error) {
		status, err := place.LookBack(ctx)
		var end *generation.Over
		if errors.As(err, &end) {
			status.Problem, err = &end.Problem, nil
		}
		return generationSeen{back: &status}, err
	})
	if failed := a.besides.failed; back.Problem == nil && failed.count >= failuresReported {
		back.Problem = problem(reasonUpgrade, failed.message)
	}
	return result
}
