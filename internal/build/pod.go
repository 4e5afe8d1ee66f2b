package build

import (
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Pods are what is to be applied to the Pods that exist, beside what their StatefulSets gave them: the hash that makes the
// kubelet refresh mounted files, and the role label as the Lease has it. Pods that have both are left out.
func Pods(in Input, f facts.Cluster) []Object {
	var pods []Object
	hash := configHash(in)
	for _, i := range f.Instances {
		if i.Pod == nil || i.Pod.Deleting {
			continue
		}
		role := roleLabel(i, f.Holder)
		if i.Pod.ConfigHash == hash && i.Pod.Role == role {
			continue
		}
		pod := coreac.Pod(i.Pod.Name, f.Namespace).
			WithUID(types.UID(i.Pod.UID)).
			WithAnnotations(map[string]string{naming.AnnotationConfigHash: hash})
		if role != "" {
			pod.WithLabels(map[string]string{naming.LabelRole: role})
		}
		pods = append(pods, pod)
	}
	return pods
}

// roleLabel is what the Lease says; while nobody holds it, or the agent is not heard to have taken that role, the label stays.
func roleLabel(i facts.Instance, holder string) string {
	report, known := i.Report.Get()
	switch {
	case holder == "" || !known || report.Role == "":
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
