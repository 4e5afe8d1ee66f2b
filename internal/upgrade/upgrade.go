package upgrade

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// pass is one pass over a cluster: f are the facts, u the status that is going to be stored, step what comes of it.
type pass struct {
	f    *facts.Cluster
	u    *v1.UpgradeStatus
	step Step
}

// Next says what is to be done about a major upgrade. It does not change the facts.
func Next(f *facts.Cluster) Step {
	p := &pass{f: f, u: f.Upgrade.Status.DeepCopy()}
	p.told()
	switch u := p.u; {
	case u == nil || u.Phase.Final():
		p.idle()
	case f.Live != u.From && f.Live != u.To:
		p.say("", "the live version is %s, which belongs to no upgrade from %s to %s", f.Live, u.From, u.To)
	case u.Phase == v1.UpgradePreflight:
		p.preflight()
	case u.Phase == v1.UpgradeRevert:
		p.revert()
	case f.Live == u.To:
		p.switched()
	case u.SwitchedOverAt != nil:
		p.back()
	default:
		p.attempt()
	}
	p.step.Status = p.u
	if p.u != nil && p.step.Message != "" && !p.u.Phase.Final() {
		p.u.Message = p.step.Message
	}
	return p.step
}

// told sets what follows from the stored status: what the agents are told, and who runs what.
func (p *pass) told() {
	f, u := p.f, p.u
	if u == nil || u.Phase.Final() {
		if to := f.Upgrade.Check; later(to, f.Live) {
			p.step.Config = &agentapi.Upgrade{
				From: f.Live, To: to, ToVersion: f.Upgrade.Versions[to], OneWay: p.oneWay(), Check: true, Method: methods[f.Upgrade.Method],
			}
		}
		return
	}
	wanted := f.Upgrade.Method
	if u.Seed != "" && u.WantedMethod != "" { // that is what the preflight was made for
		wanted = u.WantedMethod
	}
	config := &agentapi.Upgrade{
		ID: u.ID, From: u.From, To: u.To, Seed: u.Seed, Check: u.Phase == v1.UpgradePreflight,
		Retire: u.Phase == v1.UpgradeRetire, Method: methods[wanted],
	}
	if u.Origin != "" && !slices.Contains(u.Rolled, u.Origin) {
		config.Origin = u.Origin
	}
	if config.Check {
		config.ToVersion, config.OneWay = f.Upgrade.Versions[u.To], p.oneWay()
	}
	if p.offline() { // the seed has chosen, whatever the spec says by now
		config.Method = agentapi.MethodInPlace
	}
	p.step.Config, p.step.Versions = config, map[string]string{}
	for _, i := range f.Instances {
		if version := p.wanted(i.Name); version != f.Live {
			p.step.Versions[i.Name] = version
		}
	}
	if u.Seed != "" && config.Method != agentapi.MethodLogical {
		p.step.Carry = u.Seed
	}
}

// methods are the methods as agents know them; Automatic leaves the choice to the seed.
var methods = map[v1.UpgradeMethod]agentapi.UpgradeMethod{
	v1.UpgradePhysical: agentapi.MethodPhysical, v1.UpgradeLogical: agentapi.MethodLogical, v1.UpgradeInPlace: agentapi.MethodInPlace,
}

// oneWay says that an upgrade which begins now has no way back.
func (p *pass) oneWay() bool {
	return p.f.Upgrade.Window == 0 || p.f.Upgrade.Method == v1.UpgradeInPlace
}

// wanted is the major that the instance is to run, by the status that is stored. The primary's is the live one, whatever it was going to
// be before it became primary.
func (p *pass) wanted(instance string) string {
	u := p.f.Upgrade.Status
	if instance == p.f.Holder {
		return p.f.Live
	}
	if instance == u.Seed && u.Seed != "" || slices.Contains(u.Rolled, instance) {
		return u.To
	}
	return u.From
}

