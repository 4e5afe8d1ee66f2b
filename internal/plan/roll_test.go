package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

func restarts(instance string) plan.Action {
	return plan.RestartInstance{Instance: instance, PodUID: "uid-of-" + instance + "-0"}
}

func restartsServer(instance, parameters string) plan.Action {
	return plan.RestartServer{Instance: instance, PodUID: "uid-of-" + instance + "-0", Why: "for which a restart is due to set " + parameters}
}

func handsOver(from, to string) plan.Action {
	return plan.Switchover{From: from, PodUID: "uid-of-" + from + "-0", To: to}
}

// TestRoll: what differs from the spec is restarted, standbys first, one at a time, and the primary after it has handed over.
func TestRoll(t *testing.T) {
	t.Parallel()
	one, two, three := func() *given.MemberBuilder { return given.Member(1).Primary().Ready() },
		func() *given.MemberBuilder { return given.Member(2).Standby().Ready() },
		func() *given.MemberBuilder { return given.Member(3).Standby().Ready() }
	with := func(members ...*given.MemberBuilder) *given.ClusterBuilder {
		return cluster().Replicas(len(members)).HasSystem().With(members...)
	}
	refusedAgo := func(d time.Duration) v1.SwitchoverStatus {
		s, at := asked("prod-db-2", d), metav1.NewTime(given.Now.Add(-d))
		s.Phase, s.CompletedAt, s.Message = v1.SwitchoverRefused, &at, "prod-db-2 lags"
		return s
	}
	undoneAgo := func(d time.Duration) v1.SwitchoverStatus {
		s := refusedAgo(d)
		s.Phase, s.Reason, s.Message = v1.SwitchoverFailed, v1.ReasonSwitchoverUndone, "it was not shut down cleanly"
		return s
	}
	handedOver := func(d time.Duration) v1.SwitchoverStatus {
		s, at := asked("prod-db-1", d), metav1.NewTime(given.Now.Add(-d))
		s.From, s.Phase, s.CompletedAt = "prod-db-2", v1.SwitchoverCompleted, &at
		return s
	}
	for what, test := range map[string]struct {
		f       *given.ClusterBuilder
		action  plan.Action
		message string
	}{
		"it was handed over to in vain": {
			with(one().Pending("shared_buffers"), two(), three()).Switchover(handedOver(time.Second)),
			restartsServer("prod-db-1", "shared_buffers"), "3 of 3: prod-db-1, for which a restart is due",
		},
		"it was handed over to long ago": {
			with(one().Pending("shared_buffers"), two(), three()).Switchover(handedOver(time.Hour)), handsOver("prod-db-1", "prod-db-2"), "hands over",
		},
		"the primary was stopped for it in vain": {
			with(one().Differs(), two(), three()).Switchover(undoneAgo(9 * time.Minute)), plan.None{}, "waits: it did not hand over: it was not shut down cleanly",
		},
		"the primary was stopped for it in vain, long ago": {
			with(one().Differs(), two(), three()).Switchover(undoneAgo(11 * time.Minute)), handsOver("prod-db-1", "prod-db-2"), "hands over",
		},
		"all differ": {with(one().Differs(), two().Differs(), three().Differs()), restarts("prod-db-2"), "1 of 3: prod-db-2, whose Pod differs from the spec"},
		"the primary's StatefulSet is the first to have the change": {
			with(one().Differs(), two().TemplateLags(), three().TemplateLags()), plan.None{}, "1 of 3: prod-db-2 waits: the StatefulSet of prod-db-2 does not have the change yet",
		},
		"one is done":            {with(one().Differs(), two(), three().Differs()), restarts("prod-db-3"), "2 of 3: prod-db-3, whose Pod differs from the spec"},
		"the primary is left":    {with(one().Differs(), two(), three()), handsOver("prod-db-1", "prod-db-2"), "3 of 3: prod-db-1, which hands over to prod-db-2 first"},
		"the nearest takes over": {with(one().Differs(), two().Behind(100), three()), handsOver("prod-db-1", "prod-db-3"), "3 of 3: prod-db-1, which hands over to prod-db-3 first"},
		"the old primary":        {with(given.Member(1).Standby().Ready().Differs(), given.Member(2).Primary().Ready(), three()), restarts("prod-db-1"), "3 of 3: prod-db-1, whose Pod differs from the spec"},
		"alone":                  {with(one().Differs()), restarts("prod-db-1"), "1 of 1: prod-db-1, whose Pod differs from the spec"},
		"two":                    {with(one().Differs(), two().Differs()), restarts("prod-db-2"), "1 of 2: prod-db-2, whose Pod differs from the spec"},
		"commits wait for one": {
			with(one().Differs().Report(func(s *agentapi.Status) { s.Sync, s.SyncStandbys = "ANY 1 (prod-db-3)", []string{"prod-db-3"} }), two(), three().Behind(5)),
			handsOver("prod-db-1", "prod-db-3"), "3 of 3: prod-db-1, which hands over to prod-db-3 first",
		},

		"a parameter of all":   {with(one().Pending("shared_buffers"), two().Pending("shared_buffers"), three()), restartsServer("prod-db-2", "shared_buffers"), "2 of 3: prod-db-2, for which a restart is due to set shared_buffers"},
		"its last":             {with(one().Pending("shared_buffers"), two(), three()), handsOver("prod-db-1", "prod-db-2"), "3 of 3: prod-db-1, which hands over to prod-db-2 first"},
		"a parameter, alone":   {with(one().Pending("shared_buffers")), restartsServer("prod-db-1", "shared_buffers"), "1 of 1: prod-db-1, for which a restart is due to set shared_buffers"},
		"a parameter, lowered": {with(one().Lowers("max_connections"), two(), three()), restartsServer("prod-db-1", "max_connections"), "3 of 3: prod-db-1, for which a restart is due to set max_connections"},
		"lowered with another": {with(one().Lowers("max_connections"), two().Pending("shared_buffers"), three()), restartsServer("prod-db-1", "max_connections"), "2 of 3: prod-db-1, for which a restart is due to set max_connections"},
		"Pod and parameter":    {with(one(), two().Differs().Pending("shared_buffers"), three()), restarts("prod-db-2"), "3 of 3: prod-db-2, whose Pod differs from the spec"},

		"a standby lags":            {with(one().Differs(), two().Behind(20<<20), three().Differs()), nil, "2 of 3: prod-db-3 waits: prod-db-2 is not as it should be: it is further behind"},
		"a standby does not stream": {with(one(), two().Report(func(s *agentapi.Status) { s.Streaming = false }), three().Differs()), nil, "waits: prod-db-2 is not as it should be: it does not stream"},
		"a standby is silent":       {with(one(), two().Unheard(time.Second), three().Differs()), nil, "waits: prod-db-2 is not as it should be: its agent does not answer"},
		"the next is silent":        {with(one(), two(), three().Differs().Unheard(time.Second)), nil, "prod-db-3 waits: prod-db-3 is not as it should be: its agent does not answer"},
		"the primary is silent":     {with(one().Unheard(time.Second).Holds(), two(), three().Differs()), nil, "waits: the primary prod-db-1 is not known to serve"},
		"the next may be unfit":     {with(one(), two(), three().Differs().Behind(20<<20)), restarts("prod-db-3"), "3 of 3: prod-db-3, whose Pod differs from the spec"},
		"it has just refused":       {with(one().Differs(), two(), three()).Switchover(refusedAgo(time.Second)), nil, "3 of 3: prod-db-1 waits: it did not hand over: prod-db-2 lags"},
		"it refused a while ago":    {with(one().Differs(), two(), three()).Switchover(refusedAgo(time.Minute)), handsOver("prod-db-1", "prod-db-2"), "3 of 3: prod-db-1, which hands over to prod-db-2 first"},

		"an old agent cannot be asked to restart":   {with(one(), two(), three().Pending("shared_buffers").OldAgent()), restarts("prod-db-3"), "3 of 3: prod-db-3, for which a restart is due to set shared_buffers"},
		"an old agent cannot be asked to hand over": {with(one().Differs().OldAgent(), two(), three()), restarts("prod-db-1"), "3 of 3: prod-db-1, whose Pod differs from the spec"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(test.f.Facts())
			assert.Equal(t, "roll", d.Rule)
			assert.Equal(t, v1.ReasonUpdatingInstances, d.Reason)
			assert.Contains(t, d.Message, test.message)
			assert.Positive(t, d.Recheck)
			if test.action == nil {
				test.action = plan.None{}
			}
			assert.Equal(t, test.action, d.Action)
		})
	}
}

