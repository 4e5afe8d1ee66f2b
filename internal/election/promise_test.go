package election

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMayPromise(t *testing.T) {
	t.Parallel()
	f := facts(exact(100), Data{}, Data{}).held("db-1")
	f.Lease.HolderPod = "pod-1"
	assert.Empty(t, MayPromise(f, "db-1", "pod-1", false))
	assert.Empty(t, MayPromise(f, "db-1", "pod-new", true), "who is to be the holder may change its Pod")
	assert.Contains(t, MayPromise(f, "db-3", "pod-3", false), "db-1 holds the lease")

	f.Promise = Promise{Holder: "db-1", Pod: "pod-1", Remaining: time.Second}
	assert.Empty(t, MayPromise(f, "db-1", "pod-1", false), "again")
	assert.Contains(t, MayPromise(f, "db-1", "pod-new", true), "has promised to db-1 (Pod pod-1) for 1s more")
	f.Promise.Remaining = 0
	assert.Empty(t, MayPromise(f, "db-1", "pod-new", true))

	f.Lease.HolderPod = "pod-new"
	assert.Contains(t, MayPromise(f, "db-1", "pod-1", false), "another Pod of db-1 holds the lease", "it was taken over by force")
	f.Lease.HolderPod = "pod-1"

	f.Young = true
	assert.Empty(t, MayPromise(f, "db-1", "pod-1", false), "who goes on has its right from before, and keeps it")
	assert.Contains(t, MayPromise(f, "db-1", "pod-new", true), "may have forgotten")
	f.Young = false

	f.Lease.Holder = "db-2"
	assert.Contains(t, MayPromise(f, "db-1", "pod-1", false), "db-2 holds the lease", "which is this instance")
	assert.Empty(t, MayPromise(Facts{Self: "db-2"}, "db-1", "pod-1", false), "a promise binds only who gives it")
}

func TestByPromises(t *testing.T) {
	t.Parallel()
	timings := Timings{Duration: 8 * time.Second, Deadline: 5 * time.Second, Renew: 2 * time.Second}
	ages := func(two, three time.Duration) map[string]time.Duration {
		return map[string]time.Duration{"db-2": two, "db-3": three}
	}
	all := []string{"db-1", "db-2", "db-3"}
	for name, test := range map[string]struct {
		held     Held
		promised map[string]time.Duration
		since    time.Duration
		missing  []string
	}{
		"all":           {Held{4 * time.Second, all}, ages(time.Second, 2*time.Second), 2 * time.Second, nil},
		"one is silent": {Held{4 * time.Second, all}, map[string]time.Duration{"db-2": 0}, 4 * time.Second, []string{"db-3"}},
		"one in an update that was not answered": {
			Held{4 * time.Second, append([]string{"db-4"}, all...)}, ages(0, 0), 4 * time.Second, []string{"db-4"}},
		"too late":              {Held{5 * time.Second, all}, ages(0, 0), 5 * time.Second, []string{"the time: the lease has run out"}},
		"nobody to ask":         {Held{4 * time.Second, []string{"db-1"}}, nil, 4 * time.Second, []string{"any other member"}},
		"promises of long ago":  {Held{3 * time.Second, all}, ages(time.Second, 4*time.Second), 3 * time.Second, nil},
		"a name that is twice":  {Held{3 * time.Second, append(all, "db-9", "db-9")}, ages(0, 0), 3 * time.Second, []string{"db-9"}},
		"one that nobody knows": {Held{3 * time.Second, all}, map[string]time.Duration{"db-2": 0, "db-3": time.Second, "db-7": 9 * time.Second}, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			since, missing := test.held.ByPromises("db-1", timings, test.promised)
			assert.Equal(t, test.since, since)
			assert.Equal(t, test.missing, missing)
		})
	}
}

func TestTimings(t *testing.T) {
	t.Parallel()
	for _, timings := range []Timings{
		{Duration: 8 * time.Second, Deadline: 5 * time.Second, Renew: 2 * time.Second},
		{Duration: 8 * time.Second, Renew: 2 * time.Second},
		{Duration: 5 * time.Second, Deadline: 3 * time.Second, Renew: time.Second},
		{Duration: 60 * time.Second, Deadline: 58 * time.Second, Renew: 10 * time.Second},
	} {
		assert.Less(t, timings.Renew, timings.StopFast())
		assert.Less(t, timings.StopFast(), timings.StopImmediate())
		assert.Less(t, timings.StopImmediate(), timings.StopKill())
		slowest := float64(timings.StopKill()) / (1 - DriftBound)
		fastest := float64(timings.Duration) / (1 + DriftBound)
		assert.Greater(t, fastest-slowest, 0.04*float64(timings.Duration), "what is left to end by force: %v", timings)
	}
	timings := Timings{Duration: 16 * time.Second}
	for since, must := range map[time.Duration]Stopping{
		0: GoOn, 12*time.Second - 1: GoOn, 12 * time.Second: StopFast, 14 * time.Second: StopImmediate, 15 * time.Second: StopKill,
	} {
		assert.Equal(t, must, timings.MustStop(true, since), since)
	}
	assert.Equal(t, StopImmediate, timings.MustStop(false, 0))
	assert.Equal(t, StopKill, timings.MustStop(false, time.Minute))
}
