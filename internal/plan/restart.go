package plan

import (
	"fmt"
	"slices"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
)

// replaceVolume mends a volume claim that asks for what cannot be had: it is immutable while unbound, and has no data.
func replaceVolume(f *facts.Cluster) (Decision, bool) {
	for _, v := range f.Volumes {
		if v.Bound || v.Deleting {
			continue
		}
		// a claim without a class gets the default one from Kubernetes itself, as soon as there is one
		classDiffers := v.Class != "" && f.Storage.Class != "" && v.Class != f.Storage.Class
		if !classDiffers && v.Bytes == f.Storage.Bytes {
			continue
		}
		return Decision{
			Members: members(f),
			Action:  ReplaceVolume{Instance: v.Instance},
			Reason:  v1.ReasonReplacingVolume,
			Message: fmt.Sprintf("Making the volume of %s anew, which was never bound, with the storage of the spec", v.Instance),
			Recheck: settleRecheck,
		}, true
	}
	return Decision{}, false
}

// restartBroken gives a Pod that does not work the present specification. A Pod that works is left alone.
func restartBroken(f *facts.Cluster) (Decision, bool) {
	for _, i := range f.Instances {
		if i.Pod == nil || i.Pod.Current || i.Pod.Deleting || i.Deleting || i.Pod.Ready || i.Ready() {
			continue
		}
		if !harmlessToRestart(i) {
			continue
		}
		return Decision{
			Members: members(f),
			Action:  RestartInstance{Instance: i.Name, PodUID: i.Pod.UID},
			Reason:  v1.ReasonRestartingInstance,
			Message: fmt.Sprintf("Starting %s anew, which does not work, with the changed specification", i.Name),
			Recheck: settleRecheck,
		}, true
	}
	return Decision{}, false
}

// harmlessToRestart says whether a Pod that is not ready is known to be stuck, rather than recovering or being seeded.
func harmlessToRestart(i facts.Instance) bool {
	if i.Pod.Problem != nil {
		return true
	}
	report, known := i.Report.Get()
	return known && report.Problem != nil && report.State == "Failed"
}

// restartRevoked makes a Pod anew whose token is rejected: it can neither hold nor watch the Lease. Those that do not serve at
// once; standbys that do one at a time, while all else serves. A primary whose lease runs out stops serving by itself.
func restartRevoked(f *facts.Cluster) (Decision, bool) {
	revoked := func(i facts.Instance) bool {
		report, known := i.Report.Get()
		return known && report.Problem != nil && report.Problem.Reason == v1.ReasonAccessRevoked && i.Pod != nil && !i.Pod.Deleting && !i.Deleting
	}
	at := slices.IndexFunc(f.Instances, func(i facts.Instance) bool { return revoked(i) && !i.Ready() })
	if at < 0 { // nor a primary that still serves: its token may be good again in a moment
		primary, _ := f.Instance(f.Holder)
		resting := slices.ContainsFunc(f.Instances, func(i facts.Instance) bool { return !revoked(i) && !i.Ready() })
		at = slices.IndexFunc(f.Instances, func(i facts.Instance) bool { return revoked(i) && i.Name != f.Holder })
		if at < 0 || resting || !primary.Ready() {
			return Decision{}, false
		}
	}
	chosen := f.Instances[at]
	return Decision{
		Members: members(f),
		Action:  RestartInstance{Instance: chosen.Name, PodUID: chosen.Pod.UID},
		Reason:  v1.ReasonRestartingInstance,
		Message: fmt.Sprintf("Starting %s anew, whose access to the API server was revoked", chosen.Name),
		Recheck: settleRecheck,
	}, true
}
