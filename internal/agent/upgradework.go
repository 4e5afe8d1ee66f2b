package agent

import (
	"context"
	"strconv"
	"time"

	"github.com/pgsteward/pgsteward/internal/agent/generation"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// serveUpgrade is what the live primary does for a major upgrade, beside the loop.
func (a *Agent) serveUpgrade(ctx context.Context, w *world) {
	a.keepSwitching(ctx, w)
	a.checkUpgrade(ctx, w)
	a.analyze(ctx)
	u, work := a.config.Upgrade, &a.upgradeWork
	live := strconv.Itoa(a.major)
	key := work.duty(u, live, w.server.PID)
	if key == "" {
		return
	}
	if err, isNew := work.task.result(); isNew {
		work.at = w.now
		if err == nil {
			work.done = work.task.name
		} else {
			a.log.Warn("Removing what a major upgrade left is not finished", "error", err)
		}
	}
	work.retired = u != nil && u.Retire && work.done == key
	if work.done == key || !work.task.isDone() || work.task != nil && w.now.Sub(work.at) < setupRetry {
		return
	}
	place, volume := a.place(ctx), a.volume
	work.task = a.begin(ctx, key, func(ctx context.Context) error {
		if u != nil && !u.Retire && live == u.To {
			return generation.DropForward(ctx, place.Local, u.ID)
		}
		if u == nil || !u.Retire { // this server has the writes: what a switch that came to nothing marked is over
			if err := generation.UnmarkOrigin(volume); err != nil {
				return err
			}
		}
		return generation.Clean(ctx, place.Local, "")
	})
}

// analyze makes all statistics after an upgrade in place, which brings coarse ones only. Nothing waits for it, and it is not tried again: what it
// could not do for one table it could not do the next time, and has done for the others.
func (a *Agent) analyze(ctx context.Context) {
	u, work := a.config.Upgrade, &a.upgradeWork
	if err, isNew := work.statistics.result(); isNew {
		work.analyzed = work.statistics.name
		if err != nil {
			a.log.Warn("Not all statistics could be made after a major upgrade", "error", err)
		}
	}
	if u == nil || !u.Retire || u.Method != agentapi.MethodInPlace || work.analyzed == u.ID || !work.statistics.isSettled() {
		return
	}
	local := a.place(ctx).Local
	work.statistics = a.begin(ctx, u.ID, func(ctx context.Context) error { return generation.AnalyzeAll(ctx, local) })
}

// upgradeWork is what the live primary does for a major upgrade.
type upgradeWork struct {
	task    *task
	at      time.Time
	done    string
	retired bool
	// statistics makes those; analyzed is the upgrade after which that was done.
	statistics *task
	analyzed   string
	// last is the upgrade that something was made here for last: what was removed before it is not all that is to be removed.
	last string
}

// duty names what there is to do for that upgrade on this run of the server, and is another name when it is to be done again; empty: nothing.
func (work *upgradeWork) duty(u *agentapi.Upgrade, live string, pid int) string {
	if u != nil && (u.Seed != "" || u.Origin != "") {
		work.last = u.ID
	}
	what := "clean " + work.last
	switch {
	case u == nil: // what could not be removed in time; one question if there is nothing
	case u.ID == "":
		return ""
	case u.Seed == "" && u.Origin == "":
	case u.Retire:
		what = "retire " + u.ID
	case live == u.To:
		what = "forward " + u.ID
	default:
		return ""
	}
	return what + " " + strconv.Itoa(pid)
}

// describeUpgrade is what this instance knows of a major upgrade; nil: nothing.
func (a *Agent) describeUpgrade() *agentapi.UpgradeStatus {
	status := a.upgradeStatus
	if status.ID == "" && a.config.Upgrade != nil {
		status.ID = a.config.Upgrade.ID
	}
	status.Switchover, status.Retired = a.switching.said(), a.upgradeWork.retired
	if a.config.Upgrade == nil && status == (agentapi.UpgradeStatus{}) {
		return nil
	}
	return &status
}
