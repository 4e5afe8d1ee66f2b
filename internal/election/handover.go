package election

import (
	"fmt"
	"slices"
	"time"
)

const (
	// HandOverBound is how long the hand-over of a Pod that ends waits, with PostgreSQL stopped, for a target that has received
	// everything.
	HandOverBound = 2 * time.Second
	// SwitchoverBound is how long one that was wished waits: it would come to nothing, for a longer pause.
	SwitchoverBound = 5 * time.Second
	// UncleanBound is that if PostgreSQL was not shut down properly, which its files may show only a moment after it has ended.
	UncleanBound = time.Second
	// PreferredWait is how long of that others wait for the one that clients are sent to already.
	PreferredWait = 500 * time.Millisecond
	// AnswerFresh is how old an answer may be to choose a target by.
	AnswerFresh = 5 * time.Second
)

// BestTarget says to whom the lease could be handed while this instance is primary: to wish, or to the best if that is empty;
// and why not to the others, or to nobody. The target is to be asked again when PostgreSQL has stopped.
func BestTarget(f Facts, wish string) (string, []Refusal) {
	if wish == f.Self {
		return "", []Refusal{{Member: wish, Reason: "is the primary already"}}
	}
	var refused []Refusal
	best := Member{}
	for _, m := range sorted(f.Members) {
		if wish != "" && m.Name != wish {
			continue
		}
		if why := ineligible(f, m); why != "" {
			refused = append(refused, Refusal{Member: m.Name, Reason: why})
		} else if best.Name == "" || compare(m, best) > 0 {
			best = m
		}
	}
	if wish != "" && best.Name == "" && len(refused) == 0 {
		refused = append(refused, Refusal{Member: wish, Reason: "is no instance of this cluster"})
	}
	return best.Name, refused
}

func sorted(members []Member) []Member {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return compareNames(a.Name, b.Name) })
	return members
}

// ineligible says why a member cannot take over as planned; empty: it can.
func ineligible(f Facts, m Member) string {
	switch {
	case m.Data.Kind == DataUnknown || m.Age > AnswerFresh:
		return "does not answer"
	case !m.Data.Kind.HasData():
		return "has no data yet"
	case m.Data.SystemIdentifier != f.Data.SystemIdentifier:
		return fmt.Sprintf("has data of another PostgreSQL system, %s", m.Data.SystemIdentifier)
	case !slices.Contains(f.Lease.Members, m.Name):
		return "is not published as a member yet"
	case m.Fenced:
		return "is fenced"
	case m.Unable != "":
		return m.Unable
	case m.Data.Position.Timeline != f.Data.Position.Timeline:
		return fmt.Sprintf("is on timeline %d, the primary on %d", m.Data.Position.Timeline, f.Data.Position.Timeline)
	case f.Request.Stopped == 0 && !m.Streaming:
		return "does not stream"
	case lacks(f.Data.Position.LSN, m.Data.Position.LSN) > f.Policy.MaximumLag:
		return fmt.Sprintf("lags behind by %d bytes", lacks(f.Data.Position.LSN, m.Data.Position.LSN))
	}
	return ""
}

// bound is how long a hand-over waits, with PostgreSQL stopped.
func (r Request) bound() time.Duration {
	if r.Kind == Switchover {
		return SwitchoverBound
	}
	return HandOverBound
}

// Unconfirmed says of the wished target, or of all members, why PostgreSQL, which was stopped for it, cannot be handed over to them.
func Unconfirmed(f Facts, wish string) []Refusal {
	_, refused := BestTarget(f, wish)
	for _, m := range sorted(f.Members) {
		switch {
		case wish != "" && m.Name != wish, ineligible(f, m) != "", received(f, m, nil) && m.Age <= f.Request.Stopped:
			continue
		case !f.Data.Clean:
			refused = append(refused, Refusal{Member: m.Name, Reason: "would lack what PostgreSQL did not write: it was not shut down cleanly"})
		case m.Age > f.Request.Stopped:
			refused = append(refused, Refusal{Member: m.Name, Reason: "has not answered since"})
		default:
			refused = append(refused, Refusal{Member: m.Name, Reason: fmt.Sprintf("has received everything before %s, and the last record is at %s",
				m.Data.Position.LSN, f.Data.Position.LSN)})
		}
	}
	return refused
}

// received says whether a member has everything that this instance, which was shut down properly, ever wrote.
func received(f Facts, m Member, off without) bool {
	return m.Data.Kind == DataStandby && (f.Data.Clean || off["hand-over/clean"]) &&
		m.Data.SystemIdentifier == f.Data.SystemIdentifier &&
		m.Data.Position.Timeline == f.Data.Position.Timeline &&
		(m.Data.Position.LSN > f.Data.Position.LSN || off["hand-over/received"])
}

