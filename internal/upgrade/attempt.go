package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// attempt is everything from the choice of the seed to the switchover.
func (p *pass) attempt() {
	f, u := p.f, p.u
	p.takeUp()
	if f.Version == u.From {
		if u.AskedAt != nil { // the writes may be moving just now: not before that is known does the seed become what it was
			p.switchover(u.Seed, u.To, p.window() > 0)
			return
		}
		p.giveUp("")
		return
	}
	seed, exists := f.Instance(u.Seed)
	switch {
	case !exists || seed.Deleting:
		p.giveUp(fmt.Sprintf("%s, the first server of %s, was removed", u.Seed, u.To))
		return
	case f.Holder != "" && f.Holder != u.Source:
		p.giveUp(fmt.Sprintf("the primary is %s and no longer %s: what %s follows was lost with it", f.Holder, u.Source, u.Seed))
		return
	}
	status := p.hear(seed)
	if status == nil {
		return
	}
	p.note(status)
	if u.AskedAt != nil && p.offline() { // the primary says how it ends, and for how long writes paused; also of a seed that has failed
		p.switchover(u.Seed, u.To, false)
		if p.u.AskedAt != nil && past(status.Stage) {
			p.step.Message += fmt.Sprintf(", which is stopped meanwhile: %s", strings.TrimSpace(string(status.Stage)+" "+status.Step))
		}
		return
	}
	if status.Stage == agentapi.SeedFailed {
		p.giveUp(fmt.Sprintf("%s: %s", u.Seed, text(status.Problem)))
		return
	}
	if u.AskedAt != nil { // the switch itself sees to it that the seed has everything, and stops it from following
		p.switchover(u.Seed, u.To, p.window() > 0)
		return
	}
	if p.offline() && past(status.Stage) { // the primary was stopped for it, and has written on since
		u.Attempt = maxAttempts
		p.giveUp(fmt.Sprintf("%s was converted, and did not get the writes: %s", u.Seed, u.LastFailure))
		return
	}
	if !p.caughtUp(status) {
		return
	}
	if !p.offline() && (p.giveBack() || p.roll()) {
		return
	}
	p.switchover(u.Seed, u.To, p.window() > 0)
}

// takeUp takes note of a switchover of this attempt that the live primary's agent is at, or by which it has stopped PostgreSQL, although the status does
// not say that it was asked for: the operator may have ended before it wrote that.
func (p *pass) takeUp() {
	primary, known := p.f.Primary()
	report, _ := primary.Report.Get()
	said := saidOf(report, p.u.ID, p.u.To)
	if !known || said == nil || p.u.AskedAt != nil {
		return
	}
	if said.Ended == nil || p.offline() && said.Refused != "" && said.PauseMillis > 0 {
		p.u.AskedAt = at(said.Since)
	}
}

// hear is what the seed's agent says of this attempt; nil: nothing yet, and what is done about that is decided.
func (p *pass) hear(seed facts.Instance) *agentapi.SeedStatus {
	u, status := p.u, p.seedSays(seed)
	made := !p.remake(seed, v1.UpgradePrepareSource)
	switch {
	case made && status != nil:
		return status
	case made && p.unusable(seed):
		return nil
	}
	if lasted, _ := p.progress(silent); lasted {
		p.step.Restart = ""
		p.giveUp(fmt.Sprintf("nothing was heard of %s for %s%s", u.Seed, silentBound, problemOf(seed)))
	} else if made {
		p.say(u.Phase, "waiting for %s to begin%s", u.Seed, problemOf(seed))
	}
	return nil
}

// past says whether a seed that is converted while the primary is stopped is no standby any more.
func past(stage agentapi.SeedStage) bool {
	return stage != agentapi.SeedPreparing && stage != agentapi.SeedStreaming
}

