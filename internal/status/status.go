package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

const (
	// unheardGrace is for how long an agent may be silent before that is a problem of its own.
	unheardGrace = 30 * time.Second
	// notServingGrace is for how long a cluster may have no serving primary before its phase is Failed although no problem is
	// known.
	notServingGrace = time.Minute
	// maxMessage bounds a condition's message (the API allows 32768).
	maxMessage = 1024
)

// Input is what a status is computed from.
type Input struct {
	Facts    facts.Cluster
	Decision plan.Decision
	// Problems are those of this pass beside the facts': what the API server refused.
	Problems []facts.Problem
	Previous v1.PostgresClusterStatus
}

// Compute returns the new status.
func Compute(in Input) v1.PostgresClusterStatus {
	f := &in.Facts
	s := v1.PostgresClusterStatus{
		ObservedGeneration: f.Generation,
		Version:            in.Previous.Version,
		CurrentPrimary:     f.Holder,
		Replicas:           int32(len(f.Instances)), //nolint:gosec // at most a few dozen
		Selector:           selector(f.Name),
		Timeline:           in.Previous.Timeline,
		Switchover:         in.Previous.Switchover,
		Upgrade:            in.Previous.Upgrade,
		Recovery:           in.Previous.Recovery,
		Conditions:         slices.Clone(in.Previous.Conditions),
	}
	if !f.OnlyRemembered {
		s.SystemIdentifier = f.SystemIdentifier
	}
	if in.Decision.UpgradeStatus != nil {
		s.Upgrade = in.Decision.UpgradeStatus
	}
	if in.Decision.Recovery != nil {
		s.Recovery = in.Decision.Recovery
	}
	if in.Decision.Switchover != nil {
		s.Switchover = in.Decision.Switchover
	}
	if f.Holder != "" {
		s.PrimaryHost = naming.ServiceHost(naming.ServiceRW(f.Name), f.Namespace)
	}
	for _, i := range f.Instances {
		instance := instanceStatus(i, in.Previous)
		instance.Ready = instance.Ready || f.ReadyAside(i)
		s.Instances = append(s.Instances, instance)
		if instance.Ready {
			s.ReadyReplicas++
		}
		switch {
		case i.Name == f.Holder:
			s.Version = cmp.Or(serving(i, instance.Version), s.Version)
			s.Timeline = max(instance.Timeline, s.Timeline)
		case instance.Role == v1.RoleStandby:
			s.ReplicaHosts = append(s.ReplicaHosts, naming.InstanceHost(f.Name, f.Namespace, i.Name))
		}
	}
	confirming(f, s.Instances)
	backups(in, &s)
	conditions(in, &s)
	s.Phase = phase(in, &s)
	return s
}

// serving is the server's version, if it runs: an image of a wrong major says nothing about the cluster.
func serving(i facts.Instance, version string) string {
	if report, known := i.Report.Get(); known && report.State == agentapi.StateFailed {
		return ""
	}
	return version
}

// confirming marks the standbys that can confirm commits, as the primary sees them.
func confirming(f *facts.Cluster, instances []v1.InstanceStatus) {
	primary, known := f.Primary()
	if !known {
		return
	}
	report, _ := primary.Report.Get()
	for n := range instances {
		instances[n].Synchronous = slices.Contains(report.SyncStandbys, instances[n].Name)
	}
}

// conditions sets Ready, Progressing, Degraded and Paused.
func conditions(in Input, s *v1.PostgresClusterStatus) {
	found := problems(in)
	all := []metav1.Condition{ready(in, found), progressing(in), degraded(found), paused(in)}
	if in.Decision.Preflight != nil {
		all = append(all, *in.Decision.Preflight)
	}
	for _, c := range all {
		c.ObservedGeneration = in.Facts.Generation
		c.LastTransitionTime = metav1.NewTime(in.Facts.Now)
		apimeta.SetStatusCondition(&s.Conditions, c)
	}
}

