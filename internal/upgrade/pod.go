package upgrade

import (
	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// unusable deals with an image that cannot be used: one of another major ends the upgrade, since trying again would change nothing; one
// that cannot be pulled is waited for, and when the spec names another one, that is taken at once.
func (p *pass) unusable(seed facts.Instance) bool {
	problem := seed.Problem()
	switch {
	case problem == nil:
		return false
	case problem.Reason == v1.ReasonImageMajorMismatch:
		p.u.Attempt = maxAttempts
		p.giveUp(problem.Message)
	case seed.Pod.Problem != nil && seed.Pod.Outdated && !seed.Pod.TemplateLags && !seed.Pod.Deleting:
		p.step.Restart = seed.Name
		p.say("", "making the Pod of %s anew, since the spec has changed", seed.Name)
	default:
		return false
	}
	return true
}

// remake has the instance's Pod made anew if it runs another major than it is to. It says whether there is something to wait for.
func (p *pass) remake(i facts.Instance, phase v1.UpgradePhase) bool {
	want := p.wanted(i.Name)
	switch {
	case p.f.Runs(i) == want && i.Pod != nil:
		return false
	case i.Pod == nil || i.Pod.Deleting || i.Pod.TemplateVersion != want:
		p.say(phase, "waiting for a Pod of %s with PostgreSQL %s%s", i.Name, want, problemOf(i))
	default:
		p.step.Restart = i.Name
		p.say(phase, "making the Pod of %s anew, with PostgreSQL %s", i.Name, want)
	}
	return true
}
