package upgradeable

import (
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Reasons of the condition.
const (
	// ReasonNothingRuns: the operator may be replaced at any time.
	ReasonNothingRuns = "NothingRuns"
	// ReasonOperationRuns: an operation runs that must not be interrupted.
	ReasonOperationRuns = "OperationRuns"
	// ReasonHeld: no operation runs, but somebody wants upgrades to wait.
	ReasonHeld = "Held"
)

// maxNamed is how many clusters a message names.
const maxNamed = 10

// held is what a message says of a cluster with the annotation.
const held = "held by the annotation " + naming.AnnotationHoldUpgrades

// operations are the reasons of a true Progressing that name an operation which must not be interrupted, and what to call it.
var operations = map[string]string{
	v1.ReasonSwitchingOver:     "a switchover",
	v1.ReasonUpdatingInstances: "a rolling update",
	v1.ReasonRestoring:         "a restore",
}

// Blocks says what speaks against replacing the operator on behalf of this cluster; empty if nothing does.
func Blocks(c *v1.PostgresCluster) string {
	what := operation(c.Status)
	switch {
	case c.Annotations[naming.AnnotationHoldUpgrades] != "true":
		return what
	case what != "":
		return what + ", and " + held
	default:
		return held
	}
}

// operation is what runs that must not be interrupted. A cluster that is being deleted has nothing to lose any more.
func operation(s v1.PostgresClusterStatus) string {
	if s.Phase == v1.PhaseDeleting {
		return ""
	}
	if s.Phase == v1.PhaseUpgrading {
		return "a major upgrade"
	}
	if p := apimeta.FindStatusCondition(s.Conditions, v1.ConditionProgressing); p != nil && p.Status == metav1.ConditionTrue {
		return operations[p.Reason]
	}
	return ""
}

// Of is the condition's status, reason and message for these clusters, in whatever order they come.
func Of(clusters []v1.PostgresCluster) metav1.Condition {
	var blocking []string
	reason := ReasonHeld
	for i := range clusters {
		c := &clusters[i]
		if what := Blocks(c); what != "" {
			blocking = append(blocking, c.Namespace+"/"+c.Name+": "+what)
			if what != held {
				reason = ReasonOperationRuns
			}
		}
	}
	if len(blocking) == 0 {
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: ReasonNothingRuns,
			Message: "No PostgresCluster is in an operation that must not be interrupted",
		}
	}
	slices.Sort(blocking)
	if more := len(blocking) - maxNamed; more > 0 {
		blocking = append(blocking[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: strings.Join(blocking, "; ")}
}

// Set puts want into the conditions of an OperatorCondition of this generation and says whether that changes anything. Others'
// conditions are left as they are.
//
// OLM heeds a condition only if its observedGeneration is the object's generation. They are part of the object's spec, so writing
// them makes the next generation: that is the one to name.
func Set(conditions []metav1.Condition, generation int64, want metav1.Condition, now metav1.Time) ([]metav1.Condition, bool) {
	if have := apimeta.FindStatusCondition(conditions, want.Type); have != nil && have.ObservedGeneration == generation &&
		have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return conditions, false
	}
	changed := slices.Clone(conditions)
	want.ObservedGeneration = generation + 1
	want.LastTransitionTime = now // kept by SetStatusCondition if the status is the same as before
	apimeta.SetStatusCondition(&changed, want)
	return changed, true
}
