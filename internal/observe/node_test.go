package observe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pgsteward/pgsteward/internal/facts"
)

// node that is ready, or not since a minute ago.
func node(name, host string, ready bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: host}}}
	condition := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}
	if !ready {
		condition.Status = corev1.ConditionUnknown
	}
	n.Status.Conditions = []corev1.NodeCondition{condition}
	return n
}

// volumeOn is a volume that can be reached from that host only.
func volumeOn(name, host string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if host != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
		}}}}
	}
	return v
}

// TestNodes: the nodes of an instance in trouble, and of its volume, are asked for; nobody else's are.
func TestNodes(t *testing.T) {
	t.Parallel()
	const terminating, unschedulable, well = `
		spec: {nodeName: n1}
		status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "False"}, {type: DisruptionTarget, status: "True", reason: DeletionByTaintManager}]}
	`, `
		status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes"}]}
	`, `
		spec: {nodeName: n1}
		status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: "True"}]}
	`
	observed := func(t *testing.T, podStatus string, deleting bool, fail string, objects ...*corev1.Node) facts.Cluster {
		p := pod(t, "prod-db-1-0", podStatus)
		if deleting {
			p.DeletionTimestamp, p.Finalizers = new(metav1.NewTime(now)), []string{"example.org/x"}
		}
		claim := parse(t, &corev1.PersistentVolumeClaim{}, `
			metadata: {name: prod-db-1-data, labels: {pgsteward.io/instance: prod-db-1}}
			spec: {volumeName: pv-1}
		`)
		w := newWorld(t, statefulSet(t, "prod-db-1"), p, claim, volumeOn("pv-1", "host-1"))
		for _, n := range objects {
			assert.NoError(t, w.c.Create(t.Context(), n))
		}
		w.c.FailReads(func(read string) error {
			if fail != "" && strings.Contains(read, fail) {
				return errors.New("out")
			}
			return nil
		})
		return w.observe().Facts
	}
	since := metav1.NewTime(now.Add(-time.Minute)).Local()
	t.Run("the node is out, and the volume with it", func(t *testing.T) {
		t.Parallel()
		f := observed(t, terminating, true, "", node("n1", "host-1", false))
		assert.Equal(t, facts.Know(facts.NodeState{Name: "n1", NotReadySince: since}), f.Instances[0].Pod.NodeState)
		assert.Equal(t, facts.Know(facts.NodeState{Name: "n1", NotReadySince: since}), f.Volumes[0].Node)
	})
	t.Run("the node is gone", func(t *testing.T) {
		t.Parallel()
		f := observed(t, terminating, true, "")
		assert.Equal(t, facts.Know(facts.NodeState{Name: "n1", Gone: true}), f.Instances[0].Pod.NodeState)
		assert.Equal(t, facts.Know(facts.NodeState{Name: "host-1", Gone: true}), f.Volumes[0].Node)
	})
	t.Run("the Pod finds no node, since its volume's is gone", func(t *testing.T) {
		t.Parallel()
		f := observed(t, unschedulable, false, "", node("n2", "host-2", true))
		assert.Equal(t, facts.Known[facts.NodeState]{}, f.Instances[0].Pod.NodeState)
		assert.Equal(t, facts.Know(facts.NodeState{Name: "host-1", Gone: true}), f.Volumes[0].Node)
	})
	t.Run("nobody asks while all is well", func(t *testing.T) {
		t.Parallel()
		f := observed(t, well, false, "Node")
		assert.Equal(t, facts.Known[facts.NodeState]{}, f.Instances[0].Pod.NodeState)
		assert.Equal(t, facts.Known[facts.NodeState]{}, f.Volumes[0].Node)
	})
	t.Run("what cannot be asked for is not known", func(t *testing.T) {
		t.Parallel()
		f := observed(t, terminating, true, "Node")
		assert.Equal(t, facts.Known[facts.NodeState]{}, f.Instances[0].Pod.NodeState)
		assert.Equal(t, facts.Known[facts.NodeState]{}, f.Volumes[0].Node)
	})
}
