package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// settleRecheck bounds how long a cluster that is not settled goes without another look, should an event be missed.
	settleRecheck = 30 * time.Second
	// refreshRecheck is when to see whether the kubelet has refreshed the instances' files.
	refreshRecheck = 3 * time.Second
	// accessPatience is how long it may take until Secrets can be read before it is a matter for the user.
	accessPatience = 15 * time.Second
	// deletionPatience is how long a deletion may take before it is said how to force it.
	deletionPatience = 2 * time.Minute
)

// rule is one named step of the decision; false: it does not apply.
type rule struct {
	name   string
	decide func(f *facts.Cluster) (Decision, bool)
}

// rules in the order of the package's documentation.
var rules = []rule{
	{"delete", deletion},
	{"pause", pause},
	{"access", access},
	{"suspend", suspend},
	{"replace-volume", replaceVolume},
	{"restart-broken", restartBroken},
	{"restart-revoked", restartRevoked},
	{"create", create},
	{"scale-in", scaleIn},
	{"settle", settle},
	{"done", done},
}

// Decide says what to do. It does not change what f refers to, and the order in which things are listed means nothing.
func Decide(f facts.Cluster) Decision {
	f.Instances = slices.SortedFunc(slices.Values(f.Instances), func(a, b facts.Instance) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	f.Volumes = slices.SortedFunc(slices.Values(f.Volumes), func(a, b facts.Volume) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	for _, r := range rules {
		if d, ok := r.decide(&f); ok {
			d.Rule = r.name
			if d.Action == nil {
				d.Action = None{}
			}
			if !f.Deleting {
				d.Bootstrap = bootstrap(&f, d.Members)
				_, refused := roster(&f)
				d.Refused = append(d.Refused, refused...)
			}
			return d
		}
	}
	panic("plan: the last rule always applies")
}

// deletion removes a cluster's instances first, so that PostgreSQL stops in order, then the rest, then lets it go.
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
	switch {
	case f.ForceDelete:
		d.Action, d.Message = Release{}, "Letting the cluster go, as the annotation says; the garbage collector removes what is left"
		return d, true
	case starting:
		d.Action, d.Message = RemoveInstances{}, "Stopping the instances"
	case len(pods) > 0:
		d.Message = "Waiting for the instances to stop: " + strings.Join(pods, ", ")
	case len(f.Leftovers) > 0:
		d.Action = RemoveRest{DeleteVolumes: !f.KeepVolumes}
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

// restartRevoked makes a Pod anew whose token is rejected: it can neither hold nor watch the Lease. Those that do not serve, as the
// primary soon will not, at once; the others one at a time, while all else serves.
func restartRevoked(f *facts.Cluster) (Decision, bool) {
	revoked := func(i facts.Instance) bool {
		report, known := i.Report.Get()
		return known && report.Problem != nil && report.Problem.Reason == v1.ReasonAccessRevoked && i.Pod != nil && !i.Pod.Deleting && !i.Deleting
	}
	at := slices.IndexFunc(f.Instances, func(i facts.Instance) bool { return revoked(i) && (i.Name == f.Holder || !i.Ready()) })
	if at < 0 {
		primary, _ := f.Instance(f.Holder)
		resting := slices.ContainsFunc(f.Instances, func(i facts.Instance) bool { return !revoked(i) && !i.Ready() })
		at = slices.IndexFunc(f.Instances, revoked)
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
		return i.Name, nil
	}
	return "", &Refusal{What: "removing an instance", Why: "no standby is left"}
}

// knownEmpty says whether the instance is known to have no data: its volume was never bound, or its agent says so.
func knownEmpty(f *facts.Cluster, i facts.Instance) bool {
	if volume, ok := f.Volume(i.Name); ok && !volume.Bound {
		return true
	}
	report, known := i.Report.Get()
	return known && report.DataKnown && !report.HasData
}

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
		if i.Deleting || !i.Ready() {
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

// existing are the members that have a StatefulSet which is not being deleted.
func existing(f *facts.Cluster) []Member {
	var have []Member
	for _, i := range f.Instances {
		if !i.Deleting {
			have = append(have, Member{Name: i.Name, Ordinal: i.Ordinal})
		}
	}
	return have
}

// members are the instances that shall exist.
func members(f *facts.Cluster) []Member {
	all, _ := roster(f)
	return all
}

// roster is the members, those that exist and, if they are too few, new ones: first those that have a volume already, the
// primary's before the standbys', which may lack its last transactions; then the lowest free numbers. An instance that is still
// being deleted keeps its number, and its place: it may be on its way back. A volume with somebody else's data keeps its place too,
// and is refused, since another number in its place would hide that.
func roster(f *facts.Cluster) ([]Member, []Refusal) {
	have := existing(f)
	var refused []Refusal
	wanted := f.Replicas - (len(f.Instances) - len(have))
	taken := map[int]bool{}
	for _, i := range f.Instances {
		taken[i.Ordinal] = true
	}
	var candidates []int
	for _, primary := range []bool{true, false} {
		for _, v := range f.Volumes {
			if !v.Deleting && v.WasPrimary == primary {
				candidates = append(candidates, v.Ordinal)
			}
		}
	}
	for n := 1; n <= naming.MaxOrdinal; n++ {
		candidates = append(candidates, n)
	}
	for _, n := range candidates {
		if len(have) >= wanted {
			break
		}
		if taken[n] {
			continue
		}
		taken[n] = true
		name := naming.Instance(f.Name, n)
		if v, ok := f.Volume(name); ok {
			if conflict := f.Conflict(v); conflict != nil {
				refused = append(refused, Refusal{Reason: conflict.Reason, What: "creating " + name, Why: conflict.Message})
				wanted--
				continue
			}
		}
		have = append(have, Member{Name: name, Ordinal: n})
	}
	slices.SortFunc(have, func(a, b Member) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return have, refused
}

// bootstrap is the member that may make a new PostgreSQL system: the first one, as long as the cluster is not known to have data.
func bootstrap(f *facts.Cluster, m []Member) string {
	if f.HasData() || len(m) == 0 {
		return ""
	}
	return m[0].Name
}
