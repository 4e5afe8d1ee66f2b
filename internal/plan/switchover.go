package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// switchoverPatience is how long a switchover may take that the primary's agent does not say to be busy with.
	switchoverPatience = time.Minute
	// switchoverBound is how long it may take in any case: the checkpoint that precedes it is most of that.
	switchoverBound = 15 * time.Minute
	// switchoverRecheck is when to see how it goes, should nothing be heard.
	switchoverRecheck = 5 * time.Second
	// hearingPatience is how long to wait for the agents, e.g. after the operator's start, before a wish is refused because they are silent.
	hearingPatience = 15 * time.Second
	// clockTolerance is how far the clocks of two machines may differ.
	clockTolerance = 2 * time.Second
)

// switchover carries out a user's wish, once, or refuses it; and waits for one that is under way.
func switchover(f *facts.Cluster) (Decision, bool) {
	d := Decision{Members: members(f), Reason: v1.ReasonSwitchingOver, Recheck: switchoverRecheck}
	if next := advanced(f); next != nil && (next.Phase == v1.SwitchoverInProgress || next.Target == f.Wish) {
		// the wish may be there still: its annotation goes after the primary was asked
		d.Message = fmt.Sprintf("Switching over from %s to %s", next.From, targetWords(next.Target))
		d.Granted = f.Wish == next.Target
		return d, true
	}
	if f.Wish == "" {
		return Decision{}, false
	}
	primary, known := f.Primary()
	if !known && primary.Ready() && primary.UnheardFor < hearingPatience {
		d.Message = fmt.Sprintf("Waiting for the agent of the primary %s, before switching over to %s", f.Holder, targetWords(f.Wish))
		return d, true
	}
	if wishRefused(f, primary, known) != "" {
		return Decision{}, false // see noteSwitchover: a wish that cannot be keeps nothing else from being done
	}
	d.Granted = true
	d.ask(f, f.Wish)
	d.Message = fmt.Sprintf("Switching over from %s to %s", f.Holder, targetWords(f.Wish))
	return d, true
}

// noteSwitchover adds to a decision about something else what there is to say of switchovers: how one has ended, or that a wish for one
// is refused. Nothing is said while nothing is to be written.
func noteSwitchover(f *facts.Cluster, d *Decision) {
	if d.Rule == "switchover" && (d.Switchover != nil || !d.Granted) || d.Frozen || d.AccessOnly {
		return
	}
	if next := advanced(f); next != nil {
		if next != f.Switchover {
			d.Switchover = next
		}
		return
	}
	if f.Wish == "" || d.Granted {
		return
	}
	primary, known := f.Primary()
	if why := wishRefused(f, primary, known); why != "" {
		wish := v1.SwitchoverStatus{Target: f.Wish, From: f.Holder, RequestedAt: metav1.NewTime(f.Now)}
		d.Switchover, d.Granted = ended(f, wish, v1.SwitchoverRefused, v1.ReasonSwitchoverRefused, why), true
	}
}

// ask makes the decision ask the primary to hand over to the target.
func (d *Decision) ask(f *facts.Cluster, target string) {
	to := target
	if to == naming.SwitchoverBest {
		to = ""
	}
	primary, _ := f.Instance(f.Holder)
	d.Action = Switchover{From: f.Holder, PodUID: primary.Pod.UID, To: to}
	d.Switchover = &v1.SwitchoverStatus{
		Target: target, From: f.Holder, Phase: v1.SwitchoverInProgress, RequestedAt: metav1.NewTime(f.Now),
		Message: fmt.Sprintf("%s hands over to %s", f.Holder, targetWords(target)),
	}
}

// wishRefused is why a user's wish is not carried out; empty: it is.
func wishRefused(f *facts.Cluster, primary facts.Instance, known bool) string {
	switch {
	case f.Wish == f.Holder:
		return "it is the primary already"
	case f.Holder == "":
		return "there is no primary that could hand over"
	case !known || !primary.Ready():
		return fmt.Sprintf("the primary %s does not serve, so it cannot hand over in order", f.Holder)
	case f.Wish == naming.SwitchoverBest:
		return noneEligible(f)
	}
	target, exists := f.Instance(f.Wish)
	if !exists {
		return "there is no such instance"
	}
	return f.CannotTakeOver(target)
}

