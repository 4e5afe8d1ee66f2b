package election

import (
	"fmt"
	"slices"

	"github.com/pgsteward/pgsteward/internal/naming"
)

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
		if upstream := servingMember(f); upstream != "" {
			return Decision{Action: RunStandby, Upstream: upstream, Ask: true, Reason: "the lease is not known; " + upstream + " says to be the primary"}, true
		}
		return Decision{Action: RunStandby, Ask: true, Reason: "the lease is not known; following the last upstream"}, true
	}
	return wait("the lease is not known"), true
}

// servingMember is the member that says to be the primary, of the highest timeline; empty: nobody does.
func servingMember(f Facts) string {
	best := Member{}
	for _, m := range sorted(f.Members) {
		if m.Primary && m.Data.SystemIdentifier == f.Data.SystemIdentifier && m.Data.Position.Timeline > best.Data.Position.Timeline {
			best = m
		}
	}
	return best.Name
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
	if f.Data.Kind == DataNone && !mayBootstrap(f) && !off["other-pod/data"] {
		return Decision{}, false // it starts nothing, and those that have data must not promise it to wait
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
	return Decision{Action: RunPrimary, Timeline: promotion(f, off), Sync: firstSync(f, off), Reason: "holds the lease"}, true
}

func holderForgotten(f Facts, off without) (Decision, bool) {
	if f.Lease.Holder != "" || !f.Lease.Held || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	decision := Decision{Action: RunPrimary, Timeline: promotion(f, off), Reason: "held the lease that was made anew, and takes it back"}
	if off["holder-forgotten/timeline"] {
		decision.Timeline = 0
	}
	return decision, true
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
	// What another Pod holds cannot be given away; that Lease has run out (rule 4), so that the others take it by themselves.
	if f.Lease.HolderPod == f.Pod && !f.Server.Running {
		if next := successor(f, f.Server.Ended, off); next != "" {
			return Decision{Action: HandOver, Target: next, Reason: "the volume has no data; " + next + " is the furthest"}, true
		}
	}
	return Decision{Action: Refuse, Problem: DataLost, Ask: true,
		Reason: "this instance is the primary, but its volume has no data; restore the volume; or, if another instance has the data, let that one take over, whatever it lacks, by the annotation " + naming.AnnotationForceFailover + "=NAME of the cluster"}, true
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