// ready is true if nothing is left to do and nothing was refused in this pass. While the cluster is paused, that it serves will do.
func ready(in Input, found []facts.Problem) metav1.Condition {
	d := &in.Decision
	c := metav1.Condition{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: d.Reason, Message: d.Message}
	switch {
	case len(in.Problems) == 0 && d.Rule != "done" && (upgrades(in) || d.Rule == "recovery") && in.Facts.Serves() && len(found) == 0:
		c.Status, c.Reason = metav1.ConditionTrue, v1.ReasonReady // it serves all the time
	case len(in.Problems) == 0 && (d.Rule == "done" || d.Frozen && in.Facts.Serves()):
		c.Status, c.Reason = metav1.ConditionTrue, v1.ReasonReady
		c.Message = strings.Join(append([]string{c.Message}, in.Facts.Notes...), "; ")
	case len(found) > 0:
		c.Reason, c.Message = found[0].Reason, joinMessages(found)
	}
	return c
}

// upgrades says whether the decision is about a major upgrade.
func upgrades(in Input) bool {
	return in.Decision.Rule == "upgrade" || in.Decision.Rule == "upgrade-waits"
}

// progressing is true while something is changed or waited for: that is, as long as the pass wants to look again.
func progressing(in Input) metav1.Condition {
	d := &in.Decision
	c := metav1.Condition{Type: v1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: d.Reason, Message: d.Message}
	if d.Recheck == 0 {
		c.Status = metav1.ConditionFalse
	}
	return c
}

func degraded(found []facts.Problem) metav1.Condition {
	c := metav1.Condition{Type: v1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: v1.ReasonHealthy, Message: "No problem is known"}
	if len(found) > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, found[0].Reason, joinMessages(found)
	}
	return c
}

func paused(in Input) metav1.Condition {
	if in.Decision.Frozen {
		return metav1.Condition{Type: v1.ConditionPaused, Status: metav1.ConditionTrue, Reason: v1.ReasonPaused, Message: in.Decision.Message}
	}
	return metav1.Condition{
		Type: v1.ConditionPaused, Status: metav1.ConditionFalse, Reason: v1.ReasonNotPaused,
		Message: "The annotation " + naming.AnnotationPaused + " is not set",
	}
}

// phase is one word for it all.
func phase(in Input, s *v1.PostgresClusterStatus) v1.Phase {
	f := &in.Facts
	ready := apimeta.FindStatusCondition(s.Conditions, v1.ConditionReady)
	primary, exists := f.Instance(f.Holder)
	serves := exists && primary.Ready()
	creating := in.Previous.Phase == "" || in.Previous.Phase == v1.PhaseCreating || s.Version == ""
	switch {
	case f.Deleting:
		return v1.PhaseDeleting
	case in.Decision.Stopped:
		return v1.PhaseSuspended
	case in.Decision.Rule == "upgrade" && s.Upgrade != nil && s.Upgrade.Phase == v1.UpgradeSwitchingOver: // in place it takes minutes
		return v1.PhaseUpgrading
	case serves && (in.Decision.Rule == "upgrade" || s.Upgrade != nil && s.Upgrade.Surge):
		return v1.PhaseUpgrading
	case ready.Status == metav1.ConditionTrue:
		return v1.PhaseRunning
	case !serves && apimeta.IsStatusConditionTrue(s.Conditions, v1.ConditionDegraded):
		return v1.PhaseFailed
	case creating:
		return v1.PhaseCreating
	case !serves && f.Now.Sub(ready.LastTransitionTime.Time) > notServingGrace:
		return v1.PhaseFailed
	default:
		return v1.PhaseRunning
	}
}

