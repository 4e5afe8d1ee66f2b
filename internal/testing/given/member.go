package given

import (
	"time"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// AgentDigest is that of every agent that is not an old one.
const AgentDigest = "0123456789abcdef"

// MemberBuilder makes one facts.Instance and its volume.
type MemberBuilder struct {
	ordinal  int
	instance facts.Instance
	noPod    bool
	pod      facts.Pod
	report   *agentapi.Status
	ready    bool
	aside    bool
	holds    bool
	noVolume bool
	volume   facts.Volume
}

// Member begins an instance whose Pod exists and whose agent has not been heard yet.
func Member(ordinal int) *MemberBuilder {
	return &MemberBuilder{
		ordinal: ordinal,
		pod:     facts.Pod{Current: true, Running: true, Node: "node-1", IP: "10.0.0.1"},
		volume:  facts.Volume{Bound: true, Bytes: GiB},
	}
}

// Primary holds the lease and says that it is primary.
func (b *MemberBuilder) Primary() *MemberBuilder {
	b.holds = true
	return b.SaysPrimary()
}

// SaysPrimary says that it is primary, whoever holds the lease.
func (b *MemberBuilder) SaysPrimary() *MemberBuilder {
	b.report = &agentapi.Status{
		ConfigGeneration: 1,
		State:            agentapi.StateRunning, Role: agentapi.RolePrimary, DataRole: agentapi.RolePrimary, DataKnown: true, HasData: true,
		ServerVersion: "16.14", SystemIdentifier: System, Timeline: 1, LSN: "0/5000000", AgentDigest: AgentDigest, UpgradeProtocol: agentapi.UpgradeProtocol,
	}
	return b
}

// Standby says that it follows.
func (b *MemberBuilder) Standby() *MemberBuilder {
	lag := int64(0)
	b.report = &agentapi.Status{
		ConfigGeneration: 1,
		State:            agentapi.StateRunning, Role: agentapi.RoleStandby, DataRole: agentapi.RoleStandby, DataKnown: true, HasData: true, Streaming: true,
		ServerVersion: "16.14", SystemIdentifier: System, Timeline: 1, LSN: "0/5000000", ReplayLSN: "0/5000000", LagBytes: &lag, AgentDigest: AgentDigest, UpgradeProtocol: agentapi.UpgradeProtocol,
	}
	return b
}

// Empty says that it has no data and waits.
func (b *MemberBuilder) Empty() *MemberBuilder {
	b.report = &agentapi.Status{State: agentapi.StateWaiting, DataKnown: true, ServerVersion: "16.14"}
	return b
}

// Failed says that it cannot go on, and why.
func (b *MemberBuilder) Failed(reason, message string) *MemberBuilder {
	if b.report == nil {
		b.report = &agentapi.Status{}
	}
	b.report.State = agentapi.StateFailed
	return b.Says(reason, message)
}

// Says has a problem, in the words of its agent.
func (b *MemberBuilder) Says(reason, message string) *MemberBuilder {
	if b.report == nil {
		b.report = &agentapi.Status{State: agentapi.StateRunning}
	}
	b.report.Problem = &agentapi.Problem{Reason: reason, Message: message}
	return b
}

// Ready serves, as the kubelet says and, if it is heard, its agent.
func (b *MemberBuilder) Ready() *MemberBuilder { b.ready = true; return b }

// ReadyAside is as it should be, in a generation that is not live: the kubelet does not count it as ready.
func (b *MemberBuilder) ReadyAside() *MemberBuilder { b.aside = true; return b }

// Unheard has an agent that has not been heard for so long. Say it after the role that it had.
func (b *MemberBuilder) Unheard(d time.Duration) *MemberBuilder {
	b.report, b.instance.UnheardFor = nil, d
	return b
}

// NeverHeard has an agent that nobody has heard yet.
func (b *MemberBuilder) NeverHeard() *MemberBuilder {
	b.report, b.instance.NeverHeard = nil, true
	return b
}

// NotStarted has a Pod whose postgres container does not run yet.
func (b *MemberBuilder) NotStarted() *MemberBuilder { b.pod.Running = false; return b }

// Holds the lease, whatever its agent says.
func (b *MemberBuilder) Holds() *MemberBuilder { b.holds = true; return b }

// NoPod has no Pod yet.
func (b *MemberBuilder) NoPod() *MemberBuilder { b.noPod = true; return b }

// Unplaced has a Pod without a node.
func (b *MemberBuilder) Unplaced() *MemberBuilder {
	b.pod.Node, b.pod.IP, b.pod.Running = "", "", false
	return b
}

// Refused has no Pod, since the API server refuses it.
func (b *MemberBuilder) Refused(reason, message string) *MemberBuilder {
	b.instance.Refused = &facts.Problem{Reason: reason, Message: message}
	return b.NoPod()
}

// PodProblem has a Pod that does not run.
func (b *MemberBuilder) PodProblem(reason, message string) *MemberBuilder {
	b.pod.Problem = &facts.Problem{Reason: reason, Message: message}
	return b
}

// Outdated has a Pod that was made from an earlier template.
func (b *MemberBuilder) Outdated() *MemberBuilder { b.pod.Current = false; return b }

// Differs has a Pod that is not as the spec wants it.
func (b *MemberBuilder) Differs() *MemberBuilder { b.pod.Outdated = true; return b }

// TemplateLags has a Pod that is not as the spec wants it, and a StatefulSet that would make it so again.
func (b *MemberBuilder) TemplateLags() *MemberBuilder {
	b.pod.Outdated, b.pod.TemplateLags = true, true
	return b
}

// Pending has parameters that wait for a restart.
func (b *MemberBuilder) Pending(parameters ...string) *MemberBuilder {
	return b.Report(func(s *agentapi.Status) { s.PendingRestart = parameters })
}

// Lowers has parameters that wait for a restart, which its standbys must not go below.
func (b *MemberBuilder) Lowers(parameters ...string) *MemberBuilder {
	return b.Pending(parameters...).Report(func(s *agentapi.Status) { s.Lowering = parameters })
}

// Behind is a standby that has so many bytes yet to replay.
func (b *MemberBuilder) Behind(bytes int64) *MemberBuilder {
	return b.Report(func(s *agentapi.Status) { s.LagBytes = &bytes })
}

// OldAgent has an agent that knows nothing of switchovers.
func (b *MemberBuilder) OldAgent() *MemberBuilder {
	return b.Report(func(s *agentapi.Status) { s.AgentDigest = "" })
}

// OnNode has a Pod on a node of which that is known.
func (b *MemberBuilder) OnNode(state facts.NodeState) *MemberBuilder {
	b.pod.Node, b.pod.NodeState = state.Name, facts.Know(state)
	return b
}

// VolumeOn has a volume that is bound to a node of which that is known.
func (b *MemberBuilder) VolumeOn(state facts.NodeState) *MemberBuilder {
	b.volume.Node = facts.Know(state)
	return b
}

// Runs has a Pod that was made to run that major, from a template that is still so.
func (b *MemberBuilder) Runs(version string) *MemberBuilder {
	b.pod.Version, b.pod.TemplateVersion = version, version
	return b
}

// Template has a StatefulSet that makes Pods of that major now.
func (b *MemberBuilder) Template(version string) *MemberBuilder {
	b.pod.TemplateVersion = version
	return b
}

// Upgrades has an agent that says that of a major upgrade.
func (b *MemberBuilder) Upgrades(status agentapi.UpgradeStatus) *MemberBuilder {
	return b.Report(func(s *agentapi.Status) { s.Upgrade = &status })
}

// Detached has an agent that runs the other generation's writable server.
func (b *MemberBuilder) Detached() *MemberBuilder {
	b.SaysPrimary()
	b.report.Role = ""
	return b
}

// PodDeleting has a Pod that is being deleted.
func (b *MemberBuilder) PodDeleting() *MemberBuilder { b.pod.Deleting = true; return b }

// Deleting has a StatefulSet that is being deleted.
func (b *MemberBuilder) Deleting() *MemberBuilder { b.instance.Deleting = true; return b }

// Labelled has that role label and configuration hash on its Pod.
func (b *MemberBuilder) Labelled(role, configHash string) *MemberBuilder {
	b.pod.Role, b.pod.ConfigHash = role, configHash
	return b
}

// Report changes what its agent says.
func (b *MemberBuilder) Report(change func(*agentapi.Status)) *MemberBuilder {
	change(b.report)
	return b
}

// NoVolume has no volume claim.
func (b *MemberBuilder) NoVolume() *MemberBuilder { b.noVolume = true; return b }

// Unbound has a volume claim without a volume.
func (b *MemberBuilder) Unbound() *MemberBuilder { b.volume.Bound = false; return b }

// Volume has a volume of that class and size.
func (b *MemberBuilder) Volume(class string, bytes int64) *MemberBuilder {
	b.volume.Class, b.volume.Bytes = class, bytes
	return b
}

// VolumeDeleting has a volume that is being deleted.
func (b *MemberBuilder) VolumeDeleting() *MemberBuilder { b.volume.Deleting = true; return b }

func (b *MemberBuilder) build(cluster string) (facts.Instance, *facts.Volume) {
	i := b.instance
	i.Name, i.Ordinal = naming.Instance(cluster, b.ordinal), b.ordinal
	if !b.noPod {
		pod := b.pod
		pod.Name, pod.UID, pod.Ready = naming.Pod(i.Name), "uid-of-"+naming.Pod(i.Name), b.ready
		i.Pod = &pod
	}
	if b.report != nil {
		report := *b.report
		report.Instance, report.Ready = i.Name, b.ready || b.aside
		i.Report = facts.Know(report)
	}
	if b.noVolume {
		return i, nil
	}
	volume := b.volume
	volume.Instance, volume.Ordinal = i.Name, b.ordinal
	return i, &volume
}
