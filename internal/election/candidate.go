package election

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

const (
	// AnswerWait is how long a member may be silent before it counts as lost.
	AnswerWait = time.Second
	// Patience is how long a candidate waits for one that is further to take the Lease. Then that one cannot.
	Patience = 10 * time.Second
)

// without names rules and conditions that are left out: only tests do that, to see what each is good for.
type without map[string]bool

// condition is a part of a rule with a name; it says what is wrong, or nothing.
type condition struct {
	name string
	// forced: who was told to take over whatever it lacks, does.
	forced  bool
	problem Problem
	wrong   func(Facts, without) string
}

// candidacy is what it takes to campaign on an expired lease.
var candidacy = []condition{
	{name: "expired", wrong: notExpired},
	{name: "member", wrong: notMember},
	{name: "promised", wrong: hasPromised},
	{name: "unfenced", forced: true, wrong: holderFenced},
	{name: "able", wrong: func(f Facts, _ without) string { return f.Server.Unable }},
	{name: "answers", forced: true, wrong: answersMissing},
	{name: "furthest", forced: true, wrong: notFurthest},
	{name: "quorum", forced: true, problem: QuorumMissing, wrong: quorumMissing},
	{name: "lag", forced: true, problem: LagTooGreat, wrong: lagging},
}

// Candidacy says why this instance may not campaign on the lease of another; empty: it may.
func Candidacy(f Facts) (why string, problem Problem) { return candidate(f, nil) }

func candidate(f Facts, off without) (string, Problem) {
	for _, c := range candidacy {
		if off["candidate/"+c.name] || c.forced && f.Forced {
			continue
		}
		if why := c.wrong(f, off); why != "" {
			return why, c.problem
		}
	}
	return "", NoProblem
}

func notExpired(f Facts, _ without) string {
	if f.Lease.Expired {
		return ""
	}
	return "the lease has not run out"
}

func notMember(f Facts, _ without) string {
	if slices.Contains(f.Lease.Members, f.Self) {
		return ""
	}
	return "the lease does not name this instance as a member, so its holder may go on without having asked it"
}

func holderFenced(f Facts, _ without) string {
	if !f.HolderFenced {
		return ""
	}
	return "its holder " + f.Lease.Holder + " is fenced by hand, so that nobody writes"
}

func hasPromised(f Facts, _ without) string {
	if f.Promise.Remaining <= 0 {
		return ""
	}
	return fmt.Sprintf("has promised to %s not to campaign for %s more", f.Promise.Holder, f.Promise.Remaining.Round(time.Millisecond))
}

// answered says whether what a member said was asked after the lease was seen expired: a holder may write until then, and what a
// member acknowledged to it after an answer would be missing in it.
func answered(f Facts, m Member, off without) bool {
	return m.Data.Kind != DataUnknown && (m.Age <= f.Lease.ExpiredFor || off["candidate/after-expiry"])
}

func answersMissing(f Facts, off without) string {
	if f.Lease.ExpiredFor >= 2*AnswerWait {
		return ""
	}
	var silent []string
	for _, m := range f.Members {
		if slices.Contains(f.Lease.Members, m.Name) && !answered(f, m, off) && m.Silent < AnswerWait {
			silent = append(silent, m.Name)
		}
	}
	if len(silent) == 0 {
		return ""
	}
	return "waiting for the position of " + strings.Join(silent, ", ")
}

func notFurthest(f Facts, off without) string {
	if f.Lease.ExpiredFor >= Patience {
		return ""
	}
	best := Member{Name: f.Self, Data: f.Data}
	for _, m := range f.Members {
		if answered(f, m, off) && m.Data.Kind.HasData() && slices.Contains(f.Lease.Members, m.Name) && !m.Fenced && m.Unable == "" &&
			compare(m, best) > 0 {
			best = m
		}
	}
	if best.Name == f.Self {
		return ""
	}
	return best.Name + " is further and should take the lease"
}

func quorumMissing(f Facts, off without) string {
	if f.Lease.End.reached(f.Data) && !off["quorum/end"] {
		return ""
	}
	var rest []Member
	for _, m := range f.Members {
		if answered(f, m, off) {
			rest = append(rest, m)
		}
	}
	return f.Lease.Sync.missing(Member{Name: f.Self, Data: f.Data}, rest, off)
}

func lagging(f Facts, _ without) string {
	if f.Lease.Sync != nil {
		return "" // the quorum says what matters
	}
	return lag(f, f.Data)
}

// lag says that data lacks more of what the last holder wrote than is allowed; empty: it does not.
func lag(f Facts, data Data) string {
	last := f.Lease.Position
	switch {
	case last.Timeline == 0:
		return "the lease does not say how far the last primary was"
	case data.Position.Timeline > last.Timeline || data.Position.Timeline == last.Timeline && data.Kind == DataPrimary:
		return ""
	}
	has := data.Position.LSN
	if data.Position.Timeline < last.Timeline {
		has = min(has, f.Lease.TimelineStart) // what it has beyond belongs to no history that counts
	}
	if missing := lacks(last.LSN, has); missing > f.Policy.MaximumLag {
		return fmt.Sprintf("lacks %d bytes of what the last primary wrote, more than spec.availability.maximumLag (%d)",
			missing, f.Policy.MaximumLag)
	}
	return ""
}

func lacks(of, has postgres.LSN) uint64 {
	if has >= of {
		return 0
	}
	return uint64(of - has)
}

// compare is positive if a is to be preferred to b. The directory that was primary on a timeline has everything that was ever
// written on it, even if it crashed and its control file does not show how far it came; so it comes before the LSN.
func compare(a, b Member) int {
	return cmp.Or(
		compareData(a.Data, b.Data),
		-compareNames(a.Name, b.Name),
	)
}

func compareData(a, b Data) int {
	return cmp.Or(
		cmp.Compare(a.Position.Timeline, b.Position.Timeline),
		-cmp.Compare(a.Kind, b.Kind), // DataPrimary < DataStandby
		cmp.Compare(a.Position.LSN, b.Position.LSN),
	)
}

// compareNames orders names by number: shorter before longer.
func compareNames(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// promotion is the timeline that data has to be promoted to before it may be written; 0: it goes on with its own. A number is
// given once: whoever was given one may have written on it.
func promotion(f Facts, off without) int64 {
	own, given := f.Data.Position.Timeline, f.Lease.Timeline
	if f.Data.Kind == DataPrimary && (own >= given || off["timeline/newer"]) {
		return 0
	}
	newest := max(own, f.Data.Newest)
	if f.Lease.Holder == f.Self && f.Lease.HolderPod == f.Pod && given > newest {
		return given // it was given to this very Pod, and is not used yet
	}
	if off["timeline/given-once"] {
		return newest + 1
	}
	return max(newest, given, f.Lease.Position.Timeline) + 1
}
