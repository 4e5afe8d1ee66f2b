package election

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AnswerBound is how long an instance waits for silent members before it says so.
const AnswerBound = 60 * time.Second

// rule is one of the rules of the package comment; it says whether it applies.
type rule struct {
	name   string
	decide func(Facts, without) (Decision, bool)
}

var rules = []rule{
	{"fenced", fenced},
	{"lease-unknown", leaseUnknown},
	{"wrong-data", wrongData},
	{"other-pod", otherPod},
	{"hand-over", handOver},
	{"holder-failing", holderFailing},
	{"holder-with-data", holderWithData},
	{"holder-forgotten", holderForgotten},
	{"holder-bootstrap", holderBootstrap},
	{"holder-data-lost", holderDataLost},
	{"failover", failover},
	{"follow-holder", followHolder},
	{"bootstrap", bootstrap},
	{"empty-waits", emptyWaits},
	{"members-silent", membersSilent},
	{"less-advanced", lessAdvanced},
	{"writer-may-live", writerMayLive},
	{"campaign", campaign},
}

// Decide says what the instance is to do. It is total: the last rule always applies.
func Decide(f Facts) Decision { return decide(f, nil) }

func decide(f Facts, off without) Decision {
	for _, r := range rules {
		if off[r.name] {
			continue
		}
		if decision, applies := r.decide(f, off); applies {
			decision.Rule = r.name
			return decision
		}
	}
	return Decision{Action: Wait, Reason: "no rule applies"}
}

func wait(format string, args ...any) Decision {
	return Decision{Action: Wait, Reason: fmt.Sprintf(format, args...)}
}

func fenced(f Facts, _ without) (Decision, bool) {
	if !f.Fenced {
		return Decision{}, false
	}
	return Decision{Action: Stop, Problem: InstanceFenced, Reason: "this instance is fenced by hand"}, true
}

func leaseUnknown(f Facts, _ without) (Decision, bool) {
	if f.Lease.Known {
		return Decision{}, false
	}
	if f.Data.Kind == DataStandby {
		return Decision{Action: RunStandby, Reason: "the lease is not known; following the last upstream"}, true
	}
	return wait("the lease is not known"), true
}

func wrongData(f Facts, _ without) (Decision, bool) {
	if !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	for _, expected := range []string{f.SystemIdentifier, f.Lease.SystemIdentifier} {
		if expected != "" && expected != f.Data.SystemIdentifier {
			return Decision{Action: Refuse, Problem: SystemMismatch, Reason: fmt.Sprintf(
				"the volume has data of PostgreSQL system %s, the cluster's is %s", f.Data.SystemIdentifier, expected)}, true
		}
	}
	return Decision{}, false
}

func otherPod(f Facts, off without) (Decision, bool) {
	if f.Lease.Holder != f.Self || f.Lease.HolderPod == "" || f.Lease.HolderPod == f.Pod || f.Data.Kind == DataUnknown {
		return Decision{}, false
	}
	if !f.Lease.Expired && !off["other-pod/expired"] {
		return wait("another Pod of this instance may still be running; waiting for the lease to run out"), true
	}
	if f.Forced || off["other-pod/promise"] || otherMembers(f) == 0 || slices.ContainsFunc(f.Members, func(m Member) bool {
		return m.Promised && slices.Contains(f.Lease.Members, m.Name)
	}) {
		return Decision{}, false
	}
	decision := wait("another Pod of this instance may still be running, and go on by the promises of all others; waiting for that of one of them")
	decision.Seek = true
	return decision, true
}

// otherMembers is how many members beside this one the Lease names.
func otherMembers(f Facts) int {
	count := 0
	for _, name := range f.Lease.Members {
		if name != f.Self {
			count++
		}
	}
	return count
}

func holderWithData(f Facts, off without) (Decision, bool) {
	if f.Lease.Holder != f.Self || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	return Decision{Action: RunPrimary, Timeline: promotion(f, off), Reason: "holds the lease"}, true
}