// problems are all that is known to be wrong, the most fundamental first. Instances with the same trouble are told together.
func problems(in Input) []facts.Problem {
	f := &in.Facts
	all := slices.Concat(in.Problems, f.Problems)
	if in.Decision.AccessOnly || in.Decision.Reason == v1.ReasonDeletionBlocked || in.Decision.Reason == v1.ReasonFinalBackupFailed {
		all = append(all, facts.Problem{Reason: in.Decision.Reason, Message: in.Decision.Message})
	}
	if !f.Deleting {
		all = append(all, volumesGoing(f)...)
	}
	for _, r := range in.Decision.Refused {
		if r.Reason != "" {
			all = append(all, facts.Problem{Reason: r.Reason, Message: r.Why})
		}
	}
	all = append(all, backupProblems(f)...)
	var reasons []string
	first, others := map[string]facts.Problem{}, map[string][]string{}
	for _, i := range f.Instances {
		p := instanceProblem(i)
		if p == nil {
			continue
		}
		if _, told := first[p.Reason]; told {
			others[p.Reason] = append(others[p.Reason], i.Name)
			continue
		}
		reasons = append(reasons, p.Reason)
		first[p.Reason] = *p
	}
	for _, reason := range reasons {
		p := first[reason]
		if names := others[reason]; len(names) > 0 {
			p.Message += " (likewise " + strings.Join(names, ", ") + ")"
		}
		all = append(all, p)
	}
	return all
}

// volumesGoing are volumes in use that somebody deletes: they stay until their Pod ends, and then the data is gone.
func volumesGoing(f *facts.Cluster) []facts.Problem {
	var all []facts.Problem
	for _, v := range f.Volumes {
		if i, exists := f.Instance(v.Instance); exists && !i.Deleting && v.Deleting {
			all = append(all, facts.Problem{Reason: v1.ReasonVolumeLost, Message: fmt.Sprintf(
				"PersistentVolumeClaim %s was deleted while %s uses it: its data goes when the Pod ends. If this was a mistake, copy the data before",
				naming.DataVolume(v.Instance), v.Instance)})
		}
	}
	return all
}

// instanceProblem is what is wrong with the instance; that its agent is silent is a problem only if nothing else is known.
func instanceProblem(i facts.Instance) *facts.Problem {
	if p := i.Problem(); p != nil {
		told := *p
		if strings.Contains(told.Message, "No space left on device") {
			told.Message += ". The volume is full: raise spec.storage.size"
		}
		return &told
	}
	if i.UnheardFor <= unheardGrace || i.Pod == nil || i.Pod.Deleting || !i.Pod.Running {
		return nil
	}
	return &facts.Problem{
		Reason:  v1.ReasonAgentUnreachable,
		Message: fmt.Sprintf("The agent of %s does not answer the operator (port %d of Pod %s): its node may be down, or a NetworkPolicy in between", i.Name, naming.PortAgent, i.Pod.Name),
	}
}

// joinMessages is one message for all problems.
func joinMessages(all []facts.Problem) string {
	var messages []string
	for _, p := range all {
		if !slices.Contains(messages, p.Message) {
			messages = append(messages, p.Message)
		}
	}
	text := strings.Join(messages, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + " …"
	}
	return text
}

// instanceStatus is one instance. What an agent that is not heard said before stays, but for its state.
func instanceStatus(i facts.Instance, previous v1.PostgresClusterStatus) v1.InstanceStatus {
	s := v1.InstanceStatus{Name: i.Name, State: "Pending", Ready: i.Ready()}
	if p := i.Problem(); p != nil {
		s.Message = strings.ToValidUTF8(p.Message[:min(len(p.Message), maxMessage)], "")
	}
	if i.Pod == nil {
		return s
	}
	s.Node = i.Pod.Node
	before := slices.IndexFunc(previous.Instances, func(p v1.InstanceStatus) bool { return p.Name == i.Name })
	report, known := i.Report.Get()
	switch {
	case known:
		s.Role = v1.Role(report.Role)
		s.State = string(report.State)
		s.Version = report.ServerVersion
		s.Timeline = report.Timeline
		s.LSN = report.LSN
		s.LagBytes = report.LagBytes
		s.PendingRestart = report.PendingRestart
	case before >= 0 && i.Pod.Node != "":
		last := previous.Instances[before]
		s.Role, s.Version, s.Timeline, s.LSN, s.LagBytes = last.Role, last.Version, last.Timeline, last.LSN, last.LagBytes
		s.PendingRestart, s.State = last.PendingRestart, last.State
		if last.State != "Pending" && (i.UnheardFor > unheardGrace || !i.Pod.Ready) {
			s.State = "Unknown"
		}
	}
	return s
}

// selector is the scale subresource's: that of the instances' Pods.
func selector(cluster string) string {
	return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: naming.ClusterSelector(cluster)})
}
