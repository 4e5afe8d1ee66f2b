package plan_test

import (
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

const (
	// worlds is how many runs the test makes, each with choices random choices (about a hundred passes).
	worlds  = 250
	choices = 2000
	// calmPasses is how many passes a world may need to settle once nothing unusual happens any more.
	calmPasses = 200
	// rest is how many passes without anything to do are taken for the end.
	rest = 3
)

// TestSimulation lets plan run clusters in worlds where reports get lost, Pods are slow, operators end in the middle of a pass and
// people scale, delete and change things; and asserts after each decision what must hold always.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for seed := range int64(worlds) {
		random := rand.New(rand.NewSource(seed))
		bytes := make([]byte, choices)
		random.Read(bytes)
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) { simulate(t, bytes, random) })
	}
}

// FuzzSimulation is the same for choices that the fuzzer finds.
func FuzzSimulation(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("the quick brown fox jumps over the lazy dog"))
	f.Fuzz(func(t *testing.T, bytes []byte) { simulate(t, bytes, rand.New(rand.NewSource(1))) })
}

func simulate(t *testing.T, bytes []byte, random *rand.Rand) {
	t.Helper()
	w := newWorld(bytes)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w)
		}
	})
	var d plan.Decision
	for calm, resting := 0, 0; calm <= calmPasses && resting < rest; {
		if w.calm() {
			calm++
		}
		if resting++; !w.calm() || d.Rule != "done" {
			resting = 0
		}
		w.meddle()
		f := w.facts()
		d = plan.Decide(f)
		examine(t, w, f, d, random)
		w.carryOut(f, d)
		if w.released {
			settledDeletion(t, w)
			return
		}
		w.live()
		if w.systems > 1 {
			require.Fail(t, "a second PostgreSQL system was made", w.String())
		}
	}
	require.Equal(t, "done", d.Rule, "the cluster does not come to rest: %s\n%s", d.Message, w)
	require.Len(t, w.sets, w.replicas, w.String())
	require.True(t, w.serving(), w.String())
	require.Empty(t, w.wish, w.String())
	for _, p := range w.pods {
		require.Equal(t, w.spec, p.spec, "a roll is not finished: %s", w)
		require.False(t, p.pending, "a roll is not finished: %s", w)
	}
}

func settledDeletion(t *testing.T, w *world) {
	t.Helper()
	require.Empty(t, w.sets)
	require.Empty(t, w.pods)
	if !w.keep {
		require.Empty(t, w.volumes)
	}
}

// examine asserts what must hold for the decision.
func examine(t *testing.T, w *world, f facts.Cluster, d plan.Decision, random *rand.Rand) {
	t.Helper()
	copied := clone(f)
	same(t, d, plan.Decide(f), "the same facts, another decision")
	same(t, copied, f, "Decide changed its input")
	same(t, d, plan.Decide(shuffled(f, random)), "the order of the facts matters")

	harmless(t, w, f, d)
	membership(t, f, d)
	if d.Bootstrap != "" {
		require.False(t, f.HasData(), "bootstrap although there is data")
		require.Equal(t, d.Members[0].Name, d.Bootstrap)
	}
	for _, forgetful := range forgetting(f) {
		harmless(t, w, forgetful, plan.Decide(forgetful))
	}
}

// same is require.Equal, which takes its time even for what is equal.
func same[T any](t *testing.T, want, got T, message string) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		require.Equal(t, want, got, message)
	}
}

// harmless asserts, by the truth of the world, that the decision's action destroys nothing.
func harmless(t *testing.T, w *world, f facts.Cluster, d plan.Decision) {
	t.Helper()
	switch a := d.Action.(type) {
	case plan.MakeFinalBackup, plan.SwitchVersion: // packages backup and upgrade have worlds of their own
		require.Fail(t, "this world has neither backups nor upgrades", "%T", a)
	case plan.RemoveInstance:
		require.False(t, f.Deleting)
		n, ok := naming.Ordinal(f.Name, a.Instance)
		require.True(t, ok)
		require.NotEqual(t, w.holder, n, "the primary is removed")
		require.False(t, w.pods[n] != nil && w.pods[n].primary, "an instance that is primary is removed")
		require.Equal(t, !f.KeepVolumes, a.DeleteVolume)
		if w.volumes[n] != nil && w.volumes[n].data != "" {
			require.True(t, w.serving(), "an instance with data is removed while no primary serves")
			require.False(t, w.sets[w.holder].deleting, "an instance with data is removed while the primary is going")
		}
	case plan.ReplaceVolume:
		n, _ := naming.Ordinal(f.Name, a.Instance)
		require.Empty(t, w.volumes[n].data, "a volume with data is replaced")
	case plan.RestartInstance:
		n, _ := naming.Ordinal(f.Name, a.Instance)
		if d.Rule == "roll" {
			rolls(t, w, f, n)
			return
		}
		require.False(t, w.pods[n].running && (w.pods[n].primary || w.pods[n].standby), "an instance that works is restarted")
	case plan.RestartServer:
		n, _ := naming.Ordinal(f.Name, a.Instance)
		rolls(t, w, f, n)
	case plan.Switchover:
		require.NotEqual(t, a.From, a.To)
		n, _ := naming.Ordinal(f.Name, a.From)
		require.Equal(t, w.holder, n, "somebody else than the primary is asked")
		if d.Rule == "roll" {
			for other, p := range w.pods {
				require.True(t, other == n || w.sets[other] == nil || p.spec == w.spec && !p.pending, "the primary's turn comes before that of %d", other)
			}
		}
	case plan.ForgetPod, plan.ReplaceInstance:
		n := lost(t, f, a)
		require.NotEqual(t, w.holder, n, "the primary's is given up")
		require.True(t, w.pods[n] == nil || w.pods[n].away || w.volumes[n].away, "an instance whose node is well is given up")
		require.True(t, w.serving(), "an instance is given up while no primary serves")
	case plan.RemoveInstances, plan.RemoveRest, plan.Release:
		require.True(t, f.Deleting)
	case plan.None:
	}
}

