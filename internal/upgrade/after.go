package upgrade

import (
	"fmt"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// switched is everything after the new version has taken the writes.
func (p *pass) switched() {
	f, u := p.f, p.u
	if u.SwitchedOverAt == nil {
		if u.SwitchedOverAt = at(f.Now); !p.offline() {
			u.RollbackUntil = at(f.Now.Add(p.window()))
		}
		u.Origin, u.AskedAt, u.RetryAt, u.Refusals, u.LagBytes = u.Source, nil, nil, 0, nil
		p.pauseOf(u.Origin, u.To)
		p.say(v1.UpgradeObserve, "%s takes the writes", u.To)
		p.step.Recheck = soon
		return
	}
	p.pauseOf(u.Origin, u.To)
	if u.Phase == v1.UpgradeRetire {
		p.retire()
		return
	}
	closed := p.wayBackLost()
	if p.offline() {
		closed = "nothing follows the new version after the method InPlace"
	}
	if f.Version == u.From {
		p.rollBack(closed)
		return
	}
	switch {
	case p.offline():
		p.say(v1.UpgradeRetire, "there is no way back from the method InPlace, so that the old data is dropped")
		p.step.Recheck = soon
	case closed != "":
		u.LastFailure = "the way back is closed: " + closed
		p.say(v1.UpgradeRetire, "the way back is closed, since %s", closed)
		p.step.Recheck = soon
	case u.RollbackUntil == nil || !f.Now.Before(u.RollbackUntil.Time):
		p.say(v1.UpgradeRetire, "the time in which one could go back is over")
		p.step.Recheck = soon
	case p.bringOver():
	default:
		message := fmt.Sprintf("%s has the writes; until %s setting spec.version back to %q loses none", u.To, u.RollbackUntil.UTC().Format(time.RFC3339), u.From)
		if why := p.originBehind(); why != "" {
			message += "; but just now " + why
		}
		u.AskedAt = nil
		p.say(v1.UpgradeObserve, "%s", message)
		p.step.Recheck = min(rest, u.RollbackUntil.Sub(f.Now))
	}
}

// bringOver has the standbys follow the new version that were left to the old one: it has the writes now, and they are what can take over
// from its primary. One at a time, and while one of the new version is amiss only if the new version has no other that could take over. It says
// whether there is something to do.
func (p *pass) bringOver() bool {
	f, u := p.f, p.u
	next, amiss, guarded := "", false, false
	for _, i := range f.Instances {
		switch {
		case i.Name == f.Holder || i.Name == u.Origin || i.Deleting:
		case p.wanted(i.Name) != u.To:
			next = i.Name
		case f.Runs(i) == u.From && p.remake(i, v1.UpgradeObserve):
			return true
		case f.CannotTakeOver(i) != "":
			amiss = true
		default:
			guarded = true
		}
	}
	if next == "" || amiss && guarded {
		return false
	}
	u.Rolled = append(u.Rolled, next)
	p.say(v1.UpgradeObserve, "%s is the next to run %s", next, u.To)
	p.step.Recheck = soon
	return true
}

// pauseOf takes note of how long writes paused, as the agent says that gave them away; false: it has not said so.
func (p *pass) pauseOf(from, to string) bool {
	i, _ := p.f.Instance(from)
	report, _ := i.Report.Get()
	said := saidOf(report, p.u.ID, to)
	if said == nil || said.Ended == nil || said.Refused != "" || said.PauseMillis <= 0 {
		return false
	}
	p.u.LastWritePause = (time.Duration(said.PauseMillis) * time.Millisecond).String()
	return true
}

// back is the end of a way back: the old version has the writes again. How long they paused is said a moment after that is seen, by an agent
// whose Pod is then made anew.
func (p *pass) back() {
	u := p.u
	if !p.pauseOf(u.Seed, u.From) && u.AskedAt != nil && p.f.Now.Sub(u.AskedAt.Time) < askPatience {
		p.say(v1.UpgradeRollback, "%s has the writes again", u.From)
		p.step.Recheck = soon
		return
	}
	p.giveUp("")
}

// wayBackLost is why nobody can go back any more; empty: one can, as far as is known.
func (p *pass) wayBackLost() string {
	f, u := p.f, p.u
	origin, exists := f.Instance(u.Origin)
	switch {
	case u.Origin == "" || !exists || origin.Deleting:
		return fmt.Sprintf("%s, the last server of %s, was removed", u.Origin, u.From)
	case f.Holder != "" && f.Holder != u.Seed:
		return fmt.Sprintf("the primary is %s and no longer %s: what %s follows was lost with it", f.Holder, u.Seed, u.Origin)
	default:
		return ""
	}
}

// originBehind is why the writes could not be moved back just now.
func (p *pass) originBehind() string {
	u := p.u
	origin, _ := p.f.Instance(u.Origin)
	report, heard := origin.Report.Get()
	if !heard || report.Upgrade == nil || report.Upgrade.ID != u.ID || report.Upgrade.Back == nil {
		return fmt.Sprintf("nothing is heard of %s%s", u.Origin, problemOf(origin))
	}
	back := report.Upgrade.Back
	u.LagBytes = rounded(back.LagBytes)
	switch {
	case back.Problem != nil:
		return fmt.Sprintf("%s does not follow: %s", u.Origin, back.Problem.Message)
	case !back.Streaming:
		return fmt.Sprintf("%s does not follow", u.Origin)
	case back.LagBytes == nil || *back.LagBytes > caughtUpLag:
		return fmt.Sprintf("%s is behind", u.Origin)
	default:
		return ""
	}
}

// rollBack moves the writes back to the old version, as somebody wants.
func (p *pass) rollBack(closed string) {
	u := p.u
	if closed != "" { // it may stay so for long, and the new version is not to be without standbys meanwhile
		why := fmt.Sprintf("it cannot go back to %s, since %s; set spec.version to %q", u.From, closed, u.To)
		if !p.bringOver() {
			p.say(v1.UpgradeObserve, "%s", why)
		}
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: fmt.Sprintf("the upgrade from %s to %s: %s", u.From, u.To, why)}
		return
	}
	if why := p.originBehind(); why != "" && u.AskedAt == nil {
		p.say(v1.UpgradeRollback, "waiting before going back to %s: %s; to stay with %s, set spec.version to %q", u.From, why, u.To, u.To)
		if u.RollbackUntil == nil || !p.f.Now.Before(u.RollbackUntil.Time) { // it may never come to follow again
			p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: p.step.Message}
		}
		return
	}
	f := *p.f
	f.Upgrade.Manual = false // that it is wanted now is what setting the version back says
	(&pass{f: &f, u: u}).moveBack(p)
}