// seedSays is what the seed's agent says of this attempt; nil: nothing.
func (p *pass) seedSays(seed facts.Instance) *agentapi.SeedStatus {
	report, heard := seed.Report.Get()
	if !heard || report.Upgrade == nil || report.Upgrade.ID != p.u.ID {
		return nil
	}
	return report.Upgrade.Seed
}

// note puts into the status what the seed says.
func (p *pass) note(status *agentapi.SeedStatus) {
	u := p.u
	u.Method, u.MethodReason = string(status.Method), status.Why
	u.TablesDone, u.TablesTotal = int32(status.TablesDone), int32(status.TablesTotal) //nolint:gosec // a database has fewer tables
	u.LagBytes = rounded(status.LagBytes)
}

// rounded is a lag without what changes all the time.
func rounded(lag *int64) *int64 {
	if lag == nil {
		return nil
	}
	const mebibyte = int64(1) << 20
	value := (*lag + mebibyte/2) / mebibyte * mebibyte
	return &value
}

// caughtUp says whether the seed follows closely. Else it says what the seed does, and ends the attempt if that takes too long.
func (p *pass) caughtUp(status *agentapi.SeedStatus) bool {
	u := p.u
	follows := status.Stage == agentapi.SeedFollowing || status.Stage == agentapi.SeedStreaming
	if follows && status.Streaming && status.LagBytes != nil && *status.LagBytes <= caughtUpLag {
		if !strings.HasPrefix(u.Progress, rolling) && !strings.HasPrefix(u.Progress, late) {
			p.progress(string(agentapi.SeedFollowing))
		}
		return true
	}
	step := strings.TrimSpace(string(status.Stage) + " " + status.Step)
	if status.TablesTotal > 0 {
		step += fmt.Sprintf(" (%d of %d tables)", status.TablesDone, status.TablesTotal)
	}
	phase, what := v1.UpgradeCatchUp, "follows"
	switch status.Stage {
	case agentapi.SeedPreparing:
		phase, what = v1.UpgradePrepareSource, "is prepared"
	case agentapi.SeedReplaying, agentapi.SeedConverting, agentapi.SeedCopying:
		phase, what = v1.UpgradeSeedStandby, "is made"
	case agentapi.SeedJoining, agentapi.SeedFollowing, agentapi.SeedStreaming, agentapi.SeedFailed:
		if phase = u.Phase; !slices.Contains([]v1.UpgradePhase{v1.UpgradeRollStandbys, v1.UpgradeAwaitSwitchover}, phase) {
			phase = v1.UpgradeCatchUp
		}
	}
	if lasted, of := p.progress(step); lasted {
		p.giveUp(fmt.Sprintf("%s made no progress: %s", u.Seed, of))
		return false
	}
	message := fmt.Sprintf("%s %s: %s", u.Seed, what, step)
	if status.Problem != nil {
		message += ": " + status.Problem.Message
	}
	p.say(phase, "%s", message)
	return false
}

// roll tells the standbys, one at a time, to follow the seed. It says whether there is something to do or to wait for.
func (p *pass) roll() bool {
	f, u := p.f, p.u
	if slices.ContainsFunc(u.Rolled, p.rolls) {
		return true
	}
	var left []facts.Instance
	for _, i := range f.Instances {
		if i.Name != f.Holder && !i.Deleting && p.wanted(i.Name) == u.From {
			left = append(left, i)
		}
	}
	if len(left) == 0 || len(left) == 1 && (p.mayNotSwitch() != "" || p.u.Refusals >= refusalsTold) || len(left)-1 < f.Upgrade.SyncRequired {
		return false
	}
	if primary, known := f.Primary(); !known || !primary.Ready() {
		p.say(v1.UpgradeRollStandbys, "the primary %s is not known to serve", f.Holder)
		return true
	}
	if len(left) > 1 { // the others must be able to take over meanwhile
		for _, i := range left {
			if why := f.CannotTakeOver(i); why != "" {
				p.say(v1.UpgradeRollStandbys, "%s is not as it should be: %s", i.Name, why)
				return true
			}
		}
	}
	next := left[len(left)-1].Name
	u.Rolled = append(u.Rolled, next)
	u.Progress, u.ProgressAt = rolling+next, at(f.Now)
	p.say(v1.UpgradeRollStandbys, "%s is the next to run %s", next, u.To)
	p.step.Recheck = soon
	return true
}

