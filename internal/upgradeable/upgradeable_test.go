package upgradeable

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

func cluster(name string, change ...func(*v1.PostgresCluster)) v1.PostgresCluster {
	c := v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}, Status: v1.PostgresClusterStatus{Phase: v1.PhaseRunning}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func phase(p v1.Phase) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Status.Phase = p }
}

func progressing(status metav1.ConditionStatus, reason string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) {
		apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1.ConditionProgressing, Status: status, Reason: reason})
	}
}

func holds(value string) func(*v1.PostgresCluster) {
	return func(c *v1.PostgresCluster) { c.Annotations = map[string]string{naming.AnnotationHoldUpgrades: value} }
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	yes, no := metav1.ConditionTrue, metav1.ConditionFalse
	for name, test := range map[string]struct {
		cluster v1.PostgresCluster
		want    string
	}{
		"without a status":                    {v1.PostgresCluster{}, ""},
		"at rest":                             {cluster("a", progressing(no, v1.ReasonReconciled)), ""},
		"being created":                       {cluster("a", phase(v1.PhaseCreating), progressing(yes, v1.ReasonCreatingInstances)), ""},
		"failed":                              {cluster("a", phase(v1.PhaseFailed)), ""},
		"in a major upgrade":                  {cluster("a", phase(v1.PhaseUpgrading)), "a major upgrade"},
		"in a switchover":                     {cluster("a", progressing(yes, v1.ReasonSwitchingOver)), "a switchover"},
		"in a rolling update":                 {cluster("a", progressing(yes, v1.ReasonUpdatingInstances)), "a rolling update"},
		"in a restore":                        {cluster("a", phase(v1.PhaseCreating), progressing(yes, v1.ReasonRestoring)), "a restore"},
		"after a switchover":                  {cluster("a", progressing(no, v1.ReasonSwitchingOver)), ""},
		"being deleted in a switchover":       {cluster("a", phase(v1.PhaseDeleting), progressing(yes, v1.ReasonSwitchingOver)), ""},
		"held":                                {cluster("a", holds("true")), "held by the annotation pgsteward.io/hold-upgrades"},
		"not held, says the annotation":       {cluster("a", holds("false")), ""},
		"held in a major upgrade":             {cluster("a", phase(v1.PhaseUpgrading), holds("true")), "a major upgrade, and held by the annotation pgsteward.io/hold-upgrades"},
		"held, and being deleted: still held": {cluster("a", phase(v1.PhaseDeleting), holds("true")), "held by the annotation pgsteward.io/hold-upgrades"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Blocks(&test.cluster))
		})
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: ReasonNothingRuns,
		Message: "No PostgresCluster is in an operation that must not be interrupted",
	}, Of(nil))
	require.Equal(t, metav1.ConditionTrue, Of([]v1.PostgresCluster{cluster("a"), cluster("b")}).Status)

	clusters := []v1.PostgresCluster{cluster("c", holds("true")), cluster("b"), cluster("a", phase(v1.PhaseUpgrading))}
	want := metav1.Condition{
		Status: metav1.ConditionFalse, Reason: ReasonOperationRuns,
		Message: "demo/a: a major upgrade; demo/c: held by the annotation pgsteward.io/hold-upgrades",
	}
	require.Equal(t, want, Of(clusters))
	slices.Reverse(clusters)
	require.Equal(t, want, Of(clusters), "in another order")
	require.Equal(t, ReasonHeld, Of(clusters[2:]).Reason)

	var many []v1.PostgresCluster
	for i := range 1000 {
		many = append(many, cluster(fmt.Sprintf("db-%03d", i), holds("true")))
	}
	message := Of(many).Message
	require.Contains(t, message, "demo/db-009: ")
	require.NotContains(t, message, "demo/db-010: ")
	require.True(t, strings.HasSuffix(message, "; and 990 more"), message)
}

func TestSet(t *testing.T) {
	t.Parallel()
	earlier, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Theirs", ObservedGeneration: 2, LastTransitionTime: earlier}
	want := metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionTrue, Reason: ReasonNothingRuns, Message: "none"}
	written := func(generation int64, at metav1.Time) metav1.Condition {
		c := want
		c.ObservedGeneration, c.LastTransitionTime = generation, at
		return c
	}
	differing := func(change func(*metav1.Condition)) metav1.Condition {
		c := written(7, earlier)
		change(&c)
		return c
	}
	for name, test := range map[string]struct {
		have metav1.Condition
		then metav1.Condition
	}{
		"another status":     {differing(func(c *metav1.Condition) { c.Status = metav1.ConditionFalse }), written(8, now)},
		"another reason":     {differing(func(c *metav1.Condition) { c.Reason = ReasonHeld }), written(8, earlier)},
		"another message":    {differing(func(c *metav1.Condition) { c.Message = "" }), written(8, earlier)},
		"another generation": {differing(func(c *metav1.Condition) { c.ObservedGeneration = 6 }), written(8, earlier)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := []metav1.Condition{other, test.have}
			before := slices.Clone(have)
			got, changed := Set(have, 7, want, now)
			require.True(t, changed)
			require.Equal(t, []metav1.Condition{other, test.then}, got)
			require.Equal(t, before, have, "what was given is not changed")
			again, changed := Set(got, 8, want, now)
			require.False(t, changed, "written once, it is what OLM wants")
			require.Equal(t, got, again)
		})
	}
	got, changed := Set([]metav1.Condition{other}, 1, want, now)
	require.True(t, changed)
	require.Equal(t, []metav1.Condition{other, written(2, now)}, got, "none yet")
}
