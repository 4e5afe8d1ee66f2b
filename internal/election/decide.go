package election

import (
	"cmp"
	"fmt"
	"strings"
)

// rule is one of the rules of the package comment; it says whether it applies.
type rule struct {
	name   string
	decide func(Facts) (Decision, bool)
}

var rules = []rule{
	{"lease-unknown", leaseUnknown},
	{"wrong-data", wrongData},
	{"holder-with-data", holderWithData},
	{"holder-forgotten", holderForgotten},
	{"holder-bootstrap", holderBootstrap},
	{"holder-data-lost", holderDataLost},
	{"follow-holder", followHolder},
	{"bootstrap", bootstrap},
	{"empty-waits", emptyWaits},
	{"members-silent", membersSilent},
	{"less-advanced", lessAdvanced},
	{"writer-may-live", writerMayLive},
	{"campaign", campaign},
}

// Decide says what the instance is to do. It is total: the last rule always applies.
func Decide(f Facts) Decision {
	for _, r := range rules {
		if decision, applies := r.decide(f); applies {
			decision.Rule = r.name
			return decision
		}
	}
	return Decision{Action: Wait, Reason: "no rule applies"}
}

func wait(format string, args ...any) Decision {
	return Decision{Action: Wait, Reason: fmt.Sprintf(format, args...)}
}

func leaseUnknown(f Facts) (Decision, bool) {
	if f.Lease.Known {
		return Decision{}, false
	}
	if f.Data.Kind == DataStandby {
		return Decision{Action: RunStandby, Reason: "the lease is not known; following the last upstream"}, true
	}
	return wait("the lease is not known"), true
}

func wrongData(f Facts) (Decision, bool) {
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

func holderWithData(f Facts) (Decision, bool) {
	if f.Lease.Holder != f.Self || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	if otherPodMayWrite(f) {
		return wait("another Pod of this instance may still be running; waiting for the lease to run out"), true
	}
	return Decision{Action: RunPrimary, Reason: "holds the lease"}, true
}

func holderForgotten(f Facts) (Decision, bool) {
	if f.Lease.Holder != "" || !f.Lease.Held || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	return Decision{Action: RunPrimary, Reason: "held the lease that was made anew, and takes it back"}, true
}

// otherPodMayWrite says whether the Lease is that of another Pod of this instance, which may not have stopped.
func otherPodMayWrite(f Facts) bool {
	return f.Lease.HolderPod != "" && f.Lease.HolderPod != f.Pod && !f.Lease.Expired
}

func holderBootstrap(f Facts) (Decision, bool) {
	if f.Lease.Holder != f.Self || !mayBootstrap(f) {
		return Decision{}, false
	}
	if otherPodMayWrite(f) {
		return wait("another Pod of this instance may still be running; waiting for the lease to run out"), true
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

func holderDataLost(f Facts) (Decision, bool) {
	if f.Lease.Holder != f.Self {
		return Decision{}, false
	}
	if f.Data.Kind == DataUnknown {
		return wait("the volume was not read yet"), true
	}
	return Decision{Action: Refuse, Problem: DataLost,
		Reason: "this instance is the primary, but its volume has no data; restore the volume; or, if another instance has the data, see that spec.deletion.volumes is Retain, delete the cluster and create it again: it begins with the newest data that is left"}, true
}

func followHolder(f Facts) (Decision, bool) {
	switch {
	case f.Lease.Holder == "":
		return Decision{}, false
	case f.Data.Kind == DataUnknown:
		return wait("the volume was not read yet"), true
	case f.Data.Kind == DataNone:
		return Decision{Action: CloneFrom, Upstream: f.Lease.Holder, Reason: "the volume is empty"}, true
	}
	return Decision{Action: RunStandby, Upstream: f.Lease.Holder, Reason: f.Lease.Holder + " holds the lease"}, true
}

func bootstrap(f Facts) (Decision, bool) {
	if !mayBootstrap(f) {
		return Decision{}, false
	}
	return Decision{Action: Bootstrap, Reason: "first instance of a new cluster"}, true
}

func emptyWaits(f Facts) (Decision, bool) {
	if f.Data.Kind.HasData() {
		return Decision{}, false
	}
	return wait("there is no primary to clone from"), true
}

func membersSilent(f Facts) (Decision, bool) {
	var silent []string
	for _, member := range f.Members {
		if member.Data.Kind == DataUnknown {
			silent = append(silent, member.Name)
		}
	}
	if len(silent) == 0 {
		return Decision{}, false
	}
	decision := wait("there is no primary; waiting for the position of %s", strings.Join(silent, ", "))
	if f.Waited >= AnswerBound {
		decision.Problem = MembersSilent
	}
	return decision, true
}

func lessAdvanced(f Facts) (Decision, bool) {
	best := Member{Name: f.Self, Data: f.Data}
	for _, member := range f.Members {
		if member.Data.Kind.HasData() && compare(member, best) > 0 {
			best = member
		}
	}
	if best.Name == f.Self {
		return Decision{}, false
	}
	return wait("there is no primary; %s is the furthest and should take the lease", best.Name), true
}

// compare is positive if a is to be preferred to b. The directory that was primary on a timeline has everything that was ever
// written on it, even if it crashed and its control file does not show how far it came; so it comes before the LSN.
func compare(a, b Member) int {
	return cmp.Or(
		cmp.Compare(a.Data.Position.Timeline, b.Data.Position.Timeline),
		-cmp.Compare(a.Data.Kind, b.Data.Kind), // DataPrimary < DataStandby
		cmp.Compare(a.Data.Position.LSN, b.Data.Position.LSN),
		-compareNames(a.Name, b.Name),
	)
}

// compareNames orders names by number: shorter before longer.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func writerMayLive(f Facts) (Decision, bool) {
	if f.Lease.Expired {
		return Decision{}, false
	}
	return wait("there is no primary; waiting until whoever may have held a lease that was deleted has stopped"), true
}

func campaign(f Facts) (Decision, bool) {
	return Decision{Action: Campaign, Reason: "is the furthest of all members, and nobody holds the lease"}, true
}