// giveBack makes the standby that was rolled last one of the live version again if that has none and the switchover does not follow: it was
// refused again and again, or is not approved any more, or its window has closed. It says whether there is something to do. What was refused so often is tried without
// that standby from then on (roll): else its data would be copied for each try, twice.
func (p *pass) giveBack() bool {
	f, u := p.f, p.u
	standby := false
	for _, i := range f.Instances {
		if i.Name == f.Holder || i.Deleting || p.wanted(i.Name) != u.From {
			continue
		}
		standby = true
		if u.Progress == late+i.Name || f.Runs(i) != u.To || !p.remake(i, v1.UpgradeAwaitSwitchover) {
			continue
		}
		// it was given back a moment ago
		if lasted, _ := p.progress(rolling + i.Name); lasted {
			u.Progress, p.step.Restart = late+i.Name, ""
			continue
		}
		p.tellRefusals()
		return true
	}
	if standby || u.Refusals < refusalsTold && p.heldBack() == "" {
		return false
	}
	last := -1
	for n, name := range u.Rolled {
		if i, exists := f.Instance(name); exists && !i.Deleting && name != f.Holder {
			last = n
		}
	}
	if last < 0 {
		return false
	}
	name := u.Rolled[last]
	u.Rolled = slices.Delete(u.Rolled, last, last+1)
	u.Progress, u.ProgressAt = string(agentapi.SeedFollowing), at(f.Now)
	p.say(v1.UpgradeAwaitSwitchover, "%s is to run %s again, which has no standby while the switchover does not follow", name, u.From)
	p.tellRefusals()
	p.step.Recheck = soon
	return true
}

// rolls says whether the standby, which was told to follow the seed, is still waited for.
func (p *pass) rolls(name string) bool {
	f, u := p.f, p.u
	i, exists := f.Instance(name)
	if !exists || u.Progress == late+name {
		return false
	}
	report, _ := i.Report.Get()
	waits := p.remake(i, v1.UpgradeRollStandbys)
	if !waits && f.ReadyAside(i) && report.Streaming {
		return false
	}
	if lasted, _ := p.progress(rolling + name); lasted {
		u.LastFailure = fmt.Sprintf("%s did not follow %s within %s%s; the upgrade goes on without it", name, u.Seed, rollBound, problemOf(i))
		u.Progress, p.step.Restart = late+name, ""
		return false
	}
	if !waits {
		p.say(v1.UpgradeRollStandbys, "waiting for %s to follow %s%s", name, u.Seed, problemOf(i))
	}
	return true
}

// late marks a rolled standby that is not waited for any more.
const late = "without "

// mayNotSwitch is why the writes may not be moved yet; empty: they may.
func (p *pass) mayNotSwitch() string {
	if why := p.heldBack(); why != "" {
		return why
	}
	if u := p.u; u.RetryAt != nil && p.f.Now.Before(u.RetryAt.Time) {
		return "the last switchover came to nothing, and is tried again soon: " + u.LastFailure
	}
	return ""
}

// heldBack is why people do not want the writes to be moved now; empty: they do. The way back was asked for just now.
func (p *pass) heldBack() string {
	f := p.f
	switch {
	case f.Upgrade.Manual && !f.Upgrade.Approved:
		return "everything is ready; set the annotation " + naming.AnnotationUpgradeSwitchover + " to now"
	case p.u.SwitchedOverAt == nil:
		return f.Upgrade.Closed
	default:
		return ""
	}
}

