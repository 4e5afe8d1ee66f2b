package view

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Tone is how good something is, for a colour and a sign.
type Tone string

// The tones.
const (
	ToneGood Tone = "good"
	ToneBusy Tone = "busy"
	ToneWarn Tone = "warn"
	ToneBad  Tone = "bad"
	ToneIdle Tone = "idle"
)

// State is what matters most about a cluster just now. The order of States is how urgent they are.
type State string

// The states, the most urgent first.
const (
	StateFailed    State = "Failed"
	StateDegraded  State = "Degraded"
	StateNotReady  State = "Not ready"
	StateDeleting  State = "Deleting"
	StateUpgrading State = "Upgrading"
	StateCreating  State = "Creating"
	StatePaused    State = "Paused"
	StateSuspended State = "Suspended"
	StateHealthy   State = "Healthy"
)

// States are all of them, the most urgent first.
var States = []State{
	StateFailed, StateDegraded, StateNotReady, StateDeleting, StateUpgrading, StateCreating, StatePaused, StateSuspended, StateHealthy,
}

// urgency is the place of a state among States.
func (s State) urgency() int {
	for n, state := range States {
		if state == s {
			return n
		}
	}
	return len(States)
}

// Tone of the state.
func (s State) Tone() Tone {
	switch s {
	case StateFailed:
		return ToneBad
	case StateDegraded, StateNotReady:
		return ToneWarn
	case StateUpgrading, StateCreating, StateDeleting:
		return ToneBusy
	case StatePaused, StateSuspended:
		return ToneIdle
	case StateHealthy:
	}
	return ToneGood
}

// StateOf is the cluster's state, by its phase and conditions.
func StateOf(c *v1.PostgresCluster) State {
	phase := c.Status.Phase
	is := func(condition string, status metav1.ConditionStatus) bool {
		found := apimeta.FindStatusCondition(c.Status.Conditions, condition)
		return found != nil && found.Status == status
	}
	switch {
	case phase == v1.PhaseFailed:
		return StateFailed
	case c.DeletionTimestamp != nil || phase == v1.PhaseDeleting:
		return StateDeleting
	case is(v1.ConditionDegraded, metav1.ConditionTrue):
		return StateDegraded
	case phase == v1.PhaseUpgrading:
		return StateUpgrading
	case phase == v1.PhaseSuspended:
		return StateSuspended
	case phase == v1.PhaseCreating || phase == "":
		return StateCreating
	case !is(v1.ConditionReady, metav1.ConditionTrue):
		return StateNotReady
	case is(v1.ConditionContinuousArchiving, metav1.ConditionFalse) || is(v1.ConditionBackupHealthy, metav1.ConditionFalse):
		return StateDegraded // the data is served, and what should save it does not work
	case is(v1.ConditionPaused, metav1.ConditionTrue):
		return StatePaused
	}
	return StateHealthy
}

// conditionTone says how good a condition is: most are good when true, some when false.
func conditionTone(c metav1.Condition) Tone {
	switch c.Type {
	case v1.ConditionDegraded:
		switch c.Status {
		case metav1.ConditionTrue:
			return ToneWarn
		case metav1.ConditionFalse:
			return ToneGood
		case metav1.ConditionUnknown:
		}
	case v1.ConditionProgressing:
		if c.Status == metav1.ConditionTrue {
			return ToneBusy
		}
	case v1.ConditionPaused:
	default:
		switch c.Status {
		case metav1.ConditionTrue:
			return ToneGood
		case metav1.ConditionFalse:
			return ToneWarn
		case metav1.ConditionUnknown:
		}
	}
	return ToneIdle
}
