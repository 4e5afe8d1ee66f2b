package election

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SyncSet is a set of standbys, of which Number must have flushed a commit before it is acknowledged: PostgreSQL's
// "ANY Number (Names)". As published in the Lease it says what a candidate must have seen. With Number 0 commits wait for nobody,
// and nobody can be sure to have them all.
type SyncSet struct {
	Number int
	Names  []string
}

// String is the form in which it is published and given to PostgreSQL.
func (s SyncSet) String() string {
	return fmt.Sprintf("ANY %d (%s)", s.Number, strings.Join(s.Names, ","))
}

// ParseSyncSet reads what String makes.
func ParseSyncSet(text string) (SyncSet, error) {
	wrong := fmt.Errorf("%q is no set of synchronous standbys such as %q", text, "ANY 1 (db-2,db-3)")
	rest, ok := strings.CutPrefix(text, "ANY ")
	number, names, ok2 := strings.Cut(rest, " (")
	names, ok3 := strings.CutSuffix(names, ")")
	n, err := strconv.Atoi(number)
	if !ok || !ok2 || !ok3 || err != nil || n < 0 {
		return SyncSet{}, wrong
	}
	set := SyncSet{Number: n}
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name != "" {
			set.Names = append(set.Names, name)
		}
	}
	return set, nil
}

func (s SyncSet) has(name string) bool { return slices.Contains(s.Names, name) }

// equal compares sets; the order of names does not matter.
func (s SyncSet) equal(o SyncSet) bool {
	return s.Number == o.Number && len(s.Names) == len(o.Names) && !slices.ContainsFunc(s.Names, func(n string) bool { return !o.has(n) })
}

// same compares sets of which nil is none.
func same(a, b *SyncSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.equal(*b)
}

// missing says why a candidate cannot be sure to have every acknowledged commit; empty: it can. Of the published set, Number had
// every commit; so of any len(Names)-Number+1 of it, one has. The candidate has what all have that are not ahead of it.
func (s *SyncSet) missing(candidate Member, answered []Member, off without) string {
	if s == nil {
		return ""
	}
	need, seen := len(s.Names)-s.Number+1, 0
	if s.has(candidate.Name) {
		seen++
	}
	for _, m := range answered {
		if m.Name != candidate.Name && s.has(m.Name) && notAhead(m.Data, candidate.Data, off) {
			seen++
		}
	}
	switch {
	case s.Number == 0:
		return "the last primary wrote while no standby had to confirm; only its own data is sure to be complete"
	case seen < need:
		return fmt.Sprintf("of the synchronous set %s only %d are known not to be ahead of this instance; %d must be, so that no commit is lost",
			s, seen, need)
	}
	return ""
}

// notAhead says whether data is sure to have nothing that counts and the candidate's has not. What a primary wrote on a timeline
// before that of the candidate counts only as far as it is in the candidate's.
func notAhead(d, candidate Data, off without) bool {
	sure := d.Exact || off["quorum/exact"] || d.Kind == DataPrimary && d.Position.Timeline < candidate.Position.Timeline
	return sure && d.Kind.HasData() && compareData(d, candidate) <= 0
}

// SyncState is what a primary knows about its synchronous replication.
type SyncState struct {
	Self string
	// Published is what the Lease says by the last update that was answered, and by every one sent since that was not: the
	// sets that may be in it. nil: none is published.
	Published []*SyncSet
	// InUse is what PostgreSQL uses; nil: commits wait for nobody.
	InUse *SyncSet
	// Settled says whether all that was written before InUse came into force is confirmed by as many as it asks for.
	Settled bool
	// Wanted is what shall be; nil: replication is asynchronous.
	Wanted *SyncSet
}

// SyncStep is what to do next: at most one of both is to be done; none: it is as it shall be, or must wait.
type SyncStep struct {
	// Use, if DoUse, is what PostgreSQL shall use from now on; Publish, if DoPublish, what the Lease shall say.
	DoUse     bool
	Use       *SyncSet
	DoPublish bool
	Publish   *SyncSet
	Reason    string
}

// NextSync is the next safe step from what is to what shall be. At every moment, of each set that may be in the Lease, so many have
// every acknowledged commit as that set says.
//
//   - A set in use is replaced by one that what is published covers already; else a set that covers both is published first.
//   - A published set is replaced by a narrower one only when that one is in use and settled.
//   - Asynchronous: the Lease says so first.
func NextSync(s SyncState) SyncStep { return nextSync(s, nil) }

func nextSync(s SyncState, off without) SyncStep {
	if len(s.Published) != 1 {
		return SyncStep{Reason: "the lease is being written"}
	}
	published := s.Published[0]
	inUse, wanted := SyncSet{}, SyncSet{}
	if s.InUse != nil {
		inUse = *s.InUse
	}
	if s.Wanted == nil {
		switch {
		case published != nil:
			return SyncStep{DoPublish: true, Reason: "asynchronous from now on"}
		case s.InUse != nil:
			return SyncStep{DoUse: true, Reason: "asynchronous"}
		}
		return SyncStep{}
	}
	if s.Wanted.Number > 0 {
		wanted = *s.Wanted
	}
	switch {
	case inUse.equal(wanted) && same(published, &wanted):
		return SyncStep{}
	case !inUse.equal(wanted) && (published == nil || covers(*published, wanted, s.Self) || off["sync/publish-first"]):
		return SyncStep{DoUse: true, Use: used(wanted), Reason: "what is published covers it"}
	case !inUse.equal(wanted):
		joint := union(*published, inUse, wanted)
		return SyncStep{DoPublish: true, Publish: &joint, Reason: "before it is used"}
	case !s.Settled && !off["sync/settled"]:
		return SyncStep{Reason: "waiting until what was written before is confirmed"}
	}
	return SyncStep{DoPublish: true, Publish: &wanted, Reason: "in use and settled"}
}

