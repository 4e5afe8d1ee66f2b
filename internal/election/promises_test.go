package election

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// randomFacts are any facts at all.
func randomFacts(random *rand.Rand) Facts {
	pick := func(texts ...string) string { return texts[random.Intn(len(texts))] }
	someData := func() Data {
		d := Data{Kind: DataKind(random.Intn(4))}
		if d.Kind.HasData() {
			d.SystemIdentifier = pick(system, system, system, "42")
			d.Position = postgres.Position{Timeline: int64(1 + random.Intn(2)), LSN: postgres.LSN(random.Intn(3))}
			d.Exact = d.Kind == DataStandby && random.Intn(4) > 0
		}
		return d
	}
	f := Facts{
		Self: "db-2", Pod: "pod-2", Data: someData(),
		Lease: Lease{
			Known: random.Intn(4) > 0, Holder: pick("", "db-1", "db-2", "db-9"), HolderPod: pick("", "pod-2", "pod-old"),
			SystemIdentifier: pick("", system), Expired: random.Intn(2) == 0,
			Held: random.Intn(4) == 0,
		},
		Bootstrap: pick("", "db-1", "db-2"), SystemIdentifier: pick("", "", system),
		Waited: time.Duration(random.Intn(100)) * time.Second,
	}
	for _, name := range []string{"db-1", "db-3", "db-10"} {
		f.Members = append(f.Members, Member{Name: name, Data: someData(), Promised: random.Intn(4) > 0})
	}
	return f
}

// writes says whether an action makes an instance write, or take the lease in order to.
func writes(action Action) bool {
	return action == Bootstrap || action == RunPrimary || action == Campaign
}

// TestDecide_promises checks the package comment's promises on random facts.
func TestDecide_promises(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(1))
	seen := map[Action]int{}
	for range 20_000 {
		f := randomFacts(random)
		before := slices.Clone(f.Members)
		d := Decide(f)
		seen[d.Action]++
		require.Equal(t, before, f.Members, "facts are not changed")
		require.NotEmpty(t, d.Rule, "some rule applies: %+v", f)

		if f.Lease.Holder != "" && f.Lease.Holder != f.Self || !f.Lease.Known {
			require.False(t, writes(d.Action), "%v while another holds the lease, or nobody knows: %+v", d, f)
		}
		if d.Action == Bootstrap {
			require.Equal(t, DataNone, f.Data.Kind)
			require.Equal(t, f.Self, f.Bootstrap)
			require.Empty(t, f.SystemIdentifier+f.Lease.SystemIdentifier)
			require.False(t, slices.ContainsFunc(f.Members, func(m Member) bool { return m.Data.Kind.HasData() }))
		}
		if writes(d.Action) || d.Action == RunStandby {
			require.NotEqual(t, DataUnknown, f.Data.Kind)
		}
		shuffled := f
		shuffled.Members = slices.Clone(f.Members)
		random.Shuffle(len(shuffled.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		require.Equal(t, d.Action, Decide(shuffled).Action, "the order of members does not matter: %+v", f)

		forgotten := shuffled
		forgotten.Members[random.Intn(len(forgotten.Members))].Data = Data{}
		if after := Decide(forgotten).Action; after != Bootstrap && !writes(d.Action) {
			require.False(t, writes(after), "forgetting makes nobody bolder: %+v", f)
		}
	}
	for action := Wait; action <= Refuse; action++ {
		assert.Positive(t, seen[action], action.String())
	}
}

// TestDecide_oneCampaigns lets all members of a cluster without a primary decide on the same truth: exactly one campaigns, and
// none of those it leaves behind has more.
func TestDecide_oneCampaigns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(2))
	for range 20_000 {
		var all []Member
		for _, name := range []string{"db-1", "db-2", "db-10"} {
			d := none()
			if random.Intn(4) > 0 {
				d = data(DataStandby, int64(1+random.Intn(2)), postgres.LSN(random.Intn(3)))
			}
			all = append(all, Member{Name: name, Data: d, Promised: true})
		}
		var campaigning []Member
		for i, self := range all {
			others := slices.Delete(slices.Clone(all), i, i+1)
			if Decide(Facts{Self: self.Name, Data: self.Data, Members: others, Lease: Lease{Known: true, Expired: true}}).Action == Campaign {
				campaigning = append(campaigning, self)
			}
		}
		if !slices.ContainsFunc(all, func(m Member) bool { return m.Data.Kind.HasData() }) {
			require.Empty(t, campaigning)
			continue
		}
		require.Len(t, campaigning, 1, "%+v", all)
		for _, other := range all {
			require.LessOrEqual(t, other.Data.Position.Compare(campaigning[0].Data.Position), 0)
		}
	}
}
