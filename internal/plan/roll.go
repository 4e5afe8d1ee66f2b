package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

const (
	// rollRecheck is when to see whether a standby has caught up: positions alone are no news.
	rollRecheck = 2 * time.Second
	// rollPause is how long a roll leaves a primary alone that has refused to hand over.
	rollPause = 30 * time.Second
	// undonePause is that if the primary was stopped for it, and started again: each time costs clients seconds.
	undonePause = 10 * time.Minute
	// vainBound is how soon after a switchover a restart is due again on the new primary without a new cause.
	vainBound = 2 * time.Minute
)

// roll restarts the instances that differ from what the spec wants, one at a time: the standbys first, then the primary's part is
// handed over to one of them, and the old primary is the last. Nothing is restarted while anything else is not as it should be.
func roll(f *facts.Cluster) (Decision, bool) {
	var due []facts.Instance
	for _, i := range f.Instances {
		if i.Pod != nil && (i.Pod.Outdated || i.PendingRestart()) {
			due = append(due, i)
		}
	}
	invalid := slices.ContainsFunc(f.Problems, func(p facts.Problem) bool { return p.Reason == v1.ReasonInvalidSpec })
	if len(due) == 0 || invalid {
		return Decision{}, false
	}
	next := due[0]
	if at := slices.IndexFunc(due, func(i facts.Instance) bool { return i.Name != f.Holder }); at >= 0 {
		next = due[at]
	}
	if primary, _ := f.Primary(); lowers(primary) && !primary.Pod.Outdated {
		next = primary
	}
	d := Decision{Members: members(f), Reason: v1.ReasonUpdatingInstances, Recheck: rollRecheck}
	step := fmt.Sprintf("%d of %d: %s", len(f.Instances)-len(due)+1, len(f.Instances), next.Name)
	why := restless(f, next.Name)
	if why == "" {
		why = unspread(due)
	}
	if why != "" {
		d.Message = fmt.Sprintf("%s waits: %s", step, why)
		d.Refused = []Refusal{{What: "restarting " + next.Name, Why: why}}
		return d, true
	}
	if next.Name == f.Holder && len(f.Instances) > 1 && !lowers(next) && !next.OlderAgent() && !inVain(f, next) {
		handOver(f, &d, step)
		return d, true
	}
	d.Message = step + ", " + rollCause(next)
	d.Action = restart(next)
	return d, true
}

// restart makes the instance new: its Pod if that is outdated or its agent cannot be asked, else only its server.
func restart(i facts.Instance) Action {
	if i.Pod.Outdated || i.OlderAgent() {
		return RestartInstance{Instance: i.Name, PodUID: i.Pod.UID}
	}
	report, _ := i.Report.Get()
	return RestartServer{Instance: i.Name, PodUID: i.Pod.UID, Started: report.ServerStarted, Why: rollCause(i)}
}

// lowers says whether the primary waits for a restart that lowers what its standbys must not go below: it is restarted where it
// is, and first. After a switchover the next primary would wait for the same, and so on for ever.
func lowers(i facts.Instance) bool {
	report, known := i.Report.Get()
	return known && len(report.Lowering) > 0
}

// inVain says whether the primary was handed over to a moment ago, being as it should then, and waits for a restart again: whatever the
// cause, handing over to the next would only go round.
func inVain(f *facts.Cluster, primary facts.Instance) bool {
	last := f.Switchover
	return last != nil && last.Phase == v1.SwitchoverCompleted && last.Target == primary.Name && !primary.Pod.Outdated &&
		last.CompletedAt != nil && f.Now.Sub(last.CompletedAt.Time) < vainBound
}

// rollCause is why the instance is restarted.
func rollCause(i facts.Instance) string {
	report, _ := i.Report.Get()
	if i.Pod.Outdated || len(report.PendingRestart) == 0 {
		return "whose Pod differs from the spec"
	}
	return "for which a restart is due to set " + strings.Join(report.PendingRestart, ", ")
}

// restless is why nothing may be restarted now but what is broken anyway: something else than the instance itself is not as it
// should be, or is not known. Empty: all serves.
func restless(f *facts.Cluster, next string) string {
	primary, known := f.Primary()
	if !known || !primary.Ready() {
		return fmt.Sprintf("the primary %s is not known to serve", f.Holder)
	}
	for _, i := range f.Instances {
		if i.Name == f.Holder {
			continue
		}
		if _, heard := i.Report.Get(); i.Name == next && heard {
			continue // it need not be fit to become primary: it is restarted
		}
		if why := f.CannotTakeOver(i); why != "" {
			return fmt.Sprintf("%s is not as it should be: %s", i.Name, why)
		}
	}
	if len(f.Instances) != f.Replicas {
		return fmt.Sprintf("there are %d instances of %d", len(f.Instances), f.Replicas)
	}
	return ""
}

// unspread is why it is not known yet which instances are due: the StatefulSets get a change one after the other, and if the primary's
// was the first, it would be restarted before its standbys. (For a configuration, settle waits.) Empty: all have it.
func unspread(due []facts.Instance) string {
	at := slices.IndexFunc(due, func(i facts.Instance) bool { return i.Pod.TemplateLags })
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("the StatefulSet of %s does not have the change yet", due[at].Name)
}

// handOver makes another instance primary, one that is as the spec wants it, so that the old one can be restarted.
func handOver(f *facts.Cluster, d *Decision, step string) {
	if last := f.Switchover; last != nil && last.From == f.Holder && last.CompletedAt != nil && last.Phase != v1.SwitchoverCompleted {
		pause := rollPause
		if last.Reason == v1.ReasonSwitchoverUndone {
			pause = undonePause
		}
		if wait := pause - f.Now.Sub(last.CompletedAt.Time); wait > 0 {
			d.Message, d.Recheck = fmt.Sprintf("%s waits: it did not hand over: %s", step, last.Message), wait
			return
		}
	}
	target, why := bestStandby(f, func(i facts.Instance) string {
		if i.Pod.Outdated || i.PendingRestart() {
			return "it is to be restarted itself"
		}
		return ""
	})
	if why != "" {
		d.Message = fmt.Sprintf("%s waits: no standby can take over (%s)", step, why)
		return
	}
	d.ask(f, target.Name)
	d.Message = fmt.Sprintf("%s, which hands over to %s first", step, target.Name)
}