// idle: no upgrade is under way. One begins when the spec wants another version than the live one.
func (p *pass) idle() {
	f, u := p.f, p.u
	p.findingsOnDemand()
	if f.Live == f.Version && u != nil && u.Phase == v1.UpgradeFailed && u.From == f.Live { // nobody wants it any more
		u.Phase, u.Message = v1.UpgradeRolledBack, fmt.Sprintf("the upgrade from %s to %s failed, and was called off", u.From, u.To)
	}
	if f.Live == f.Version || f.SystemIdentifier == "" {
		return
	}
	if u != nil && u.Phase == v1.UpgradeFailed && u.From == f.Live && u.To == f.Version && u.Wish == wish(f) {
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeFailed, Message: fmt.Sprintf(
			"the upgrade from %s to %s failed: %s. The cluster is as it was. Mend the cause, then give the annotation %s a new value; or set spec.version back to %q",
			u.From, u.To, u.LastFailure, naming.AnnotationUpgradeRetry, u.From)}
		return
	}
	if !later(f.Version, f.Live) {
		p.step.Problem = &facts.Problem{Reason: v1.ReasonUpgradeBlocked, Message: fmt.Sprintf(
			"spec.version is %s, but the data is of PostgreSQL %s, and cannot go back; set spec.version to %q", f.Version, f.Live, f.Live)}
		return
	}
	p.u = &v1.UpgradeStatus{
		From: f.Live, To: f.Version, Phase: v1.UpgradePreflight, StartedAt: at(f.Now), FromImage: f.Images[f.Live], Wish: wish(f),
	}
	p.step.Waits, p.step.Reason, p.step.Recheck = true, v1.ReasonUpgradeWaits, soon
	p.step.Message = fmt.Sprintf("Looking for what speaks against an upgrade from %s to %s", f.Live, f.Version)
}

// say makes this the decision of the pass: nothing else is done.
func (p *pass) say(phase v1.UpgradePhase, format string, args ...any) {
	if phase != "" {
		p.u.Phase = phase
	}
	p.step.Applies, p.step.Reason = true, v1.ReasonUpgrading
	p.step.Message = fmt.Sprintf("Upgrading from %s to %s: ", p.u.From, p.u.To) + fmt.Sprintf(format, args...)
	if p.step.Recheck == 0 {
		p.step.Recheck = watch
	}
}

// progress takes note of a step, and says whether it has lasted for longer than the bound.
func (p *pass) progress(step string) (lasted bool, of string) {
	if p.u.Progress != step || p.u.ProgressAt == nil {
		p.u.Progress, p.u.ProgressAt = step, at(p.f.Now)
		return false, step
	}
	bound := seedBound
	switch {
	case step == silent:
		bound = silentBound
	case strings.HasPrefix(step, string(agentapi.SeedPreparing)):
		bound = prepareBound
	case strings.HasPrefix(step, rolling):
		bound = rollBound
	}
	return p.f.Now.Sub(p.u.ProgressAt.Time) > bound, step
}

const (
	silent  = "the seed is not heard"
	rolling = "rolling "
)

// giveUp ends the attempt: everything becomes as it was. why is empty if that is what somebody wants.
func (p *pass) giveUp(why string) {
	u := p.u
	if why != "" {
		u.LastFailure = why
		if p.offline() && u.AskedAt != nil {
			u.Attempt = maxAttempts // each attempt costs time without writes: another one is for somebody to want
		}
	}
	p.say(v1.UpgradeRevert, "making everything as it was%s", because(why))
	p.step.Recheck = soon
	u.Seed, u.Origin, u.AskedAt, u.RetryAt, u.Refusals = "", "", nil, nil, 0
	u.Progress, u.ProgressAt, u.LagBytes = "", nil, nil
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ", since " + why
}

// offline says whether the seed is converted while the primary is stopped: the method InPlace, once the seed has begun with it.
func (p *pass) offline() bool {
	return p.u != nil && p.u.Seed != "" && p.u.Method == string(agentapi.MethodInPlace)
}

// window is for how long there is a way back.
func (p *pass) window() time.Duration {
	if p.offline() {
		return 0
	}
	return p.f.Upgrade.Window
}

// wish is what an upgrade is begun for.
func wish(f *facts.Cluster) string {
	return strings.Join([]string{f.Version, f.Image, f.Upgrade.Retry}, " ")
}

// id names an attempt.
func id(f *facts.Cluster, attempt int32) string {
	hash := fnv.New32a()
	_, _ = fmt.Fprintf(hash, "%s/%s %d %d", f.Namespace, f.Name, f.Now.UnixNano(), attempt)
	return fmt.Sprintf("%06x", hash.Sum32()&0xffffff)
}

// later says whether a is a later major than b.
func later(a, b string) bool {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	return errX == nil && errY == nil && x > y
}
