package agent

import (
	"cmp"
	"context"
	"strconv"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/election"
)

// During a major upgrade there are two generations, see the package comment of internal/upgrade. Which one an instance is of is said by
// the configuration; which one is live is said by the lease. Instances of the other one are aside: they have no part in the election.

// live is the major of the live generation. Without an upgrade there is only one.
func (a *Agent) live() string {
	if a.config.Upgrade == nil {
		return a.config.Version
	}
	return cmp.Or(a.liveSeen, a.config.Version)
}

// versionOf is the major that the instance is to run.
func (a *Agent) versionOf(instance string) string {
	for _, member := range a.config.Members {
		if member.Name == instance {
			return cmp.Or(member.Version, a.config.Version)
		}
	}
	return a.config.Version
}

// isAside says whether this instance is not of the live generation. Whoever holds the lease with data of the live version is, whatever
// an older configuration says.
func (a *Agent) isAside(w *world) bool {
	if a.config.Upgrade == nil {
		return false
	}
	live := a.live()
	if w.view.Holder == a.options.Instance && strconv.Itoa(a.major) == live {
		return false
	}
	return a.versionOf(a.options.Instance) != live
}

// isLive says whether the member is of the live generation.
func (a *Agent) isLive(member string) bool {
	return a.config.Upgrade == nil || a.versionOf(member) == a.live()
}

// systemIdentifier is that of the live generation: the configuration may be of before a switchover to another version, or after it.
func (a *Agent) systemIdentifier(w *world) string {
	if a.config.Upgrade != nil && w.view.LiveVersion != "" && w.view.LiveVersion != a.config.Version {
		return w.view.SystemIdentifier
	}
	return a.config.SystemIdentifier
}

// stepAside is the round of an instance that is not of the live generation: it neither wants the lease nor is asked about it.
func (a *Agent) stepAside(ctx context.Context, w *world) outcome {
	own := a.versionOf(a.options.Instance)
	w.decision = election.Decision{Action: election.Wait, Reason: "PostgreSQL " + a.live() + " is live, and this instance is to run " + own}
	a.keeper.Hold(false)
	a.peers.Want(nil)
	if a.requests.takeSwitchover() != nil {
		a.requests.endSwitchover()
	}
	if strconv.Itoa(a.major) != own {
		return a.lastRounds(ctx, w)
	}
	a.outside, a.upgradeStatus.Preflight = true, nil
	a.label(ctx, a.ownRole(""))
	return a.asideRound(ctx, w)
}

// lastRounds are those of a standby which is going to have another Pod, of another version: it goes on following, but never takes over.
func (a *Agent) lastRounds(ctx context.Context, w *world) outcome {
	if !w.server.Running || w.server.Writable || w.view.Holder == "" || strconv.Itoa(a.major) != a.live() {
		return a.wait(w)
	}
	result := a.follow(ctx, w, w.view.Holder)
	result.role = agentapi.RoleStandby
	return result
}