func holderForgotten(f Facts, _ without) (Decision, bool) {
	if f.Lease.Holder != "" || !f.Lease.Held || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	return Decision{Action: RunPrimary, Reason: "held the lease that was made anew, and takes it back"}, true
}

func holderBootstrap(f Facts, _ without) (Decision, bool) {
	if f.Lease.Holder != f.Self || !mayBootstrap(f) {
		return Decision{}, false
	}
	return Decision{Action: Bootstrap, Reason: "holds the lease of a cluster without data"}, true
}

// mayBootstrap says whether a new system may be made here: the volume is known to be empty, the configuration names this
// instance, and nothing knows of an existing system.
func mayBootstrap(f Facts) bool {
	if f.Data.Kind != DataNone || f.Bootstrap != f.Self || f.SystemIdentifier != "" || f.Lease.SystemIdentifier != "" {
		return false
	}
	for _, member := range f.Members {
		if member.Data.Kind.HasData() {
			return false
		}
	}
	return true
}

func holderDataLost(f Facts, off without) (Decision, bool) {
	if f.Lease.Holder != f.Self {
		return Decision{}, false
	}
	if f.Data.Kind == DataUnknown {
		return wait("the volume was not read yet"), true
	}
	if next := successor(f, f.Server.Down, off); next != "" && !f.Server.Running {
		return Decision{Action: HandOver, Target: next, Reason: "the volume has no data; " + next + " is the furthest"}, true
	}
	return Decision{Action: Refuse, Problem: DataLost, Ask: true,
		Reason: "this instance is the primary, but its volume has no data; restore the volume; or, if another instance has the data, see that spec.deletion.volumes is Retain, delete the cluster and create it again: it begins with the newest data that is left"}, true
}

func failover(f Facts, off without) (Decision, bool) {
	if f.Lease.Holder == "" || f.Lease.Holder == f.Self || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	if why, _ := candidate(f, off); why != "" {
		return Decision{}, false
	}
	return Decision{Action: Campaign, Timeline: promotion(f, off), Ask: true,
		Reason: "the lease of " + f.Lease.Holder + " has run out, and this instance is the furthest"}, true
}

func followHolder(f Facts, off without) (Decision, bool) {
	switch {
	case f.Lease.Holder == "":
		return Decision{}, false
	case f.Data.Kind == DataUnknown:
		return wait("the volume was not read yet"), true
	case f.Data.Kind == DataNone:
		return Decision{Action: CloneFrom, Upstream: f.Lease.Holder, Ask: f.Lease.Expired, Reason: "the volume is empty"}, true
	}
	decision := Decision{Action: RunStandby, Upstream: f.Lease.Holder, Reason: f.Lease.Holder + " holds the lease"}
	if f.Lease.Expired {
		why, problem := candidate(f, off)
		decision.Ask = true
		decision.Reason = fmt.Sprintf("the lease of %s has run out; not taking it: %s", f.Lease.Holder, why)
		decision.Problem = problem
	}
	return decision, true
}

func bootstrap(f Facts, _ without) (Decision, bool) {
	if !mayBootstrap(f) {
		return Decision{}, false
	}
	return Decision{Action: Bootstrap, Reason: "first instance of a new cluster"}, true
}

func emptyWaits(f Facts, _ without) (Decision, bool) {
	if f.Data.Kind.HasData() {
		return Decision{}, false
	}
	return wait("there is no primary to clone from"), true
}

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
	if best.Name == f.Self {
		return Decision{}, false
	}
	return idle(f, "there is no primary; %s is the furthest and should take the lease", best.Name), true
}

func writerMayLive(f Facts, off without) (Decision, bool) {
	if !f.Lease.Expired && !off["writer-may-live/expired"] {
		return idle(f, "there is no primary; waiting until whoever may have held a lease that was deleted has stopped"), true
	}
	var missing []string
	for _, m := range f.Members {
		if !m.Promised {
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
	if f.Policy.SyncMode != SyncNone && !off["campaign/alone"] {
		decision.Sync = &SyncSet{} // what was published is forgotten: only this instance is known to have everything
	}
	return decision, true
}
