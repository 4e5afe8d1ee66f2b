package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// asked is a switchover that prod-db-1 was asked for so long ago.
func asked(target string, ago time.Duration) v1.SwitchoverStatus {
	return v1.SwitchoverStatus{
		Target: target, From: "prod-db-1", Phase: v1.SwitchoverInProgress,
		RequestedAt: metav1.NewTime(given.Now.Add(-ago)), Message: "prod-db-1 hands over to " + target,
	}
}

func three() *given.ClusterBuilder {
	return cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready())
}

// TestWish: a user's wish for another primary is carried out once, or refused with the reason.
func TestWish(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		f       *given.ClusterBuilder
		to      string // of the action; "-": none
		refused string // what the refusal says; empty: it is not refused
		granted bool
	}{
		"to a standby":         {three().Wish("prod-db-2"), "prod-db-2", "", true},
		"to the best":          {three().Wish("best"), "", "", true},
		"to the primary":       {three().Wish("prod-db-1"), "-", "it is the primary already", true},
		"to nobody":            {three().Wish("prod-db-9"), "-", "there is no such instance", true},
		"to another cluster's": {three().Wish("other-1"), "-", "there is no such instance", true},
		"alone":                {cluster().Replicas(1).HasSystem().With(given.Member(1).Primary().Ready()).Wish("best"), "-", "there is no standby", true},
		"to one that lags": {
			cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby().Ready().Behind(17<<20)).Wish("prod-db-2"),
			"-", "it is further behind the primary than spec.availability.maximumLag allows", true,
		},
		"to one that does not stream": {
			cluster().HasSystem().With(given.Member(1).Primary().Ready(),
				given.Member(2).Standby().Ready().Report(func(s *agentapi.Status) { s.Streaming = false })).Wish("prod-db-2"),
			"-", "it does not stream", true,
		},
		"to one that is fenced": {three().Fences("prod-db-2").Wish("prod-db-2"), "-", "it is fenced", true},
		"to the best of none": {
			cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), given.Member(3).Standby().Ready().PodDeleting()).Wish("best"),
			"-", "no standby is eligible (prod-db-2: it is no standby that is ready; prod-db-3: it is going)", true,
		},
		"to the best of one": {
			cluster().HasSystem().With(given.Member(1).Primary().Ready(), given.Member(2).Standby(), given.Member(3).Standby().Ready()).Wish("best"),
			"", "", true,
		},
		"while the primary does not serve": {
			cluster().HasSystem().With(given.Member(1).Primary(), given.Member(2).Standby().Ready()).Wish("prod-db-2"),
			"-", "the primary prod-db-1 does not serve", true,
		},
		"while nobody is primary": {
			cluster().HasSystem().With(given.Member(1).Standby(), given.Member(2).Standby()).Wish("prod-db-2"), "-", "there is no primary", true,
		},
		"just after the operator's start": {
			cluster().HasSystem().With(given.Member(1).Primary().Unheard(time.Second).Holds().Ready(), given.Member(2).Standby().Ready()).Wish("prod-db-2"),
			"-", "", false,
		},
		"while the primary is silent for long": {
			cluster().HasSystem().With(given.Member(1).Primary().Unheard(time.Minute).Holds().Ready(), given.Member(2).Standby().Ready()).Wish("prod-db-2"),
			"-", "the primary prod-db-1 does not serve", true,
		},
		"while another one is under way": {three().Wish("prod-db-3").Switchover(asked("prod-db-2", time.Second)), "-", "", false},
		"that was asked for already":     {three().Wish("prod-db-2").Switchover(asked("prod-db-2", time.Second)), "-", "", true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(test.f.Facts())
			assert.Equal(t, test.granted, d.Granted)
			if test.refused == "" {
				assert.Equal(t, "switchover", d.Rule)
				assert.Positive(t, d.Recheck)
			} else {
				assert.NotEqual(t, "switchover", d.Rule, "it keeps nothing else from being done")
			}
			if test.to == "-" {
				assert.Equal(t, plan.None{}, d.Action)
			} else {
				assert.Equal(t, plan.Switchover{From: "prod-db-1", PodUID: "uid-of-prod-db-1-0", To: test.to}, d.Action)
				require.NotNil(t, d.Switchover)
				assert.Equal(t, v1.SwitchoverInProgress, d.Switchover.Phase)
				assert.Equal(t, "prod-db-1", d.Switchover.From)
				assert.True(t, given.Now.Equal(d.Switchover.RequestedAt.Time))
			}
			if test.refused != "" {
				require.NotNil(t, d.Switchover)
				assert.Equal(t, v1.SwitchoverRefused, d.Switchover.Phase)
				assert.Contains(t, d.Switchover.Message, test.refused)
				assert.NotNil(t, d.Switchover.CompletedAt)
			}
		})
	}
}

