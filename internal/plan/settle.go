package plan

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// settle waits for what is not ready.
func settle(f *facts.Cluster) (Decision, bool) {
	all, refused := roster(f)
	d := Decision{Members: all, Recheck: settleRecheck}
	if len(refused) > 0 && len(all) < f.Replicas {
		d.Reason, d.Message = v1.ReasonCreatingInstances, fmt.Sprintf("Not yet %s: %s", refused[0].What, refused[0].Why)
		return d, true
	}
	if lost := failingOver(f); lost != "" {
		d.Reason, d.Message = v1.ReasonFailingOver, lost
		return d, true
	}
	if f.Holder == "" {
		d.Reason, d.Message = v1.ReasonWaitingForPrimary, "Waiting for an instance to become primary"
		return d, true
	}
	if primary, ok := f.Instance(f.Holder); !ok || !primary.Ready() {
		if f.IsFenced(f.Holder) {
			d.Reason, d.Message = v1.ReasonFenced, fmt.Sprintf("The primary %s is fenced, as the annotation %s says: nothing takes writes", f.Holder, naming.AnnotationFenced)
			return d, true
		}
		d.Reason, d.Message = v1.ReasonPrimaryNotReady, fmt.Sprintf("Waiting for the primary %s", f.Holder)
		return d, true
	}
	var waiting, fenced []string
	for _, i := range f.Instances {
		// Ready in the kubelet's eyes is not enough for a new instance: nobody knows yet what it is.
		if i.Deleting || !i.Ready() || i.NeverHeard {
			waiting = append(waiting, i.Name)
			if f.IsFenced(i.Name) {
				fenced = append(fenced, i.Name)
			}
		}
	}
	if len(waiting) > 0 && len(waiting) == len(fenced) {
		d.Reason, d.Message = v1.ReasonFenced, fmt.Sprintf("%s fenced, as the annotation %s says", strings.Join(fenced, ", ")+isAre(len(fenced)), naming.AnnotationFenced)
		return d, true
	}
	if len(waiting) > 0 {
		d.Reason, d.Message = v1.ReasonInstancesNotReady, "Waiting for "+strings.Join(waiting, ", ")
		return d, true
	}
	if late := unconfigured(f); len(late) > 0 {
		d.Recheck = refreshRecheck
		d.Reason, d.Message = v1.ReasonConfiguringInstances, "Waiting for the newest configuration to be in force on "+strings.Join(late, ", ")
		return d, true
	}
	return Decision{}, false
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// failingOver says which primary is lost while there is a standby that may take over; empty: none is, as far as is known.
func failingOver(f *facts.Cluster) string {
	primary, exists := f.Instance(f.Holder)
	if f.SystemIdentifier == "" || exists && primary.Ready() || f.IsFenced(f.Holder) {
		return ""
	}
	standby := slices.ContainsFunc(f.Instances, func(i facts.Instance) bool {
		report, known := i.Report.Get()
		return i.Name != f.Holder && !i.Deleting && i.Ready() && !f.IsFenced(i.Name) && known && report.Role == "standby"
	})
	switch {
	case !standby:
		return ""
	case f.Holder == "":
		return "No instance holds the primary's lease: a standby is to take over"
	default:
		return fmt.Sprintf("The primary %s does not serve: it comes back at once, or a standby takes over", f.Holder)
	}
}

// unconfigured are the instances that say that they have an older configuration in force, without having refused the newest.
func unconfigured(f *facts.Cluster) []string {
	var late []string
	for _, i := range f.Instances {
		report, known := i.Report.Get()
		if known && report.ConfigGeneration < f.Generation && i.Problem() == nil {
			late = append(late, i.Name)
		}
	}
	return late
}

// done is the decision when there is nothing to do.
func done(f *facts.Cluster) (Decision, bool) {
	d := Decision{
		Members: members(f),
		Reason:  v1.ReasonReconciled,
		Message: allReady(f.Replicas),
	}
	if slices.ContainsFunc(f.Instances, facts.Instance.SeesOldFiles) {
		d.Reason, d.Recheck = v1.ReasonConfiguringInstances, refreshRecheck // Secrets or members changed: nothing that Ready is about
	}
	return d, true
}

func allReady(instances int) string {
	if instances == 1 {
		return "The instance is ready"
	}
	return fmt.Sprintf("All %d instances are ready", instances)
}
