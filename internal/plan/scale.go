package plan

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// create adds the missing members; all at once, since a new standby waits by itself for a primary to clone from.
func create(f *facts.Cluster) (Decision, bool) {
	have, all := existing(f), members(f)
	if len(have) == len(all) {
		return Decision{}, false
	}
	var names []string
	for _, m := range all {
		if !slices.Contains(have, m) {
			names = append(names, m.Name)
		}
	}
	return Decision{
		Members: all,
		Reason:  v1.ReasonCreatingInstances,
		Message: "Creating " + strings.Join(names, ", "),
		Recheck: settleRecheck,
	}, true
}

// scaleIn removes the standby with the highest number.
func scaleIn(f *facts.Cluster) (Decision, bool) {
	have := existing(f)
	if len(have) <= f.Replicas {
		return Decision{}, false
	}
	victim, refusal := removable(f)
	if refusal != nil {
		return Decision{
			Members: have,
			Reason:  v1.ReasonRemovingInstance,
			Message: fmt.Sprintf("Not yet %s: %s", refusal.What, refusal.Why),
			Refused: []Refusal{*refusal},
			Recheck: settleRecheck,
		}, true
	}
	return Decision{
		Members: slices.DeleteFunc(have, func(m Member) bool { return m.Name == victim }),
		Action:  RemoveInstance{Instance: victim, DeleteVolume: !f.KeepVolumes},
		Reason:  v1.ReasonRemovingInstance,
		Message: "Removing " + victim,
		Recheck: settleRecheck,
	}, true
}

// removable is the standby to remove, or why none can be removed now.
func removable(f *facts.Cluster) (string, *Refusal) {
	for _, i := range slices.Backward(f.Instances) {
		if i.Deleting {
			continue
		}
		if i.Name == f.Holder {
			continue
		}
		if knownEmpty(f, i) && i.Ordinal != f.Instances[0].Ordinal {
			return i.Name, nil // the first one may be making the cluster's data just now
		}
		what := "removing " + i.Name
		primary, ok := f.Primary()
		if !ok {
			return "", &Refusal{What: what, Why: "the primary is not known, so it might have the newest data"}
		}
		if primary.Deleting {
			return "", &Refusal{What: what, Why: "the primary " + primary.Name + " is being deleted, so a standby is needed"}
		}
		if !primary.Ready() {
			return "", &Refusal{What: what, Why: "the primary " + primary.Name + " does not serve, so a standby may be needed"}
		}
		if report, known := i.Report.Get(); known && report.Role == "primary" {
			return "", &Refusal{What: what, Why: "it says that it is primary, while " + f.Holder + " holds the lease"}
		}
		if why := needed(f, i); why != "" {
			return "", &Refusal{What: what, Why: why}
		}
		return i.Name, nil
	}
	return "", &Refusal{What: "removing an instance", Why: "no standby is left"}
}

// needed is why the standby is the one that has to stay for now: it could take over, and none of those that stay could. Empty: it is not.
func needed(f *facts.Cluster, victim facts.Instance) string {
	if f.Replicas < 2 || f.CannotTakeOver(victim) != "" {
		return ""
	}
	why := ""
	for _, i := range f.Instances {
		if i.Name == victim.Name || i.Name == f.Holder || i.Deleting {
			continue
		}
		cannot := f.CannotTakeOver(i)
		if cannot == "" {
			return ""
		}
		why = fmt.Sprintf("no other standby could take over yet: %s: %s", i.Name, cannot)
	}
	return why
}

// knownEmpty says whether the instance is known to have no data: its volume was never bound, or its agent says so.
func knownEmpty(f *facts.Cluster, i facts.Instance) bool {
	if volume, ok := f.Volume(i.Name); ok && !volume.Bound {
		return true
	}
	report, known := i.Report.Get()
	return known && report.DataKnown && !report.HasData
}
