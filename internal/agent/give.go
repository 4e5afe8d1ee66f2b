package agent

import (
	"context"
	"errors"

	"github.com/pgsteward/pgsteward/internal/agent/lease"
	"github.com/pgsteward/pgsteward/internal/agentapi"
)

// giveAway hands the Lease over, or releases it, beside the loop.
func (a *Agent) giveAway(ctx context.Context, w *world) outcome {
	target, position, clean := w.decision.Target, ownData(w).Position, w.decision.Clean
	result := outcome{state: agentapi.StateStopping, role: agentapi.RolePrimary, notReady: w.decision.Reason}
	if !a.giving.isSettled() || w.server.Running {
		return result
	}
	a.log.Info("Giving the lease away", "target", target, "rule", w.decision.Rule, "reason", w.decision.Reason)
	a.handover.given = target
	keeper := a.keeper
	ending := a.ending
	a.giving = a.begin(ctx, target, func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, giveTimeout)
		defer cancel()
		if target == "" {
			return keeper.Stopped(bounded)
		}
		err := keeper.HandOver(bounded, target, position, clean)
		if err == nil || errors.Is(err, lease.ErrHeldByOther) || !ending {
			return err
		}
		a.log.Warn("Having the target take the lease, since it cannot be written here", "target", target, "error", err)
		return a.handOverByPeer(ctx, target)
	})
	return result
}

// handOverByPeer tells the target to take the lease, which this Pod may not write any more: it was deleted by force. What it says is
// true for ever of the version that it names: nothing is written here before a later one was seen.
func (a *Agent) handOverByPeer(ctx context.Context, target string) error {
	client, err := a.peerClient()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, giveTimeout)
	defer cancel()
	return client.HandOver(ctx, a.host(target), agentapi.HandOverRequest{
		Holder: a.options.Instance, PodUID: a.options.PodUID, LeaseVersion: a.leaseKeeper().View().Version,
	})
}

// noteGiven takes note of how it went.
func (a *Agent) noteGiven(w *world) {
	err, isNew := a.giving.result()
	if !isNew {
		return
	}
	if err != nil {
		a.log.Error("Giving the lease away failed", "target", a.giving.name, "error", err)
		return
	}
	a.log.Info("Gave the lease away", "target", a.giving.name)
	a.gave = true
	if a.handover.active() {
		a.handover.target = a.giving.name
		a.handover.end(w.now, "")
		a.requests.endSwitchover()
	}
}