// rolls asserts that the instance may be restarted although it works: it is due, all others serve, and it is the primary only if
// there is nobody else.
func rolls(t *testing.T, w *world, f facts.Cluster, n int) {
	t.Helper()
	require.True(t, w.pods[n].spec != w.spec || w.pods[n].pending, "%d is restarted for nothing", n)
	for other := range w.sets {
		require.True(t, other == n || w.pods[other] != nil && w.pods[other].serves(), "%d is restarted while %d does not serve", n, other)
	}
	vain := w.last != nil && w.last.Phase == v1.SwitchoverCompleted && w.last.Target == naming.Instance(f.Name, n) && w.pods[n].spec == w.spec
	require.True(t, n != w.holder || len(w.sets) == 1 || vain, "the primary is restarted")
	require.Len(t, f.Instances, f.Replicas)
}

// lost is the number of the instance that is given up.
func lost(t *testing.T, f facts.Cluster, action plan.Action) int {
	t.Helper()
	name := ""
	if a, forgets := action.(plan.ForgetPod); forgets {
		name = a.Instance
	}
	if a, replaces := action.(plan.ReplaceInstance); replaces {
		name = a.Instance
	}
	n, ok := naming.Ordinal(f.Name, name)
	require.True(t, ok)
	return n
}

// membership asserts that nothing but the action removes an instance.
func membership(t *testing.T, f facts.Cluster, d plan.Decision) {
	t.Helper()
	if f.Deleting {
		require.Empty(t, d.Members)
		return
	}
	for n, m := range d.Members {
		require.Equal(t, naming.Instance(f.Name, m.Ordinal), m.Name)
		require.True(t, m.Ordinal >= 1 && m.Ordinal <= naming.MaxReplicas, "instance %s", m.Name)
		require.True(t, n == 0 || d.Members[n-1].Ordinal < m.Ordinal, "the members are not in order")
	}
	for _, i := range f.Instances {
		removal, _ := d.Action.(plan.RemoveInstance)
		if !i.Deleting && i.Name != removal.Instance {
			require.True(t, slices.Contains(d.Members, plan.Member{Name: i.Name, Ordinal: i.Ordinal}), "%s is left out", i.Name)
		}
	}
}

// forgetting are the same facts with one thing less known each, and with no report at all.
func forgetting(f facts.Cluster) []facts.Cluster {
	var all []facts.Cluster
	with := func(change func(*facts.Cluster)) {
		c := clone(f)
		change(&c)
		all = append(all, c)
	}
	for n := range f.Instances {
		with(func(c *facts.Cluster) { c.Instances[n].Report = facts.Known[agentapi.Status]{} })
	}
	with(func(c *facts.Cluster) {
		for n := range c.Instances {
			c.Instances[n].Report = facts.Known[agentapi.Status]{}
		}
	})
	with(func(c *facts.Cluster) { c.Holder = "" })
	with(func(c *facts.Cluster) { c.SystemIdentifier = "" })
	with(func(c *facts.Cluster) { c.Volumes = nil })
	return all
}

func shuffled(f facts.Cluster, random *rand.Rand) facts.Cluster {
	c := clone(f)
	random.Shuffle(len(c.Instances), func(a, b int) { c.Instances[a], c.Instances[b] = c.Instances[b], c.Instances[a] })
	random.Shuffle(len(c.Volumes), func(a, b int) { c.Volumes[a], c.Volumes[b] = c.Volumes[b], c.Volumes[a] })
	return c
}

// clone shares nothing with f that Decide could change.
func clone(f facts.Cluster) facts.Cluster {
	f.Instances, f.Volumes = slices.Clone(f.Instances), slices.Clone(f.Volumes)
	f.OrphanPods, f.Leftovers = slices.Clone(f.OrphanPods), slices.Clone(f.Leftovers)
	for n, i := range f.Instances {
		if i.Pod != nil {
			pod := *i.Pod
			f.Instances[n].Pod = &pod
		}
	}
	return f
}
