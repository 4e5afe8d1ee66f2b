package build

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// refreshAgain is how long the kubelet may take to refresh a Pod's files before it is asked again: when the annotation changed it
// may not have seen the new ConfigMap yet.
const refreshAgain = 3 * time.Second

// Pods are what is to be applied to the Pods that exist, beside what their StatefulSets gave them: the hash that makes the
// kubelet refresh mounted files, and the role label as the Lease has it. Pods that have both are left out.
func Pods(in Input, f facts.Cluster) []Object {
	var pods []Object
	hash, isClear := configHash(in), primaryIsClear(f)
	for _, i := range f.Instances {
		if i.Pod == nil || i.Pod.Deleting {
			continue
		}
		role, refresh := roleLabel(i, f.Holder, isClear), !in.Unwritten && mustRefresh(i, hash, f.Now)
		if f.Aside(i) && isClear {
			role = "" // what is not of the live generation is in no Service
		}
		if !refresh && i.Pod.Role == role {
			continue
		}
		pod := coreac.Pod(i.Pod.Name, f.Namespace).WithUID(types.UID(i.Pod.UID))
		if annotations := refreshAnnotations(i.Pod, hash, refresh, f.Now); len(annotations) > 0 {
			pod.WithAnnotations(annotations)
		}
		if role != "" {
			pod.WithLabels(map[string]string{naming.LabelRole: role})
		}
		pods = append(pods, pod)
	}
	return append(pods, hostPod(in, f)...)
}

// hostPod is what is to be applied to the repository host's Pod.
func hostPod(in Input, f facts.Cluster) []Object {
	if f.Backup == nil || f.Backup.Host == nil || f.Backup.Host.Deleting || in.Unwritten {
		return nil
	}
	host, hash := f.Backup.Host, hostHash(in)
	if !mustRefresh(facts.Instance{Pod: host, Report: f.Backup.HostReport}, hash, f.Now) {
		return nil
	}
	return []Object{coreac.Pod(host.Name, f.Namespace).WithUID(types.UID(host.UID)).WithAnnotations(refreshAnnotations(host, hash, true, f.Now))}
}

// mustRefresh says whether the kubelet is to be asked to refresh the Pod's files: because they have changed, or because the agent
// still sees the old ones. A new Pod, whose files are new, needs nothing.
func mustRefresh(i facts.Instance, hash string, now time.Time) bool {
	report, _ := i.Report.Get()
	if i.Pod.ConfigHash != hash {
		return i.Pod.ConfigHash != "" || report.FilesHash != hash
	}
	return report.FilesHash != "" && report.FilesHash != hash && now.Sub(i.Pod.RefreshedAt) >= refreshAgain
}

// refreshAnnotations are the new ones, or those that the Pod has: what is not applied again would be removed.
func refreshAnnotations(pod *facts.Pod, hash string, refresh bool, now time.Time) map[string]string {
	annotations := map[string]string{}
	at := pod.RefreshedAt
	if refresh {
		at = now
	} else {
		hash = pod.ConfigHash
	}
	if hash != "" {
		annotations[naming.AnnotationConfigHash] = hash
	}
	if !at.IsZero() {
		annotations[naming.AnnotationRefreshedAt] = at.UTC().Format(time.RFC3339)
	}
	return annotations
}

// primaryIsClear says whether it is clear who is primary: the holder of the Lease says that it is, and does not hand over. One that does has
// labelled the next primary's Pod before that is one.
func primaryIsClear(f facts.Cluster) bool {
	holder, ok := f.Instance(f.Holder)
	report, known := holder.Report.Get()
	if !ok || !known || report.Role != agentapi.RolePrimary || report.State == agentapi.StateStopping {
		return false
	}
	moving := report.Upgrade != nil && report.Upgrade.Switchover != nil && report.Upgrade.Switchover.Ended == nil
	return holder.Pod != nil && !holder.Pod.Deleting && !moving && (report.Switchover == nil || report.Switchover.Ended != nil)
}

// roleLabel is what the Lease says; while it is not clear who is primary, or the agent is not heard to have taken that role, the label
// stays.
func roleLabel(i facts.Instance, holder string, isClear bool) string {
	report, known := i.Report.Get()
	switch {
	case !isClear || !known || report.Role == "":
		return i.Pod.Role
	case i.Name == holder && string(report.Role) == naming.RolePrimary:
		return naming.RolePrimary
	case i.Name != holder && string(report.Role) == naming.RoleStandby:
		return naming.RoleStandby
	default:
		return i.Pod.Role
	}
}

// Ref names an object.
type Ref struct{ Kind, Name string }

// Unwanted are objects that the cluster must not have in its present shape.
func Unwanted(in Input) []Ref {
	if disruptionBudget(in) == nil {
		return []Ref{{Kind: "PodDisruptionBudget", Name: naming.DisruptionBudget(in.Cluster.Name)}}
	}
	return nil
}