// moveBack is the switchover to the origin, with what it says put into another pass.
func (p *pass) moveBack(into *pass) {
	p.step = into.step
	p.switchover(p.u.Origin, p.u.From, false)
	into.u, into.step = p.u, p.step
}

// retire makes the rest of the cluster new, when there is no way back.
func (p *pass) retire() {
	f, u := p.f, p.u
	primary, known := f.Primary()
	report, _ := primary.Report.Get()
	if !known || !primary.Ready() {
		p.say(v1.UpgradeRetire, "the primary %s is not known to serve", f.Holder)
		return
	}
	if report.Upgrade == nil || !report.Upgrade.Retired {
		p.say(v1.UpgradeRetire, "waiting for %s to remove what the upgrade needed", f.Holder)
		return
	}
	for _, i := range f.Instances {
		if i.Name == f.Holder || i.Deleting || p.wanted(i.Name) != u.To {
			continue
		}
		if p.remake(i, v1.UpgradeRetire) {
			return
		}
		if why := f.CannotTakeOver(i); why != "" {
			p.say(v1.UpgradeRetire, "waiting for %s: %s%s", i.Name, why, problemOf(i))
			return
		}
	}
	next := ""
	for _, i := range f.Instances {
		if i.Deleting || p.wanted(i.Name) == u.To {
			continue
		}
		if next == "" || next == u.Origin {
			next = i.Name
		}
	}
	if next == "" {
		p.finish(v1.UpgradeDone, "the upgrade from %s to %s is complete", u.From, u.To)
		return
	}
	u.Rolled = append(u.Rolled, next)
	p.say(v1.UpgradeRetire, "%s is the next to run %s", next, u.To)
	p.step.Recheck = soon
}

// revert makes every instance one of the old version again, which has the writes.
func (p *pass) revert() {
	f, u := p.f, p.u
	if f.Live != u.From {
		p.say("", "%s has the writes, so it is not given up any more", f.Live)
		u.Phase, u.Seed = v1.UpgradeObserve, f.Holder
		return
	}
	for _, i := range f.Instances {
		if i.Deleting || p.wanted(i.Name) != u.From {
			continue
		}
		if p.remake(i, v1.UpgradeRevert) { // also the primary's, which became that when its Pod was about to be of the new version
			return
		}
		if i.Name == f.Holder {
			continue
		}
		if why := f.CannotTakeOver(i); why != "" {
			if lasted, _ := p.progress(rolling + i.Name); !lasted {
				p.say(v1.UpgradeRevert, "waiting for %s: %s%s", i.Name, why, problemOf(i))
				return
			}
		}
	}
	if n := len(u.Rolled); n > 0 {
		name := u.Rolled[n-1]
		u.Rolled = u.Rolled[:n-1]
		p.say(v1.UpgradeRevert, "%s is the next to run %s again", name, u.From)
		p.step.Recheck = soon
		return
	}
	switch {
	case f.Version != u.To && u.SwitchedOverAt != nil:
		p.finish(v1.UpgradeRolledBack, "the cluster is back at %s", u.From)
	case f.Version != u.To:
		p.finish(v1.UpgradeRolledBack, "the upgrade from %s to %s was called off", u.From, u.To)
	case u.Attempt >= maxAttempts:
		p.finish(v1.UpgradeFailed, "the upgrade from %s to %s failed, and is not tried again by itself, since %s", u.From, u.To, u.LastFailure)
	default:
		u.RetryAt = at(f.Now.Add(attemptPause << (u.Attempt - 1)))
		u.Progress, u.ProgressAt, u.SwitchedOverAt, u.RollbackUntil = "", nil, nil, nil
		p.say(v1.UpgradePreflight, "it begins again soon, since %s", u.LastFailure)
		p.step.Recheck = soon
	}
}

// finish ends the upgrade in that phase.
func (p *pass) finish(phase v1.UpgradePhase, format string, args ...any) {
	u := p.u
	u.Message = fmt.Sprintf(format, args...)
	u.Phase, u.CompletedAt, u.Surge, u.Refusals = phase, at(p.f.Now), false, 0
	u.Progress, u.ProgressAt, u.AskedAt, u.RetryAt, u.LagBytes, u.RollbackUntil = "", nil, nil, nil, nil, nil
	p.step.Applies, p.step.Waits, p.step.Reason = true, false, v1.ReasonUpgrading
	p.step.Message = "Upgrading: " + u.Message
	p.step.Recheck = soon
}
