package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestForcedWithoutHolder: while nobody holds the Lease, an instance that is forced takes it although members are gone for good; but
// never while somebody may be writing.
func TestForcedWithoutHolder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*Facts)
		action   Action
		rule     string
		timeline int64
	}{
		"a member is gone":                   {func(*Facts) {}, Campaign, "campaign", 1 + forcedTimelines + 1},
		"not forced":                         {func(f *Facts) { f.Forced = false }, RunStandby, "members-silent", 0},
		"another is further":                 {func(f *Facts) { f.Members[1].Data = data(DataStandby, 4, 50) }, Campaign, "campaign", 4 + forcedTimelines + 1},
		"a primary's data":                   {func(f *Facts) { f.Data.Kind = DataPrimary }, Campaign, "campaign", 1 + forcedTimelines + 1},
		"the lease changed a moment ago":     {func(f *Facts) { f.Lease.Expired = false }, RunStandby, "writer-may-live", 0},
		"one that answers has not promised":  {func(f *Facts) { f.Members[1].Promised = false }, RunStandby, "writer-may-live", 0},
		"the silent one was just asked":      {func(f *Facts) { f.Members[0].Silent = 0 }, RunStandby, "writer-may-live", 0},
		"it has promised to one that writes": {func(f *Facts) { f.Promise = Promise{Holder: "db-1", Remaining: time.Second} }, RunStandby, "writer-may-live", 0},
		"it has no data":                     {func(f *Facts) { f.Data = none() }, Wait, "empty-waits", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(exact(100), Data{}, exact(100)).with(func(f *Facts) {
				f.Forced, f.Lease.Expired, f.Members[1].Promised, f.Members[0].Silent = true, true, true, time.Minute
			}).with(test.change)
			decision := Decide(f)
			assert.Equal(t, test.action, decision.Action, decision.Reason)
			assert.Equal(t, test.rule, decision.Rule)
			assert.Equal(t, test.timeline, decision.Timeline)
		})
	}
}

// TestHolderForgotten: who takes back a Lease that was made anew is given a timeline like everybody else.
func TestHolderForgotten(t *testing.T) {
	t.Parallel()
	f := facts(data(DataStandby, 3, 100), Data{}, Data{}).with(func(f *Facts) { f.Lease.Held = true })
	assert.Equal(t, "holder-forgotten", Decide(f).Rule)
	assert.Equal(t, int64(4), Decide(f).Timeline)
	f.Data.Kind = DataPrimary
	assert.Equal(t, int64(0), Decide(f).Timeline)
}

// TestLeaseUnknown: a standby that cannot read the Lease follows whoever says to be the primary.
func TestLeaseUnknown(t *testing.T) {
	t.Parallel()
	f := facts(exact(100), data(DataPrimary, 1, 200), data(DataPrimary, 2, 100))
	f.Lease = Lease{}
	assert.Empty(t, Decide(f).Upstream)
	f.Members[0].Primary = true
	assert.Equal(t, "db-1", Decide(f).Upstream)
	f.Members[1].Primary = true
	assert.Equal(t, "db-3", Decide(f).Upstream, "the later timeline")
	f.Members[1].Data.SystemIdentifier = "42"
	assert.Equal(t, "db-1", Decide(f).Upstream)
}

// TestFirstSync: the target of a hand-over publishes its own set with its first update, if that covers what was confirmed before.
func TestFirstSync(t *testing.T) {
	t.Parallel()
	handed := func(change func(*Facts)) Facts {
		f := facts(exact(101), exact(101), exact(101)).held("db-2")
		f.Lease.Sync, f.Lease.End = set(1, "db-2", "db-3"), &End{By: "db-1", Position: postgres.Position{Timeline: 1, LSN: 100}}
		f.Policy = Policy{SyncMode: SyncRequired, SyncNumber: 1}
		return f.with(change)
	}
	for name, test := range map[string]struct {
		change func(*Facts)
		sync   *SyncSet
	}{
		"one of two":                         {func(*Facts) {}, set(1, "db-1", "db-3")},
		"another Pod of it may have written": {func(f *Facts) { f.Lease.HolderPod = "pod-2" }, nil},
		"nobody says where it ended":         {func(f *Facts) { f.Lease.End = nil }, nil},
		"preferred":                          {func(f *Facts) { f.Policy.SyncMode = SyncPreferred }, nil},
		"it was asynchronous":                {func(f *Facts) { f.Lease.Sync = nil }, nil},
		"two of two, where one confirmed":    {func(f *Facts) { f.Policy.SyncNumber = 2 }, nil},
		"two of two, where two confirmed": {func(f *Facts) {
			f.Policy.SyncNumber, f.Lease.Sync = 2, set(2, "db-2", "db-3")
		}, set(2, "db-1", "db-3")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decision := Decide(handed(test.change))
			assert.Equal(t, RunPrimary, decision.Action)
			assert.Equal(t, test.sync, decision.Sync)
		})
	}
}

// TestCarriesOn compares with the slow way: of every way in which enough of the published set have a commit, so does the next set.
func TestCarriesOn(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"} // a is the last primary
	subset := func(bits int) (s []string) {
		for i, name := range names {
			if bits>>i&1 == 1 {
				s = append(s, name)
			}
		}
		return s
	}
	count := func(of []string, has int) (n int) {
		for i, name := range names {
			for _, o := range of {
				if o == name && has>>i&1 == 1 {
					n++
				}
			}
		}
		return n
	}
	for p := range 16 {
		for n := range 16 {
			for pk := 0; pk <= len(subset(p)); pk++ {
				for nk := 0; nk <= len(subset(n)); nk++ {
					slow := true
					for has := 1; has < 16; has += 2 { // who has the commit; a does
						if count(subset(p), has) >= pk && count(subset(n), has) < nk {
							slow = false
						}
					}
					fast := carriesOn(SyncSet{pk, subset(p)}, "a", SyncSet{nk, subset(n)})
					assert.True(t, slow || !fast, "ANY %d %v to ANY %d %v", pk, subset(p), nk, subset(n))
				}
			}
		}
	}
}

func TestCounting(t *testing.T) {
	t.Parallel()
	short, long := Timings{Duration: 5 * time.Second, Renew: time.Second}, Timings{Duration: 20 * time.Second, Renew: 4 * time.Second}
	assert.Equal(t, short, short.Counting(long), "not before others know")
	assert.Equal(t, short, long.Counting(short))
	other := Timings{Duration: 5 * time.Second, Renew: 2 * time.Second}
	assert.Equal(t, other, short.Counting(other))
}