// noneEligible is why none of the standbys can take over; empty: one can.
func noneEligible(f *facts.Cluster) string {
	var why []string
	for _, i := range f.Instances {
		if i.Name == f.Holder {
			continue
		}
		reason := f.CannotTakeOver(i)
		if reason == "" {
			return ""
		}
		why = append(why, i.Name+": "+reason)
	}
	if len(why) == 0 {
		return "there is no standby"
	}
	return "no standby is eligible (" + strings.Join(why, "; ") + ")"
}

// advanced is the status of the last switchover as it is now, if that is news or it is still under way; nil otherwise.
func advanced(f *facts.Cluster) *v1.SwitchoverStatus {
	last := f.Switchover
	if last == nil || last.Phase != v1.SwitchoverInProgress {
		return nil
	}
	if primary, known := f.Primary(); f.Holder != "" && f.Holder != last.From {
		switch {
		case known && (last.Target == f.Holder || last.Target == naming.SwitchoverBest):
			return ended(f, *last, v1.SwitchoverCompleted, "", fmt.Sprintf("%s is primary after %s", f.Holder, last.From))
		case known:
			return ended(f, *last, v1.SwitchoverFailed, v1.ReasonPrimaryChanged, fmt.Sprintf("%s is primary after %s, not %s", primary.Name, last.From, last.Target))
		}
	}
	from, _ := f.Instance(last.From)
	report, known := from.Report.Get()
	if said := report.Switchover; known && said != nil {
		asked := !said.Since.Before(last.RequestedAt.Add(-clockTolerance))
		if asked && said.Undone() {
			return ended(f, *last, v1.SwitchoverFailed, v1.ReasonSwitchoverUndone, said.Refused)
		}
		if asked && said.Refused != "" {
			return ended(f, *last, v1.SwitchoverRefused, v1.ReasonSwitchoverRefused, said.Refused)
		}
		if asked && said.Ended == nil && f.Now.Sub(last.RequestedAt.Time) < switchoverBound {
			return last
		}
	}
	if f.Now.Sub(last.RequestedAt.Time) < switchoverPatience {
		return last
	}
	return ended(f, *last, v1.SwitchoverFailed, v1.ReasonSwitchoverRefused, fmt.Sprintf("%s did not hand over within %s", last.From, switchoverPatience))
}

// ended is the switchover with its outcome.
func ended(f *facts.Cluster, s v1.SwitchoverStatus, phase v1.SwitchoverPhase, reason, message string) *v1.SwitchoverStatus {
	now := metav1.NewTime(f.Now)
	s.Phase, s.Reason, s.Message, s.CompletedAt = phase, reason, message, &now
	return &s
}

// bestStandby is the standby among those for which fit holds that is eligible and nearest to the primary, the lowest number first;
// and why each of the others is not. Those that confirm commits come before those that do not.
func bestStandby(f *facts.Cluster, fit func(facts.Instance) string) (facts.Instance, string) {
	var best []facts.Instance
	var why []string
	for _, i := range f.Instances {
		if i.Name == f.Holder {
			continue
		}
		if reason := cmp.Or(f.CannotTakeOver(i), fit(i)); reason != "" {
			why = append(why, i.Name+": "+reason)
			continue
		}
		best = append(best, i)
	}
	if len(best) == 0 {
		return facts.Instance{}, strings.Join(why, "; ")
	}
	primary, _ := f.Instance(f.Holder)
	report, _ := primary.Report.Get()
	async := func(i facts.Instance) int {
		if report.Sync == "" || slices.Contains(report.SyncStandbys, i.Name) {
			return 0
		}
		return 1
	}
	return slices.MinFunc(best, func(a, b facts.Instance) int {
		first, _ := a.Report.Get()
		second, _ := b.Report.Get()
		return cmp.Or(cmp.Compare(async(a), async(b)), cmp.Compare(*first.LagBytes, *second.LagBytes), cmp.Compare(a.Ordinal, b.Ordinal))
	}), ""
}

func targetWords(target string) string {
	if target == naming.SwitchoverBest {
		return "the best standby"
	}
	return target
}
