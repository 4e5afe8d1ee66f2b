package plan

import (
	"fmt"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// nodeLost makes a standby anew whose node is lost. Its Pod is only let go without the kubelet's word if the node is deleted, or if
// the Pod's volume stays behind with the node: then no second server can come upon the same data. Its volume is replaced only if it is
// bound to the node. Never the primary's, and only while another instance is known to be primary and serves.
func nodeLost(f *facts.Cluster) (Decision, bool) {
	primary, known := f.Primary()
	if !known || !primary.Ready() || primary.Deleting {
		return Decision{}, false
	}
	for _, i := range f.Instances {
		if i.Name == f.Holder || i.Deleting || i.Pod == nil || i.Pod.Ready {
			continue
		}
		if report, heard := i.Report.Get(); heard && (report.Role == "primary" || report.Streaming) {
			continue // it lives, whatever is said of its node
		}
		d := Decision{Members: members(f), Reason: v1.ReasonReplacingInstance, Recheck: settleRecheck}
		volume, exists := f.Volume(i.Name)
		node, bound := volume.Node.Get()
		if exists && volume.Bound && bound && node.Lost(f.Now, f.NodeLostAfter) {
			if volume.Deleting && i.Pod.Node == "" {
				continue // it is on its way
			}
			d.Action = ReplaceInstance{Instance: i.Name, PodUID: i.Pod.UID}
			d.Message = fmt.Sprintf("Making %s anew with an empty volume, to be copied from %s: PersistentVolumeClaim %s is bound to node %s, which %s",
				i.Name, f.Holder, naming.DataVolume(i.Name), node.Name, nodeWords(f, node))
			return d, true
		}
		if node, asked := i.Pod.NodeState.Get(); asked && node.Gone && i.Pod.Node != "" {
			d.Action = ForgetPod{Instance: i.Name, PodUID: i.Pod.UID}
			d.Message = fmt.Sprintf("Letting Pod %s go, whose node %s was deleted", i.Pod.Name, node.Name)
			return d, true
		}
	}
	return Decision{}, false
}

func nodeWords(f *facts.Cluster, n facts.NodeState) string {
	if n.Gone {
		return "was deleted"
	}
	return fmt.Sprintf("has not been ready for more than %s", f.NodeLostAfter)
}