// switchover moves the writes to the target, or says why not yet.
func (p *pass) switchover(target, to string, keepBack bool) {
	f, u := p.f, p.u
	under, awaiting := v1.UpgradeSwitchingOver, v1.UpgradeAwaitSwitchover
	if u.SwitchedOverAt != nil {
		under, awaiting = v1.UpgradeRollback, v1.UpgradeRollback
	}
	primary, known := f.Primary()
	report, _ := primary.Report.Get()
	if said := saidOf(report, u.ID, to); known && said != nil {
		asked := u.AskedAt != nil && !said.Since.Before(u.AskedAt.Add(-clockTolerance))
		switch {
		case said.Ended == nil:
			p.say(under, "moving the writes from %s to %s", f.Holder, target)
			return
		case asked && said.Refused != "":
			p.refuse(said.Refused, said.PauseMillis, p.offline() && said.PauseMillis > 0)
			return
		}
	}
	if u.AskedAt != nil {
		patience := askPatience
		if p.offline() && !known { // it may be stopped all the same, until its own bound
			patience += offlinePause
		}
		if f.Now.Sub(u.AskedAt.Time) > patience {
			p.refuse(fmt.Sprintf("%s did not say how the switchover goes", f.Holder), 0, p.offline())
			return
		}
		p.say(under, "waiting for %s to move the writes to %s", f.Holder, target)
		return
	}
	if why := p.mayNotSwitch(); why != "" {
		p.say(awaiting, "%s", why)
		p.tellRefusals()
		if p.step.Recheck = rest; u.RetryAt != nil && u.RetryAt.After(f.Now) {
			p.step.Recheck = min(rest, u.RetryAt.Sub(f.Now))
		}
		return
	}
	if !known || !primary.Ready() {
		p.say(awaiting, "the primary %s is not known to serve", f.Holder)
		return
	}
	u.AskedAt = at(f.Now)
	p.step.Switch = &agentapi.UpgradeSwitchoverRequest{
		ID: u.ID, Target: target, To: to, MaxPauseMillis: f.Upgrade.MaxPause.Milliseconds(), Reverse: keepBack,
	}
	if p.offline() {
		p.step.Switch.Offline, p.step.Switch.MaxPauseMillis = true, offlinePause.Milliseconds()
	}
	p.say(under, "moving the writes from %s to %s", f.Holder, target)
}

// refusalsTold is after how many refusals in a row a switchover is a problem, and the live version gets a standby back.
const refusalsTold = 3

// tellRefusals makes a switchover that comes to nothing again and again a problem.
func (p *pass) tellRefusals() {
	if u := p.u; u.Refusals >= refusalsTold {
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: fmt.Sprintf(
			"The switchover has come to nothing %d times: %s. Mend that, or set spec.version back to %q", u.Refusals, u.LastFailure, p.f.Live)}
	}
}

// saidOf is what the agent says of a switchover of that attempt to that version.
func saidOf(report agentapi.Status, id, to string) *agentapi.UpgradeSwitchoverStatus {
	if report.Upgrade == nil || report.Upgrade.Switchover == nil || report.Upgrade.ID != id || report.Upgrade.Switchover.To != to {
		return nil
	}
	return report.Upgrade.Switchover
}

// refuse takes note of a switchover that came to nothing, after a pause of so many milliseconds. It is tried again, but for one that is the last.
func (p *pass) refuse(why string, pause int64, last bool) {
	if pause > 0 {
		p.u.LastWritePause = (time.Duration(pause) * time.Millisecond).String()
	}
	if last {
		p.giveUp(why)
		return
	}
	p.u = Refused(p.u, why, p.f.Now)
	p.say("", "the switchover came to nothing, and is tried again soon: %s", why)
	p.tellRefusals()
}

func text(problem *agentapi.Problem) string {
	if problem == nil {
		return "it failed"
	}
	return problem.Message
}

// problemOf is what is known to be wrong with an instance, in brackets.
func problemOf(i facts.Instance) string {
	if problem := i.Problem(); problem != nil {
		return " (" + problem.Message + ")"
	}
	return ""
}