// TestNoRoll: nothing that works is restarted while something else does not, nor for a spec that is known to be wrong.
func TestNoRoll(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		f    *given.ClusterBuilder
		rule string
	}{
		"nothing differs":        {three(), "done"},
		"only the agent's":       {cluster().HasSystem().With(given.Member(1).Primary().Ready().Outdated(), given.Member(2).Standby().Ready().Outdated(), given.Member(3).Standby().Ready().Outdated()), "done"},
		"a standby is down":      {cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Differs(), given.Member(3).Standby()), "settle"},
		"the bad image's first":  {cluster().HasSystem().With(given.Member(1).Primary().Ready().Differs(), given.Member(2).NotStarted().PodProblem(v1.ReasonImagePullFailed, "no"), given.Member(3).Standby().Ready().Differs()), "settle"},
		"the image is mended":    {cluster().HasSystem().With(given.Member(1).Primary().Ready().Differs(), given.Member(2).NotStarted().Outdated().Differs().PodProblem(v1.ReasonImagePullFailed, "no"), given.Member(3).Standby().Ready().Differs()), "restart-broken"},
		"the spec is wrong":      {cluster().HasSystem().Problem(v1.ReasonInvalidSpec, "no").With(given.Member(1).Primary().Ready().Differs(), given.Member(2).Standby().Ready().Differs(), given.Member(3).Standby().Ready()), "done"},
		"a fence":                {cluster().HasSystem().Fences("prod-db-3").With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Differs(), given.Member(3).Standby()), "settle"},
		"an old configuration":   {cluster().HasSystem().Generation(2).With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Differs(), given.Member(3).Standby().Ready()), "settle"},
		"scaling in comes first": {cluster().Replicas(2).HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Differs(), given.Member(3).Standby().Ready()), "scale-in"},
		"paused":                 {three().Paused().With(given.Member(4).Standby().Ready().Differs()), "pause"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.rule, plan.Decide(test.f.Facts()).Rule)
		})
	}
}

