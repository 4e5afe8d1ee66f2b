package plan

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// settle waits for what is not ready.
func settle(f *facts.Cluster) (Decision, bool) {
	all, refused := roster(f)
	d := Decision{Members: all, Recheck: settleRecheck}
	if len(refused) > 0 && len(all) < f.Replicas {
		d.Reason, d.Message = v1.ReasonCreatingInstances, fmt.Sprintf("Not yet %s: %s", refused[0].What, refused[0].Why)
		return d, true
	}
	if f.Holder == "" {
		d.Reason, d.Message = v1.ReasonWaitingForPrimary, "Waiting for an instance to become primary"
		return d, true
	}
	if primary, ok := f.Instance(f.Holder); !ok || !primary.Ready() {
		d.Reason, d.Message = v1.ReasonPrimaryNotReady, fmt.Sprintf("Waiting for the primary %s", f.Holder)
		return d, true
	}
	var waiting []string
	for _, i := range f.Instances {
		// Ready in the kubelet's eyes is not enough for a new instance: nobody knows yet what it is.
		if i.Deleting || !i.Ready() || i.NeverHeard {
			waiting = append(waiting, i.Name)
		}
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
