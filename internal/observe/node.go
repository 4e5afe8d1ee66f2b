package observe

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// nodeTrouble is for how long an agent may be silent, in a Pod that is not ready, before its node is asked for.
const nodeTrouble = 10 * time.Second

// askForNodes finds out what became of the nodes of instances that are in trouble, and of those that their volumes are bound to. It
// asks the API server, since a watch of all nodes would cost every cluster what only few ever need. What cannot be found out stays
// unknown.
func (r *Reader) askForNodes(ctx context.Context, f *facts.Cluster, objects Objects) {
	for n := range f.Instances {
		i := &f.Instances[n]
		if i.Pod == nil || !inTrouble(i) {
			continue
		}
		if i.Pod.Node != "" {
			i.Pod.NodeState = r.node(ctx, i.Pod.Node)
		}
		at := slices.IndexFunc(f.Volumes, func(v facts.Volume) bool { return v.Instance == i.Name })
		claim, ok := get[*corev1.PersistentVolumeClaim](objects, "PersistentVolumeClaim", naming.DataVolume(i.Name))
		if at < 0 || !ok || claim.Spec.VolumeName == "" {
			continue
		}
		if host := r.boundTo(ctx, claim.Spec.VolumeName); host != "" {
			f.Volumes[at].Node = r.nodeOfHost(ctx, host, i.Pod.NodeState)
		}
	}
}

// inTrouble says whether the instance's node may be lost: its Pod is not ready, and finds no node, is given up or is not heard.
func inTrouble(i *facts.Instance) bool {
	if i.Pod.Ready {
		return false
	}
	unplaced := i.Pod.Problem != nil && (i.Pod.Problem.Reason == v1.ReasonUnschedulable || i.Pod.Problem.Reason == v1.ReasonAgentUnreachable)
	_, heard := i.Report.Get()
	return unplaced || i.Pod.Node != "" && !heard && (i.Pod.Deleting || i.UnheardFor > nodeTrouble)
}

// node is what is known of the node of that name.
func (r *Reader) node(ctx context.Context, name string) facts.Known[facts.NodeState] {
	node := &corev1.Node{}
	err := r.API.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return facts.Know(facts.NodeState{Name: name, Gone: true})
	case err != nil:
		log.FromContext(ctx).Error(err, "Reading a node", "node", name)
		return facts.Known[facts.NodeState]{}
	default:
		return facts.Know(nodeState(node))
	}
}

func nodeState(node *corev1.Node) facts.NodeState {
	state := facts.NodeState{Name: node.Name}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			state.NotReadySince = condition.LastTransitionTime.Time
		}
	}
	return state
}

// boundTo is the one host from which the volume can be reached; empty if it is not bound to one, or that is not known.
func (r *Reader) boundTo(ctx context.Context, volume string) string {
	pv := &corev1.PersistentVolume{}
	if err := r.API.Get(ctx, client.ObjectKey{Name: volume}, pv); err != nil {
		if !apierrors.IsNotFound(err) {
			log.FromContext(ctx).Error(err, "Reading a volume", "volume", volume)
		}
		return ""
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, e := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

// nodeOfHost is what is known of the node with that host name, which need not be its own name.
func (r *Reader) nodeOfHost(ctx context.Context, host string, pods facts.Known[facts.NodeState]) facts.Known[facts.NodeState] {
	if state, known := pods.Get(); known && state.Name == host {
		return pods
	}
	list := &corev1.NodeList{}
	if err := r.API.List(ctx, list, client.MatchingLabels{corev1.LabelHostname: host}); err != nil {
		log.FromContext(ctx).Error(err, "Looking for a node", "host", host)
		return facts.Known[facts.NodeState]{}
	}
	if len(list.Items) == 0 {
		return facts.Know(facts.NodeState{Name: host, Gone: true})
	}
	return facts.Know(nodeState(&list.Items[0]))
}