// TestNodeLost: a standby whose node is lost is made anew when that is safe, and nothing else.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	gone := facts.NodeState{Name: "node-3", Gone: true}
	out := func(d time.Duration) facts.NodeState {
		return facts.NodeState{Name: "node-3", NotReadySince: given.Now.Add(-d)}
	}
	well := facts.NodeState{Name: "node-3"}
	replaced := plan.ReplaceInstance{Instance: "prod-db-3", PodUID: "uid-of-prod-db-3-0"}
	forgotten := plan.ForgetPod{Instance: "prod-db-3", PodUID: "uid-of-prod-db-3-0"}
	silent := func() *given.MemberBuilder { return given.Member(3).Unheard(time.Hour) }
	with := func(m *given.MemberBuilder) *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), m)
	}
	for what, test := range map[string]struct {
		f      *given.ClusterBuilder
		action plan.Action
	}{
		"the node is gone and the volume with it": {with(silent().OnNode(gone).VolumeOn(gone)), replaced},
		"the Pod finds no node, since its volume's is gone": {
			with(silent().Unplaced().PodProblem(v1.ReasonUnschedulable, "x").VolumeOn(gone)), replaced,
		},
		"the node is out for long":            {with(silent().PodDeleting().OnNode(out(time.Hour)).VolumeOn(out(time.Hour))), replaced},
		"the node is out for a while":         {with(silent().PodDeleting().OnNode(out(time.Minute)).VolumeOn(out(time.Minute))), nil},
		"the node is gone and not the volume": {with(silent().PodDeleting().OnNode(gone)), forgotten},
		"the node is out and not the volume":  {with(silent().PodDeleting().OnNode(out(time.Hour))), nil},
		"the node is well":                    {with(silent().OnNode(well).VolumeOn(well)), nil},
		"nothing is known of the node":        {with(silent()), nil},
		"the kubelet says that it is ready":   {with(silent().Ready().OnNode(gone).VolumeOn(gone)), nil},
		"its agent says that it streams":      {with(given.Member(3).Standby().OnNode(gone).VolumeOn(gone)), nil},
		"its agent says that it is primary":   {with(given.Member(3).SaysPrimary().OnNode(gone).VolumeOn(gone)), nil},
		"the volume was never bound":          {with(silent().Unplaced().Unbound().VolumeOn(gone)), nil},
		"the volume is on its way":            {with(silent().Unplaced().VolumeDeleting().VolumeOn(gone)), nil},
		"the volume is held by the Pod":       {with(silent().PodDeleting().OnNode(gone).VolumeDeleting().VolumeOn(gone)), replaced},
		"no primary is known":                 {with(silent().OnNode(gone).VolumeOn(gone)).HeldBy(2), nil},
		"it is the primary itself":            {with(silent().OnNode(gone).VolumeOn(gone).Holds()), nil},
		"nobody is primary":                   {cluster().HasSystem().With(given.Member(1).Standby(), given.Member(2).Standby(), silent().OnNode(gone).VolumeOn(gone)), nil},
		"the primary does not serve":          {cluster().HasSystem().With(given.Member(1).Primary(), given.Member(2).Standby(), silent().OnNode(gone).VolumeOn(gone)), nil},
		"the primary is silent":               {cluster().HasSystem().With(given.Member(1).Unheard(time.Second).Holds().Ready(), given.Member(2).Standby().Ready(), silent().OnNode(gone).VolumeOn(gone)), nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(test.f.Facts())
			if test.action == nil {
				assert.NotEqual(t, "node-lost", d.Rule)
				assert.Equal(t, plan.None{}, d.Action)
				return
			}
			assert.Equal(t, "node-lost", d.Rule)
			assert.Equal(t, test.action, d.Action)
			assert.Contains(t, d.Message, "prod-db-3")
		})
	}
}

// TestFence: what is stopped on purpose is told as such.
func TestFence(t *testing.T) {
	t.Parallel()
	d := plan.Decide(cluster().HasSystem().Fences("*").With(given.Member(1).Primary(), given.Member(2).Standby(), given.Member(3).Standby()).Facts())
	assert.Equal(t, v1.ReasonFenced, d.Reason)
	assert.Contains(t, d.Message, "The primary prod-db-1 is fenced, as the annotation pgsteward.io/fenced says")
	d = plan.Decide(cluster().HasSystem().Fences("prod-db-3").With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby()).Facts())
	assert.Equal(t, v1.ReasonFenced, d.Reason)
	assert.Contains(t, d.Message, "prod-db-3 is fenced")
	d = plan.Decide(cluster().HasSystem().Fences("prod-db-3").With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), given.Member(3).Standby()).Facts())
	assert.Equal(t, v1.ReasonInstancesNotReady, d.Reason, "another one is not ready, which nobody asked for")
}
