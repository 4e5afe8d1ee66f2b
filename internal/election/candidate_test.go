package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// lost are the facts of db-2, a standby, when the lease of db-1 has run out and everybody has said what there is to say.
func lost() Facts {
	f := facts(exact(100), none(), exact(100)).held("db-1")
	f.Members[0].Data, f.Members[0].Silent = Data{}, 5*time.Second
	f.Lease.HolderPod, f.Lease.Expired, f.Lease.ExpiredFor = "pod-1", true, 500*time.Millisecond
	f.Lease.Members = []string{"db-1", "db-2", "db-3"}
	f.Lease.Position, f.Lease.Timeline = postgres.Position{Timeline: 1, LSN: 110}, 1
	f.Policy.MaximumLag = 20
	f.Members[1].Age = 100 * time.Millisecond
	return f
}

func exact(lsn postgres.LSN) Data {
	return data(DataStandby, 1, lsn)
}

func set(number int, names ...string) *SyncSet { return &SyncSet{Number: number, Names: names} }

func TestFailover(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*Facts)
		why     string
		problem Problem
	}{
		"takes over":               {change: func(*Facts) {}},
		"not run out":              {change: func(f *Facts) { f.Lease.Expired, f.Lease.ExpiredFor = false, 0 }, why: "has not run out"},
		"no member":                {change: func(f *Facts) { f.Lease.Members = []string{"db-1", "db-3"} }, why: "does not name this instance"},
		"a holder without members": {change: func(f *Facts) { f.Lease.Members = nil }, why: "does not name this instance"},
		"has promised": {
			change: func(f *Facts) { f.Promise = Promise{Holder: "db-1", Pod: "pod-1", Remaining: time.Second} }, why: "has promised to db-1"},
		"had promised":      {change: func(f *Facts) { f.Promise = Promise{Holder: "db-1", Pod: "pod-1"} }},
		"cannot be primary": {change: func(f *Facts) { f.Server.Unable = "its PostgreSQL does not start" }, why: "does not start"},

		"a member was asked too early": {change: func(f *Facts) { f.Members[1].Age = 600 * time.Millisecond }, why: "waiting for the position of db-3"},
		"a member is silent for a moment": {
			change: func(f *Facts) { f.Members[0].Silent = 900 * time.Millisecond }, why: "waiting for the position of db-1"},
		"a member that the lease does not name is silent": {
			change: func(f *Facts) { f.Members = append(f.Members, Member{Name: "db-4"}) }},
		"a member is further":        {change: func(f *Facts) { f.Members[1].Data = exact(101) }, why: "db-3 is further"},
		"a fenced member is further": {change: func(f *Facts) { f.Members[1].Data, f.Members[1].Fenced = exact(101), true }},
		"a member is further that cannot be primary": {
			change: func(f *Facts) { f.Members[1].Data, f.Members[1].Unable = exact(101), "broken" }},
		"a member is further, but does nothing": {
			change: func(f *Facts) {
				f.Members[1].Data, f.Lease.ExpiredFor = exact(101), Patience
			}},
		"the old primary is back, and has all": {
			change: func(f *Facts) { f.Members[0].Data = data(DataPrimary, 1, 1) }, why: "db-1 is further"},

		"lacks too much": {
			change: func(f *Facts) { f.Lease.Position.LSN = 121 }, why: "lacks 21 bytes", problem: LagTooGreat},
		"lacks too much, but of a timeline that it has left": {
			change: func(f *Facts) {
				f.Data.Position.Timeline, f.Members[1].Data.Position.Timeline, f.Lease.Position.LSN = 2, 2, 500
			}},
		"is on the timeline before, and lacks little": {
			change: func(f *Facts) {
				f.Lease.Position, f.Lease.TimelineStart = postgres.Position{Timeline: 2, LSN: 110}, 100
			}},
		"is on the timeline before, and has what does not count": {
			change: func(f *Facts) { f.Lease.Position, f.Lease.TimelineStart = postgres.Position{Timeline: 2, LSN: 110}, 80 },
			why:    "lacks 30 bytes", problem: LagTooGreat},
		"the last primary never said how far it was": {
			change: func(f *Facts) { f.Lease.Position = postgres.Position{} }, why: "does not say how far", problem: LagTooGreat},

		"synchronous, quorum": {change: func(f *Facts) { f.Lease.Sync = set(1, "db-2", "db-3") }},
		"synchronous, the lag does not matter": {
			change: func(f *Facts) { f.Lease.Sync, f.Lease.Position.LSN = set(1, "db-2", "db-3"), 500 }},
		"synchronous, one of the set is silent": {
			change: func(f *Facts) {
				f.Lease.Sync, f.Members[1] = set(1, "db-2", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
			},
			why: "only 1 are known not to be ahead of this instance; 2 must be", problem: QuorumMissing},
		"synchronous, both of the set have every commit": {
			change: func(f *Facts) {
				f.Lease.Sync, f.Members[1] = set(2, "db-2", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
			}},
		"synchronous, not in the set, but not behind it": {change: func(f *Facts) { f.Lease.Sync = set(1, "db-3") }},
		"synchronous, one of the set may have more than it shows": {
			change: func(f *Facts) { f.Lease.Sync, f.Members[1].Data.Exact = set(1, "db-2", "db-3"), false },
			why:    "only 1 are known", problem: QuorumMissing},
		"synchronous, one of the set was primary and shows less than it has": {
			change: func(f *Facts) {
				f.Lease.Sync, f.Lease.ExpiredFor = set(1, "db-1", "db-2"), Patience
				f.Members[0].Data = data(DataPrimary, 1, 1)
			},
			why: "only 1 are known", problem: QuorumMissing},
		"synchronous, the primary was alone": {
			change: func(f *Facts) { f.Lease.Sync = set(0) }, why: "no standby had to confirm", problem: QuorumMissing},

		"synchronous, one of the set is silent, but this one has what the last primary ended with": {
			change: func(f *Facts) {
				f.Lease.Sync, f.Members[1] = set(1, "db-2", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
				f.Lease.End = &End{By: "db-9", Position: postgres.Position{Timeline: 1, LSN: 99}}
			}},
		"synchronous, one of the set is silent, and this one lacks the end": {
			change: func(f *Facts) {
				f.Lease.Sync, f.Members[1] = set(1, "db-2", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
				f.Lease.End = &End{By: "db-9", Position: postgres.Position{Timeline: 1, LSN: 100}}
			},
			why: "only 1 are known", problem: QuorumMissing},
		"synchronous, it is the one that ended": {
			change: func(f *Facts) {
				f.Data = data(DataPrimary, 1, 100)
				f.Lease.Sync, f.Members[1] = set(1, "db-1", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
				f.Lease.End = &End{By: "db-2", Position: postgres.Position{Timeline: 1, LSN: 100}}
			}},
		"synchronous, it has an end of another timeline": {
			change: func(f *Facts) {
				f.Data.Position.Timeline = 2
				f.Lease.Sync, f.Members[1] = set(1, "db-1", "db-3"), Member{Name: "db-3", Silent: 2 * time.Second}
				f.Lease.End = &End{By: "db-1", Position: postgres.Position{Timeline: 1, LSN: 50}}
			},
			why: "only 0 are known", problem: QuorumMissing},

		"forced, though it lacks much and members are silent": {
			change: func(f *Facts) {
				f.Forced, f.Lease.Position.LSN, f.Lease.Sync, f.Members[1] = true, 500, set(0), Member{Name: "db-3"}
			}},
		"forced, but the lease has not run out": {
			change: func(f *Facts) { f.Forced, f.Lease.Expired = true, false }, why: "has not run out"},
		"forced, but has promised": {
			change: func(f *Facts) {
				f.Forced, f.Promise = true, Promise{Holder: "db-1", Pod: "pod-1", Remaining: time.Second}
			}, why: "has promised"},
		"forced, but the lease does not name it": {
			change: func(f *Facts) { f.Forced, f.Lease.Members = true, []string{"db-1"} }, why: "does not name this instance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := lost().with(test.change)
			decision := Decide(f)
			why, problem := Candidacy(f)
			assert.Equal(t, test.problem, decision.Problem)
			assert.Equal(t, test.problem, problem)
			if test.why == "" {
				assert.Empty(t, why)
				assert.Equal(t, Campaign, decision.Action)
				assert.Equal(t, "failover", decision.Rule)
				return
			}
			assert.Contains(t, why, test.why)
			assert.Equal(t, RunStandby, decision.Action)
			assert.Equal(t, "db-1", decision.Upstream, "it goes on following")
			if f.Lease.Expired {
				assert.Contains(t, decision.Reason, test.why)
				assert.True(t, decision.Ask)
			}
		})
	}
}

func TestPromotion(t *testing.T) {
	t.Parallel()
	holder := func(change func(*Facts)) Facts {
		return facts(data(DataStandby, 3, 100), Data{}, Data{}).held("db-2").with(change)
	}
	for name, test := range map[string]struct {
		facts    Facts
		timeline int64
	}{
		"the next":                              {holder(func(*Facts) {}), 4},
		"after the newest of its history files": {holder(func(f *Facts) { f.Data.Newest = 5 }), 6},
		"after the last that was given":         {holder(func(f *Facts) { f.Lease.Timeline = 7 }), 8},
		"after what the last primary wrote on":  {holder(func(f *Facts) { f.Lease.Position.Timeline = 9 }), 10},
		"what was given to this Pod already":    {holder(func(f *Facts) { f.Lease.HolderPod, f.Lease.Timeline = "pod-2", 7 }), 7},
		"what was given to this Pod, but is used": {
			holder(func(f *Facts) { f.Lease.HolderPod, f.Lease.Timeline, f.Data.Newest = "pod-2", 7, 7 }), 8},
		"none for a primary's data": {holder(func(f *Facts) { f.Data.Kind, f.Lease.Timeline = DataPrimary, 3 }), 0},
		"a new one for a primary's data, if another was given one since": {
			holder(func(f *Facts) { f.Data.Kind, f.Lease.Timeline = DataPrimary, 4 }), 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decision := Decide(test.facts)
			assert.Equal(t, RunPrimary, decision.Action)
			assert.Equal(t, test.timeline, decision.Timeline)
		})
	}
}

func TestOtherPod(t *testing.T) {
	t.Parallel()
	other := facts(data(DataPrimary, 1, 100), Data{}, Data{}).held("db-2").with(func(f *Facts) {
		f.Lease.HolderPod, f.Lease.Members = "pod-old", []string{"db-1", "db-2", "db-3"}
	})
	assert.Equal(t, Wait, Decide(other).Action)
	assert.False(t, Decide(other).Seek, "not before it has run out")

	other.Lease.Expired = true
	assert.Equal(t, Wait, Decide(other).Action)
	assert.True(t, Decide(other).Seek)

	other.Members[1].Promised = true
	assert.Equal(t, RunPrimary, Decide(other).Action)

	other.Lease.Members = []string{"db-1", "db-2"}
	assert.Equal(t, Wait, Decide(other).Action, "the promise of one that was not asked before is worth nothing")

	other.Lease.Members = []string{"db-2"}
	assert.Equal(t, RunPrimary, Decide(other).Action, "the other could not go on by promises")

	other.Lease.Members, other.Forced = []string{"db-1", "db-2"}, true
	assert.Equal(t, RunPrimary, Decide(other).Action)
}

func TestFenced(t *testing.T) {
	t.Parallel()
	for _, f := range []Facts{
		facts(data(DataPrimary, 1, 1), Data{}, Data{}).held("db-2"), lost(), {Self: "db-2"},
	} {
		f.Fenced = true
		decision := Decide(f)
		assert.Equal(t, Stop, decision.Action)
		assert.Equal(t, InstanceFenced, decision.Problem)
	}
}