// used is the set to give to PostgreSQL: none if commits wait for nobody.
func used(s SyncSet) *SyncSet {
	if s.Number == 0 {
		return nil
	}
	return &s
}

// covers says whether, of the published set, Number are sure to have whatever is acknowledged while inUse is used by self.
func covers(published, inUse SyncSet, self string) bool {
	outside, sure := 0, 0
	for _, name := range inUse.Names {
		if !published.has(name) {
			outside++
		}
	}
	sure = max(0, inUse.Number-outside)
	if published.has(self) {
		sure++
	}
	return sure >= published.Number
}

// union is a set that covers whatever any of the sets covers.
func union(sets ...SyncSet) SyncSet {
	result := SyncSet{Number: sets[0].Number}
	for _, s := range sets {
		result.Number = min(result.Number, s.Number)
		for _, name := range s.Names {
			if !result.has(name) {
				result.Names = append(result.Names, name)
			}
		}
	}
	return result
}

// SyncMode says what becomes of commits when too few standbys are there to confirm them.
type SyncMode int

// The modes.
const (
	// SyncNone: commits wait for nobody.
	SyncNone SyncMode = iota
	// SyncPreferred: they wait for as many as there are, and for nobody if there are none.
	SyncPreferred
	// SyncRequired: they wait.
	SyncRequired
)

// WantedSync is the set that shall be, of the standbys that are healthy: those that stream and are not far behind. all are all other
// members. In required mode the set is never smaller than number.
func WantedSync(mode SyncMode, number int, healthy, all []string) *SyncSet {
	if mode == SyncNone {
		return nil
	}
	names := slices.Clone(healthy)
	slices.SortFunc(names, compareNames)
	if mode == SyncRequired && len(names) < number {
		names = slices.Clone(all) // whichever comes back first
		slices.SortFunc(names, compareNames)
		return &SyncSet{Number: min(number, len(names)), Names: names}
	}
	return &SyncSet{Number: min(number, len(names)), Names: names}
}

// InitialSync is the set that a primary uses from before its first write on, so that it covers what is published for the one before
// it, even if the mode was changed since. published are all sets that may be in the Lease, as in SyncState: one that was sent and
// not answered can come into force later. others are all other members.
func InitialSync(mode SyncMode, number int, published []*SyncSet, self string, others []string) *SyncSet {
	first := SyncSet{}
	if mode == SyncRequired {
		first = *WantedSync(mode, number, nil, others)
	} else {
		for _, p := range published {
			if p != nil {
				first.Names = union(first, *p).Names
			}
		}
		first.Names = slices.DeleteFunc(first.Names, func(name string) bool { return name == self })
	}
	for ; first.Number < len(first.Names); first.Number++ {
		if coveredByAll(published, first, self) {
			break
		}
	}
	if !coveredByAll(published, first, self) { // of members that are no more
		return InitialSync(SyncPreferred, number, published, self, others)
	}
	return used(first)
}

// firstSync is the set that the target of a proper hand-over publishes when it takes the Lease, in required mode: at once the one by
// which it will write (InitialSync), and not the last primary's any more. So it can be lost, too. nil: what is published stays.
func firstSync(f Facts, off without) *SyncSet {
	if f.Lease.HolderPod != "" || f.Lease.End == nil || f.Lease.Sync == nil || f.Policy.SyncMode != SyncRequired || off["sync/first"] {
		return nil
	}
	var others []string
	for _, m := range f.Members {
		others = append(others, m.Name)
	}
	first := WantedSync(SyncRequired, max(1, f.Policy.SyncNumber), nil, others)
	if first.Number == 0 || !carriesOn(*f.Lease.Sync, f.Lease.End.By, *first) && !off["sync/carries-on"] {
		return nil
	}
	return first
}

// carriesOn says whether, of the next set, so many as it says have every commit so far: the last primary has all of them, and of those
// in both sets all but those that the published one does without.
func carriesOn(published SyncSet, last string, next SyncSet) bool {
	sure := published.Number
	for _, name := range published.Names {
		if name == last || !next.has(name) {
			sure--
		}
	}
	sure = max(0, sure)
	if next.has(last) {
		sure++
	}
	return sure >= next.Number
}

// reached says whether data has everything up to the end.
func (e *End) reached(d Data) bool {
	return e != nil && d.Position.Timeline == e.Position.Timeline && (d.Kind == DataPrimary || d.Position.LSN > e.Position.LSN)
}

func coveredByAll(published []*SyncSet, inUse SyncSet, self string) bool {
	return !slices.ContainsFunc(published, func(p *SyncSet) bool { return p != nil && !covers(*p, inUse, self) })
}