// TestSwitchoverEnds: how a switchover that was begun goes on is seen, not remembered.
func TestSwitchoverEnds(t *testing.T) {
	t.Parallel()
	says := func(s agentapi.SwitchoverStatus) func(*agentapi.Status) {
		return func(r *agentapi.Status) { r.Switchover = &s }
	}
	now := given.Now
	with := func(change func(*agentapi.Status), s v1.SwitchoverStatus) *given.ClusterBuilder {
		return cluster().HasSystem().With(given.Member(1).Primary().Ready().Report(change), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()).Switchover(s)
	}
	after := func(holder int, s v1.SwitchoverStatus) *given.ClusterBuilder {
		members := []*given.MemberBuilder{given.Member(1).Standby().Ready(), given.Member(2).Standby().Ready(), given.Member(3).Standby().Ready()}
		members[holder-1] = given.Member(holder).Primary().Ready()
		return cluster().HasSystem().With(members...).Switchover(s)
	}
	nobody := func(*agentapi.Status) {}
	for what, test := range map[string]struct {
		f     *given.ClusterBuilder
		rule  string
		phase v1.SwitchoverPhase // of what is new; empty: nothing is
		words string
	}{
		"the target is primary":                    {after(2, asked("prod-db-2", time.Second)), "done", v1.SwitchoverCompleted, "prod-db-2 is primary after prod-db-1"},
		"whoever was best is primary":              {after(3, asked("best", time.Second)), "done", v1.SwitchoverCompleted, "prod-db-3 is primary after prod-db-1"},
		"somebody else is primary":                 {after(3, asked("prod-db-2", time.Second)), "done", v1.SwitchoverFailed, "not prod-db-2"},
		"nothing is heard yet":                     {with(nobody, asked("prod-db-2", 30*time.Second)), "switchover", "", "Switching over from prod-db-1 to prod-db-2"},
		"nothing is heard for long":                {with(nobody, asked("prod-db-2", 2*time.Minute)), "done", v1.SwitchoverFailed, "did not hand over within 1m"},
		"the primary writes a long checkpoint":     {with(says(agentapi.SwitchoverStatus{Phase: agentapi.SwitchoverPreparing, Since: now.Add(-2 * time.Minute)}), asked("prod-db-2", 2*time.Minute)), "switchover", "", "Switching over"},
		"the primary writes it for too long":       {with(says(agentapi.SwitchoverStatus{Phase: agentapi.SwitchoverPreparing, Since: now.Add(-time.Hour)}), asked("prod-db-2", time.Hour)), "done", v1.SwitchoverFailed, "did not hand over"},
		"the primary refuses after all":            {with(says(agentapi.SwitchoverStatus{Phase: agentapi.SwitchoverRefused, Since: now.Add(-time.Second), Refused: "prod-db-2 is gone"}), asked("prod-db-2", time.Second)), "done", v1.SwitchoverRefused, "prod-db-2 is gone"},
		"the primary was stopped in vain":          {with(says(agentapi.SwitchoverStatus{Phase: agentapi.SwitchoverUndone, Since: now.Add(-time.Second), Refused: "it was not shut down cleanly"}), asked("prod-db-2", time.Second)), "done", v1.SwitchoverFailed, "it was not shut down cleanly"},
		"the primary refused the one before":       {with(says(agentapi.SwitchoverStatus{Phase: agentapi.SwitchoverRefused, Since: now.Add(-time.Hour), Refused: "no"}), asked("prod-db-2", time.Second)), "switchover", "", ""},
		"it was refused long ago":                  {with(nobody, v1.SwitchoverStatus{Phase: v1.SwitchoverRefused, From: "prod-db-1"}), "done", "", ""},
		"the target holds the lease, unpromoted":   {after(2, asked("prod-db-2", time.Second)).HeldBy(3), "switchover", "", ""},
		"it is complete, and the wish still there": {after(2, asked("prod-db-2", time.Second)).Wish("prod-db-2"), "switchover", v1.SwitchoverCompleted, "is primary after"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := plan.Decide(test.f.Facts())
			assert.Equal(t, test.rule, d.Rule)
			assert.Equal(t, plan.None{}, d.Action)
			if test.phase == "" {
				assert.Nil(t, d.Switchover)
				assert.Contains(t, d.Message, test.words)
				return
			}
			require.NotNil(t, d.Switchover)
			assert.Equal(t, test.phase, d.Switchover.Phase)
			assert.Contains(t, d.Switchover.Message, test.words)
			assert.NotNil(t, d.Switchover.CompletedAt)
		})
	}
}

// TestAnswers: what an agent answers becomes part of the decision.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d := plan.Decide(three().Wish("prod-db-2").Facts())
	no := d.Declined(v1.ReasonAgentOlder, "it is old", given.Now)
	assert.Equal(t, plan.None{}, no.Action)
	assert.Equal(t, v1.SwitchoverRefused, no.Switchover.Phase)
	assert.Equal(t, v1.ReasonAgentOlder, no.Switchover.Reason)
	assert.Contains(t, no.Message, "it is old")
	assert.True(t, no.Granted)
	assert.Equal(t, v1.SwitchoverInProgress, d.Switchover.Phase, "the decision itself is not changed")

	silent := d.Unanswered()
	assert.Nil(t, silent.Switchover)
	assert.False(t, silent.Granted, "it is asked again")
}
