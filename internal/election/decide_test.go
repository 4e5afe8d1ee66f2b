package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

const system = "7000000000000000001"

func none() Data { return Data{Kind: DataNone} }

func data(kind DataKind, timeline int64, lsn postgres.LSN) Data {
	return Data{Kind: kind, SystemIdentifier: system, Position: postgres.Position{Timeline: timeline, LSN: lsn}, Exact: kind == DataStandby}
}

// facts are those of db-2 in a cluster of three, while nobody holds the lease.
func facts(own, one, three Data) Facts {
	return Facts{
		Self: "db-2", Pod: "pod-2", Data: own, Lease: Lease{Known: true},
		Members: []Member{{Name: "db-1", Data: one}, {Name: "db-3", Data: three}},
	}
}

func (f Facts) held(by string) Facts {
	f.Lease.Holder, f.Lease.SystemIdentifier = by, system
	return f
}

func (f Facts) with(change func(*Facts)) Facts {
	change(&f)
	return f
}

func TestDecide(t *testing.T) {
	t.Parallel()
	unknown := Data{}
	primary, standby := data(DataPrimary, 1, 100), data(DataStandby, 1, 100)
	named := func(f *Facts) { f.Bootstrap = "db-2" }
	unchanged := func(f *Facts) {
		f.Lease.Expired = true
		for i := range f.Members {
			f.Members[i].Promised = true
		}
	}
	for name, test := range map[string]struct {
		facts   Facts
		action  Action
		rule    string
		follow  string
		problem Problem
	}{
		"no lease known, empty": {facts: Facts{Self: "db-2", Data: none(), Bootstrap: "db-2"}, action: Wait, rule: "lease-unknown"},
		"no lease known, primary's data": {
			facts: Facts{Self: "db-2", Data: primary}, action: Wait, rule: "lease-unknown"},
		"no lease known, standby's data": {
			facts: Facts{Self: "db-2", Data: standby}, action: RunStandby, rule: "lease-unknown"},

		"data of a system that the configuration does not know": {
			facts:  facts(primary, none(), none()).with(func(f *Facts) { f.SystemIdentifier = "42" }),
			action: Refuse, rule: "wrong-data", problem: SystemMismatch},
		"data of a system that the lease does not know, as the holder": {
			facts:  facts(primary, none(), none()).held("db-2").with(func(f *Facts) { f.Lease.SystemIdentifier = "42" }),
			action: Refuse, rule: "wrong-data", problem: SystemMismatch},

		"holder with a primary's data": {facts: facts(primary, unknown, unknown).held("db-2"), action: RunPrimary, rule: "holder-with-data"},
		"holder with a standby's data": {facts: facts(standby, unknown, unknown).held("db-2"), action: RunPrimary, rule: "holder-with-data"},
		"holder whose lease has run out": {
			facts:  facts(primary, unknown, unknown).held("db-2").with(func(f *Facts) { f.Lease.Expired = true }),
			action: RunPrimary, rule: "holder-with-data"},
		"holder by its own Pod": {
			facts:  facts(primary, unknown, unknown).held("db-2").with(func(f *Facts) { f.Lease.HolderPod = "pod-2" }),
			action: RunPrimary, rule: "holder-with-data"},
		"holder by another Pod, which may write": {
			facts:  facts(primary, unknown, unknown).held("db-2").with(func(f *Facts) { f.Lease.HolderPod = "pod-old" }),
			action: Wait, rule: "other-pod"},
		"holder by another Pod, whose lease has run out": {
			facts:  facts(primary, unknown, unknown).held("db-2").with(func(f *Facts) { f.Lease.HolderPod, f.Lease.Expired = "pod-old", true }),
			action: RunPrimary, rule: "holder-with-data"},

		"held a lease that was made anew, while a member is silent": {
			facts:  facts(primary, unknown, unknown).with(func(f *Facts) { f.Lease.Held = true }),
			action: RunPrimary, rule: "holder-forgotten"},
		"held a lease that another holds now": {
			facts:  facts(primary, unknown, unknown).held("db-1").with(func(f *Facts) { f.Lease.Held = true }),
			action: RunStandby, rule: "follow-holder", follow: "db-1"},
		"held a lease that was made anew before there was data": {
			facts:  facts(none(), unknown, unknown).with(named).with(func(f *Facts) { f.Lease.Held = true }),
			action: Bootstrap, rule: "bootstrap"},

		"holder whose initdb was interrupted": {
			facts:  facts(none(), unknown, unknown).held("db-2").with(named).with(func(f *Facts) { f.Lease.SystemIdentifier = "" }),
			action: Bootstrap, rule: "holder-bootstrap"},
		"holder whose initdb was interrupted in a Pod that may live": {
			facts: facts(none(), unknown, unknown).held("db-2").with(named).with(func(f *Facts) {
				f.Lease.SystemIdentifier, f.Lease.HolderPod = "", "pod-old"
			}), action: Wait, rule: "other-pod"},
		"holder whose volume is empty although there was a system": {
			facts: facts(none(), unknown, unknown).held("db-2").with(named), action: Refuse, rule: "holder-data-lost", problem: DataLost},
		"holder whose volume is empty and who may not bootstrap": {
			facts:  facts(none(), unknown, unknown).held("db-2").with(func(f *Facts) { f.Lease.SystemIdentifier = "" }),
			action: Refuse, rule: "holder-data-lost", problem: DataLost},
		"holder whose volume was not read": {facts: facts(unknown, unknown, unknown).held("db-2"), action: Wait, rule: "holder-data-lost"},

		"another holder, empty":          {facts: facts(none(), unknown, unknown).held("db-1"), action: CloneFrom, rule: "follow-holder", follow: "db-1"},
		"another holder, standby's data": {facts: facts(standby, unknown, unknown).held("db-1"), action: RunStandby, rule: "follow-holder", follow: "db-1"},
		"another holder, primary's data": {facts: facts(primary, unknown, unknown).held("db-1"), action: RunStandby, rule: "follow-holder", follow: "db-1"},
		"another holder whose lease has run out": {
			facts:  facts(primary, unknown, unknown).held("db-1").with(func(f *Facts) { f.Lease.Expired = true }),
			action: RunStandby, rule: "follow-holder", follow: "db-1"},
		"another holder, volume not read": {facts: facts(unknown, unknown, unknown).held("db-1"), action: Wait, rule: "follow-holder"},
		"another holder, named to bootstrap": {
			facts: facts(none(), unknown, unknown).held("db-1").with(named), action: CloneFrom, rule: "follow-holder", follow: "db-1"},

		"new cluster, named":     {facts: facts(none(), unknown, unknown).with(named), action: Bootstrap, rule: "bootstrap"},
		"new cluster, not named": {facts: facts(none(), none(), none()), action: Wait, rule: "empty-waits"},
		"named, but a member has data": {
			facts: facts(none(), standby, unknown).with(named), action: Wait, rule: "empty-waits"},
		"named, but the configuration knows a system": {
			facts:  facts(none(), none(), none()).with(named).with(func(f *Facts) { f.SystemIdentifier = system }),
			action: Wait, rule: "empty-waits"},
		"named, but the lease knows a system": {
			facts:  facts(none(), none(), none()).with(named).with(func(f *Facts) { f.Lease.SystemIdentifier = system }),
			action: Wait, rule: "empty-waits"},
		"named, but the volume was not read": {
			facts: facts(unknown, none(), none()).with(named), action: Wait, rule: "empty-waits"},

		"data, but a member is silent": {facts: facts(primary, none(), unknown), action: Wait, rule: "members-silent"},
		"data, but a member is silent for long": {
			facts:  facts(primary, none(), unknown).with(func(f *Facts) { f.Waited = AnswerBound }),
			action: Wait, rule: "members-silent", problem: MembersSilent},
		"a member is on a higher timeline": {
			facts: facts(primary, data(DataStandby, 2, 1), none()), action: Wait, rule: "less-advanced"},
		"a member was primary on the same timeline": {
			facts: facts(data(DataStandby, 1, 500), primary, none()), action: RunStandby, rule: "less-advanced"},
		"a standby has more than another": {
			facts: facts(standby, none(), data(DataStandby, 1, 101)), action: RunStandby, rule: "less-advanced"},
		"a standby that does not run may have more than it shows": {
			facts:  facts(standby, none(), data(DataStandby, 1, 1)).with(func(f *Facts) { f.Members[1].Data.Exact = false }).with(unchanged),
			action: RunStandby, rule: "members-silent"},
		"this standby does not run yet": {
			facts:  facts(standby, none(), none()).with(func(f *Facts) { f.Data.Exact = false }).with(unchanged),
			action: RunStandby, rule: "members-silent"},
		"a standby that does not run has no more than the primary's data": {
			facts:  facts(primary, none(), standby).with(func(f *Facts) { f.Members[1].Data.Exact = false }).with(unchanged),
			action: Campaign, rule: "campaign"},
		"a standby with a lower name has as much": {
			facts: facts(standby, standby, none()), action: RunStandby, rule: "less-advanced"},
		"a standby with a higher name has as much": {
			facts: facts(standby, none(), standby).with(unchanged), action: Campaign, rule: "campaign"},
		"was primary": {
			facts: facts(primary, standby, data(DataStandby, 1, 500)).with(unchanged), action: Campaign, rule: "campaign"},
		"was primary, but the lease may have been made anew": {
			facts: facts(primary, standby, standby), action: Wait, rule: "writer-may-live"},
		"alone": {
			facts: Facts{Self: "db-1", Data: primary, Lease: Lease{Known: true, Expired: true}}, action: Campaign, rule: "campaign"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decision := Decide(test.facts)
			require.Equal(t, test.action, decision.Action, decision)
			assert.Equal(t, test.rule, decision.Rule)
			assert.Equal(t, test.follow, decision.Upstream)
			assert.Equal(t, test.problem, decision.Problem)
			assert.NotEmpty(t, decision.Reason)
		})
	}
}

func TestDecide_waits_without_a_problem_before_the_bound(t *testing.T) {
	t.Parallel()
	f := facts(data(DataPrimary, 1, 1), Data{}, none())
	f.Waited = AnswerBound - time.Nanosecond
	assert.Equal(t, NoProblem, Decide(f).Problem)
}

func TestCompareNames(t *testing.T) {
	t.Parallel()
	assert.Negative(t, compareNames("db-2", "db-10"))
	assert.Zero(t, compareNames("db-2", "db-2"))
}

// TestRules compares the rules with the package comment, which is their specification.
func TestRules(t *testing.T) {
	t.Parallel()
	assert.Equal(t, documentedRules(t), func() (names []string) {
		for _, r := range rules {
			names = append(names, r.name)
		}
		return names
	}())
}
