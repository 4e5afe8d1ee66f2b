package election

import (
	"slices"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// AnswerBound is how long an instance waits for silent members before it says so.
const AnswerBound = 60 * time.Second

// idle is waiting while nobody is the holder. A standby runs meanwhile: only then it can say what it has.
func idle(f Facts, format string, args ...any) Decision {
	decision := wait(format, args...)
	decision.Ask = true
	if f.Data.Kind == DataStandby {
		decision.Action = RunStandby
	}
	return decision
}

func membersSilent(f Facts, off without) (Decision, bool) {
	if f.Forced {
		return Decision{}, false
	}
	best := furthest(f)
	var silent []string
	for _, member := range append(slices.Clone(f.Members), Member{Name: f.Self, Data: f.Data}) {
		// What was a primary on the highest timeline has everything. Else whoever shows less may have more.
		hidden := best.Data.Kind == DataStandby && member.Data.Kind == DataStandby && !member.Data.Exact && !off["no-holder/exact"]
		if member.Data.Kind == DataUnknown || hidden {
			silent = append(silent, member.Name)
		}
	}
	if len(silent) == 0 {
		return Decision{}, false
	}
	decision := idle(f, "there is no primary; waiting for the position of %s", strings.Join(silent, ", "))
	if f.Waited >= AnswerBound {
		decision.Problem = MembersSilent
		decision.Reason += "; if its data is lost for good, let an instance take over, whatever it lacks, by the annotation " + naming.AnnotationForceFailover + "=NAME of the cluster"
	}
	return decision, true
}

// furthest is the member that is to be preferred to all others, this instance among them.
func furthest(f Facts) Member {
	best := Member{Name: f.Self, Data: f.Data}
	for _, member := range f.Members {
		if member.Data.Kind.HasData() && compare(member, best) > 0 {
			best = member
		}
	}
	return best
}

func lessAdvanced(f Facts, _ without) (Decision, bool) {
	best := furthest(f)
	if best.Name == f.Self || f.Forced {
		return Decision{}, false
	}
	return idle(f, "there is no primary; %s is the furthest and should take the lease", best.Name), true
}

func writerMayLive(f Facts, off without) (Decision, bool) {
	if !f.Lease.Expired && !off["writer-may-live/expired"] {
		return idle(f, "there is no primary; waiting until whoever may have held a lease that was deleted has stopped"), true
	}
	if f.Forced && f.Promise.Remaining > 0 && !off["writer-may-live/promised"] {
		return idle(f, "there is no primary; %s", hasPromised(f, off)), true
	}
	var missing []string
	for _, m := range f.Members {
		gone := f.Forced && m.Data.Kind == DataUnknown && m.Silent >= AnswerWait
		if !m.Promised && !gone {
			missing = append(missing, m.Name)
		}
	}
	decision := idle(f, "there is no primary; waiting for the promise of %s, which may have promised to one that goes on", strings.Join(missing, ", "))
	decision.Seek = true
	return decision, len(missing) > 0
}

func campaign(f Facts, off without) (Decision, bool) {
	decision := Decision{Action: Campaign, Ask: true, Timeline: promotion(f, off),
		Reason: "is the furthest of all members, and nobody holds the lease"}
	if f.Forced {
		decision.Timeline, decision.Reason = forcedTimeline(f, off), "is forced to take over, and nobody holds the lease"
	}
	if f.Policy.SyncMode != SyncNone && !off["campaign/alone"] {
		decision.Sync = &SyncSet{} // what was published is forgotten: only this instance is known to have everything
	}
	return decision, true
}

// forcedTimelines are left out by an instance that is forced while nobody holds the Lease: what timelines were given is forgotten
// with the holder, and a member that is gone may have been given some that nobody knows of.
const forcedTimelines = 16

// forcedTimeline is the one to promote to then.
func forcedTimeline(f Facts, off without) int64 {
	highest := max(f.Data.Position.Timeline, f.Data.Newest, f.Lease.Timeline, f.Lease.Position.Timeline)
	for _, m := range f.Members {
		highest = max(highest, m.Data.Position.Timeline)
	}
	if off["forced/timelines"] {
		return promotion(f, off)
	}
	return highest + forcedTimelines + 1
}
