package observe

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestEvicted: a Pod that Kubernetes gave up with its node stays Terminating for as long as the node is away; that must be said.
func TestEvicted(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "prod-db-1-0"}, Spec: corev1.PodSpec{NodeName: "node2"}}
	pod.DeletionTimestamp = new(metav1.NewTime(given.Now))
	assert.Nil(t, podFacts(pod, &appsv1.StatefulSet{}).Problem, "it is deleted on purpose")

	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager"}}
	problem := podFacts(pod, &appsv1.StatefulSet{}).Problem
	require.NotNil(t, problem)
	assert.Equal(t, v1.ReasonAgentUnreachable, problem.Reason)
	assert.Contains(t, problem.Message, "node2")
}