// handOver is the rule of that name: what a holder does when the lease is wished to be handed over.
func handOver(f Facts, off without) (Decision, bool) {
	r := f.Request
	if f.Lease.Holder != f.Self || r.Kind == NoRequest || !f.Data.Kind.HasData() {
		return Decision{}, false
	}
	mine := f.Lease.HolderPod == f.Pod || off["hand-over/mine"]
	if r.Kind == Switchover && !mine {
		return Decision{}, false // what this Pod has not taken yet it cannot give away
	}
	target, refused := BestTarget(f, r.Target)
	if f.Server.Running {
		switch {
		case f.Server.Stopping:
			return Decision{Action: Stop, Target: target, Ask: true, Refused: refused, Reason: "PostgreSQL is stopping, to hand over"}, true
		case target != "":
			return Decision{Action: Stop, Target: target, Ask: true, Refused: refused, Reason: "handing over to " + target}, true
		case r.Kind == Termination:
			return Decision{Action: Stop, Ask: true, Refused: refused, Reason: "this Pod ends, and no other instance can take over"}, true
		}
		return Decision{}, false // refused: it goes on as the primary
	}
	if !mine {
		return Decision{Action: Release, Refused: refused, Reason: "this Pod ends before it has taken the lease"}, true
	}
	if confirmed := confirmedTarget(f, off); confirmed != "" {
		return Decision{Action: HandOver, Target: confirmed, Clean: f.Data.Clean, Reason: confirmed + " has received everything"}, true
	}
	if r.Kind == Termination {
		if next := successor(f, r.Stopped, off); next != "" && !f.Data.Clean {
			return Decision{Action: HandOver, Target: next, Reason: next + " is the furthest"}, true
		}
	}
	if r.Kind == Switchover && !f.Data.Clean && r.Stopped >= UncleanBound {
		return Decision{}, false // undone: nobody can be sure to have received everything
	}
	if r.Stopped < r.bound() {
		return Decision{Action: Stop, Ask: true, Refused: refused, Reason: "waiting for a target that has received everything"}, true
	}
	if r.Kind == Termination {
		return Decision{Action: Release, Refused: refused, Reason: "no instance can take over"}, true
	}
	return Decision{}, false // undone: it starts as the primary again
}

// confirmedTarget is the preferred, wished or best member that has said, after PostgreSQL stopped, that it has received everything.
func confirmedTarget(f Facts, off without) string {
	best := Member{}
	preferred := f.Request.Preferred
	for _, m := range sorted(f.Members) {
		if f.Request.Target != "" && m.Name != f.Request.Target && f.Request.Kind == Switchover {
			continue
		}
		if ineligible(f, m) != "" || m.Age > f.Request.Stopped || !received(f, m, off) {
			continue
		}
		if m.Name == preferred {
			return preferred
		}
		if best.Name == "" || m.Name == f.Request.Target || compare(m, best) > 0 && best.Name != f.Request.Target {
			best = m
		}
	}
	for _, m := range f.Members {
		if m.Name == preferred && ineligible(f, m) == "" && f.Request.Stopped < PreferredWait {
			return "" // its answer may be on its way
		}
	}
	return best.Name
}

// Successor is who could take over from a holder that has not served for so long; empty: nobody.
func Successor(f Facts, since time.Duration) string { return successor(f, since, nil) }

// successor is who can take over from a holder that is down, by the same measure as if its lease had expired when it went down;
// empty: nobody.
func successor(f Facts, down time.Duration, off without) string {
	best := Member{}
	var rest []Member
	for _, m := range sorted(f.Members) {
		if m.Data.Kind == DataUnknown || m.Age > down && !off["successor/after-down"] {
			continue
		}
		rest = append(rest, m)
		able := m.Data.Kind.HasData() && !m.Fenced && m.Unable == "" && slices.Contains(f.Lease.Members, m.Name) &&
			(f.Data.SystemIdentifier == "" || m.Data.SystemIdentifier == f.Data.SystemIdentifier)
		if able && (best.Name == "" || compare(m, best) > 0) {
			best = m
		}
	}
	switch {
	case best.Name == "":
	case f.Lease.Sync != nil:
		if f.Lease.Sync.missing(best, rest, off) == "" || off["successor/quorum"] {
			return best.Name
		}
	case lag(f, best.Data) == "" || off["successor/lag"]:
		return best.Name
	}
	return ""
}

// holderFailing is the rule of that name: a holder that cannot serve hands over to whoever can.
func holderFailing(f Facts, off without) (Decision, bool) {
	s := f.Server
	failing := s.Down > 0 && (s.Down >= f.Policy.CrashBound || s.Failures >= f.Policy.CrashFailures && f.Policy.CrashFailures > 0)
	mine := f.Lease.HolderPod == f.Pod || off["holder-failing/mine"] // else it takes the lease first
	if f.Lease.Holder != f.Self || !mine || !failing {
		return Decision{}, false
	}
	next := successor(f, s.Down, off)
	switch {
	case next == "":
		return Decision{}, false
	case s.Running && !off["successor/stopped"]:
		return Decision{Action: Stop, Target: next, Ask: true, Reason: "PostgreSQL does not come back; handing over to " + next}, true
	case !off["successor/after-end"] && !s.Running: // while it tried to come back it may have acknowledged something
		if next = successor(f, s.Ended, off); next == "" && s.Ended < AnswerWait {
			return Decision{Action: Stop, Ask: true, Reason: "PostgreSQL does not come back; waiting for how far the others are"}, true
		}
	}
	if next == "" {
		return Decision{}, false
	}
	return Decision{Action: HandOver, Target: next, Reason: "PostgreSQL does not come back; " + next + " is the furthest"}, true
}
