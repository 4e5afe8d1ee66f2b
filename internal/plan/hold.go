package plan

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// deletion makes a last backup, if one is wanted, and removes a cluster's instances, so that PostgreSQL stops in order, then the rest, then lets it go.
func deletion(f *facts.Cluster) (Decision, bool) {
	if !f.Deleting {
		return Decision{}, false
	}
	d := Decision{Reason: v1.ReasonDeleting, Recheck: settleRecheck}
	pods := slices.Clone(f.OrphanPods)
	starting := false
	for _, i := range f.Instances {
		starting = starting || !i.Deleting
		if i.Pod != nil {
			pods = append(pods, i.Pod.Name)
		} else {
			pods = append(pods, i.Name)
		}
	}
	if last, wanted := finalBackup(f, d); wanted && !f.ForceDelete {
		return last, true
	}
	switch {
	case f.ForceDelete:
		d.Action, d.Message = Release{}, "Letting the cluster go, as the annotation says; the garbage collector removes what is left"
		return d, true
	case starting:
		d.Action, d.Message = RemoveInstances{}, "Stopping the instances"
	case len(pods) > 0:
		d.Message = "Waiting for the instances to stop: " + strings.Join(pods, ", ")
	case len(f.Leftovers) > 0:
		d.Action = RemoveRest{DeleteVolumes: !f.KeepVolumes, DeleteBackups: f.DeleteBackups}
		d.Message = "Removing " + strings.Join(f.Leftovers, ", ")
	default:
		d.Action, d.Message = Release{}, "Everything is removed"
	}
	if _, released := d.Action.(Release); !released && f.Now.Sub(f.DeletedAt) > deletionPatience {
		d.Reason = v1.ReasonDeletionBlocked
		d.Message += fmt.Sprintf(" for more than %s. To let the cluster go without waiting, set its annotation %s=true", deletionPatience, naming.AnnotationForceDelete)
	}
	return d, true
}

// pause leaves the cluster alone.
func pause(f *facts.Cluster) (Decision, bool) {
	if !f.Paused {
		return Decision{}, false
	}
	return Decision{
		Members: existing(f),
		Frozen:  true,
		Reason:  v1.ReasonPaused,
		Message: fmt.Sprintf("Nothing is changed while the annotation %s is true", naming.AnnotationPaused),
	}, true
}

// access gets the operator the right to the cluster's Secrets. What is in them is not known before, so nothing else is written.
func access(f *facts.Cluster) (Decision, bool) {
	if f.SecretsUnknownFor == 0 {
		return Decision{}, false
	}
	return Decision{
		Members:    existing(f),
		AccessOnly: true,
		Quiet:      f.SecretsUnknownFor < accessPatience,
		Reason:     v1.ReasonNoSecretAccess,
		Message: fmt.Sprintf("The operator cannot read the Secrets of namespace %s: does RoleBinding %s stand, and ClusterRole %s?",
			f.Namespace, naming.OperatorBinding(f.Name), naming.SecretsRole),
		Recheck: accessPatience,
	}, true
}

// suspend stops all instances. The Lease keeps its holder, who starts again as primary.
func suspend(f *facts.Cluster) (Decision, bool) {
	if !f.Suspend {
		return Decision{}, false
	}
	d := Decision{Members: members(f), Stopped: true, Reason: v1.ReasonSuspended, Message: "All instances are stopped, as spec.suspend says"}
	var running []string
	for _, i := range f.Instances {
		if i.Pod != nil {
			running = append(running, i.Name)
		}
	}
	if len(running) > 0 {
		d.Message, d.Recheck = "Stopping "+strings.Join(running, ", ")+", as spec.suspend says", settleRecheck
	}
	return d, true
}
