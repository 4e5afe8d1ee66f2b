package election

import (
	"fmt"
	"math/bits"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

func TestSyncSet_text(t *testing.T) {
	t.Parallel()
	for _, s := range []SyncSet{*set(1, "db-2", "db-3"), *set(0), *set(2, "a")} {
		parsed, err := ParseSyncSet(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, parsed)
	}
	assert.Equal(t, "ANY 1 (db-2,db-3)", set(1, "db-2", "db-3").String())
	for _, text := range []string{"", "db-2", "ANY", "ANY x (a)", "ANY -1 (a)", "FIRST 1 (a)", "ANY 1 (a"} {
		_, err := ParseSyncSet(text)
		require.Error(t, err, text)
	}
}

// universe are the instances of a small world; db-1 is the primary.
var universe = []string{"db-1", "db-2", "db-3", "db-4"}

func allSets() []SyncSet {
	var sets []SyncSet
	for mask := range 1 << len(universe) {
		var names []string
		for i, name := range universe {
			if mask&(1<<i) != 0 {
				names = append(names, name)
			}
		}
		for number := range len(names) + 1 {
			sets = append(sets, SyncSet{number, names})
		}
	}
	return sets
}

// mayMiss says, by trying all, whether some n-k+1 of the published set could have nothing of a commit that was acknowledged by db-1
// with the set in use: a second opinion on covers.
func mayMiss(published, inUse SyncSet) bool {
	for mask := range 1 << len(universe) {
		have := func(name string) bool { return mask&(1<<slices.Index(universe, name)) != 0 }
		acknowledged := 0
		for _, name := range inUse.Names {
			if have(name) {
				acknowledged++
			}
		}
		if !have("db-1") || acknowledged < inUse.Number {
			continue // that would not have been acknowledged
		}
		without := 0
		for _, name := range published.Names {
			if !have(name) {
				without++
			}
		}
		if without >= len(published.Names)-published.Number+1 {
			return true
		}
	}
	return false
}

func TestCovers(t *testing.T) {
	t.Parallel()
	sets := allSets()
	for _, published := range sets {
		for _, inUse := range sets {
			if inUse.has("db-1") {
				continue // the primary is not its own standby
			}
			require.Equal(t, !mayMiss(published, inUse), covers(published, inUse, "db-1"), "%v while %v is used", published, inUse)
		}
	}
}

// TestNextSync goes from any set that is in force to any that is wanted: it arrives, and at every moment what is published covers
// what is in use, and everything that was written before.
func TestNextSync(t *testing.T) {
	t.Parallel()
	sets := allSets()
	random := rand.New(rand.NewSource(1))
	for range 20_000 {
		state := SyncState{Self: "db-1", Settled: true}
		pick := func() SyncSet {
			for {
				if s := sets[random.Intn(len(sets))]; !s.has("db-1") {
					return s
				}
			}
		}
		inUse, wanted := pick(), pick()
		published := sets[random.Intn(len(sets))]
		if !covers(published, inUse, "db-1") {
			continue
		}
		state.InUse, state.Wanted, state.Published = used(inUse), &wanted, []*SyncSet{&published}
		unsettled := []SyncSet{} // what was in use for things not confirmed by the present set
		for step := 0; ; step++ {
			require.Less(t, step, 10, "from %v in use, %v published, to %v", inUse, published, wanted)
			next := NextSync(state)
			require.False(t, next.DoUse && next.DoPublish)
			if next.DoUse {
				before := SyncSet{}
				if state.InUse != nil {
					before = *state.InUse
				}
				unsettled = append(unsettled, before)
				state.InUse, state.Settled = next.Use, false
			} else if next.DoPublish {
				state.Published = []*SyncSet{next.Publish}
			} else if !state.Settled {
				state.Settled, unsettled = true, nil
			} else {
				break
			}
			now := SyncSet{}
			if state.InUse != nil {
				now = *state.InUse
			}
			for _, s := range append(unsettled, now) {
				require.False(t, mayMiss(*state.Published[0], s), "%v published, %v was in use", state.Published[0], s)
			}
		}
		if wanted.Number == 0 {
			wanted = SyncSet{}
		}
		assert.True(t, same(state.Published[0], &wanted))
		assert.True(t, same(state.InUse, used(wanted)))
	}
}

func TestNextSync_steps(t *testing.T) {
	t.Parallel()
	a, b := set(1, "db-2", "db-3"), set(1, "db-3")
	for name, test := range map[string]struct {
		state SyncState
		want  SyncStep
	}{
		"nothing":             {SyncState{Published: []*SyncSet{nil}}, SyncStep{}},
		"while it is written": {SyncState{Published: []*SyncSet{a, b}, InUse: a, Wanted: b}, SyncStep{Reason: "the lease is being written"}},
		"begin: used first": {
			SyncState{Published: []*SyncSet{nil}, Wanted: a}, SyncStep{DoUse: true, Use: a, Reason: "what is published covers it"}},
		"begin: published when settled": {
			SyncState{Published: []*SyncSet{nil}, InUse: a, Wanted: a}, SyncStep{Reason: "waiting until what was written before is confirmed"}},
		"begin: published": {
			SyncState{Published: []*SyncSet{nil}, InUse: a, Wanted: a, Settled: true}, SyncStep{DoPublish: true, Publish: a, Reason: "in use and settled"}},
		"grow: published first": {
			SyncState{Published: []*SyncSet{b}, InUse: b, Wanted: a, Settled: true},
			SyncStep{DoPublish: true, Publish: set(1, "db-3", "db-2"), Reason: "before it is used"}},
		"shrink: used first": {
			SyncState{Published: []*SyncSet{a}, InUse: a, Wanted: b, Settled: true}, SyncStep{DoUse: true, Use: b, Reason: "what is published covers it"}},
		"end: the lease first": {
			SyncState{Published: []*SyncSet{a}, InUse: a}, SyncStep{DoPublish: true, Reason: "asynchronous from now on"}},
		"end: then PostgreSQL": {
			SyncState{Published: []*SyncSet{nil}, InUse: a}, SyncStep{DoUse: true, Reason: "asynchronous"}},
		"alone: published first": {
			SyncState{Published: []*SyncSet{b}, InUse: b, Wanted: set(0), Settled: true},
			SyncStep{DoPublish: true, Publish: set(0, "db-3"), Reason: "before it is used"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.state.Self = "db-1"
			assert.Equal(t, test.want, NextSync(test.state))
		})
	}
}

func TestInitialSync(t *testing.T) {
	t.Parallel()
	others := universe[1:]
	for _, mode := range []SyncMode{SyncNone, SyncPreferred, SyncRequired} {
		for number := 1; number <= 3; number++ {
			for _, published := range allSets() {
				first := InitialSync(mode, number, []*SyncSet{&published}, "db-1", others)
				now := SyncSet{}
				if first != nil {
					now = *first
				}
				require.False(t, mayMiss(published, now), "%v published, %v first", published, now)
				if mode == SyncRequired {
					require.GreaterOrEqual(t, now.Number, number, "%v", published)
				}
			}
		}
	}
	pending := []*SyncSet{set(0), set(1, "db-2")}
	assert.Equal(t, set(1, "db-2"), InitialSync(SyncPreferred, 1, pending, "db-1", others), "what was sent may come yet")
	gone := []*SyncSet{set(2, "gone", "too")}
	assert.Equal(t, set(2, "gone", "too"), InitialSync(SyncRequired, 1, gone, "db-1", others))
	assert.Nil(t, InitialSync(SyncNone, 1, nil, "db-1", others))
	assert.Nil(t, InitialSync(SyncPreferred, 1, nil, "db-1", others))
	assert.Equal(t, set(1, others...), InitialSync(SyncRequired, 1, nil, "db-1", others))
}

func TestWantedSync(t *testing.T) {
	t.Parallel()
	all := []string{"db-10", "db-2", "db-3"}
	assert.Nil(t, WantedSync(SyncNone, 1, all, all))
	assert.Equal(t, set(1, "db-2", "db-3", "db-10"), WantedSync(SyncPreferred, 1, all, all))
	assert.Equal(t, set(1, "db-2"), WantedSync(SyncPreferred, 2, []string{"db-2"}, all), "as many as there are")
	assert.Equal(t, 0, WantedSync(SyncPreferred, 1, nil, all).Number)
	assert.Equal(t, set(2, "db-2", "db-3", "db-10"), WantedSync(SyncRequired, 2, []string{"db-2"}, all), "it waits for whichever comes")
	assert.Equal(t, set(1, "db-3"), WantedSync(SyncRequired, 1, []string{"db-3"}, all))
	assert.Equal(t, []string{"db-10", "db-2", "db-3"}, all, "what is given is not changed")
}

// TestQuorum compares the count of answers with trying all ways in which a commit can be acknowledged.
func TestQuorum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(2))
	enough := 0
	for range 20_000 {
		published := allSets()[random.Intn(len(allSets()))]
		if published.Number == 0 {
			continue
		}
		positions := map[string]int{}
		for _, name := range universe {
			positions[name] = random.Intn(3)
		}
		candidate := universe[random.Intn(len(universe))]
		answeredMask := random.Intn(1 << len(universe))
		var members []Member
		notAhead := 0
		for i, name := range universe {
			if answeredMask&(1<<i) != 0 {
				members = append(members, Member{Name: name, Data: exact(100 + 10*postgres.LSN(positions[name]))})
			}
			if published.has(name) && (name == candidate || answeredMask&(1<<i) != 0 && positions[name] <= positions[candidate]) {
				notAhead |= 1 << i
			}
		}
		safe := bits.OnesCount(uint(notAhead)) > len(published.Names)-published.Number
		why := (&published).missing(Member{Name: candidate, Data: exact(100 + 10*postgres.LSN(positions[candidate]))}, members, nil)
		require.Equal(t, safe, why == "", fmt.Sprint(published, positions, candidate, answeredMask))
		if safe {
			enough++
		}
	}
	require.Positive(t, enough)
}
