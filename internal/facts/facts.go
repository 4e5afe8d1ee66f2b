package facts

import (
	"fmt"
	"slices"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Known is a value, or the knowledge that it is not known. The zero value is unknown.
type Known[T any] struct {
	value T
	known bool
}

// Know makes a known value.
func Know[T any](value T) Known[T] { return Known[T]{value: value, known: true} }

// Get returns the value and whether it is known.
func (k Known[T]) Get() (T, bool) { return k.value, k.known }

// Problem is something that hinders the cluster, in words for the user.
type Problem struct {
	// Reason is one of the Reason constants of apis/v1.
	Reason string
	// Message names the object, what is wrong and what would be right.
	Message string
}

// Cluster is everything that is known about a PostgresCluster in one pass.
type Cluster struct {
	// Now is the time of the pass.
	Now time.Time

	Name, Namespace string
	Generation      int64
	// CreatedAt is when the PostgresCluster was created.
	CreatedAt time.Time
	// Deleting says whether the PostgresCluster is being deleted, DeletedAt since when.
	Deleting  bool
	DeletedAt time.Time
	// ForceDelete says that it is to be let go although something of it remains.
	ForceDelete bool
	// Paused says that it is to be left alone.
	Paused bool

	// Replicas is how many instances there shall be: what the spec wants, or two while a major upgrade has added one.
	Replicas int
	// What the spec wants.
	Version string
	Image   string
	// Live is the major of the generation that is live. It is the Lease's, then what the volumes and the status remember: never what
	// the spec wants, unless nothing else is known.
	Live string
	// Images are the images of other majors than Version that instances run, by major.
	Images      map[string]string
	Upgrade     Upgrade
	KeepVolumes bool
	// DeleteBackups says that the volume of the backups goes with the cluster.
	DeleteBackups bool
	Storage       Storage
	// Suspend says that no instance is to run.
	Suspend bool

	// StorageClasses are all that there are.
	StorageClasses []StorageClass

	// SecretsUnknownFor is for how long the cluster's Secrets could not be read; zero: they are known.
	SecretsUnknownFor time.Duration
	// SystemIdentifier of the PostgreSQL system; empty while none is known.
	SystemIdentifier string
	// OnlyRemembered says that neither the status nor the Lease names the system, only volumes: it is forgotten if they go.
	OnlyRemembered bool
	// Holder is the instance that the Lease names; empty if none.
	Holder string
	// Wish is the instance that a user wants to be primary, or naming.SwitchoverBest; empty: none is wished.
	Wish string
	// Force is the instance that a user lets take over whatever it lacks; empty: none.
	Force string
	// Switchover is what the status says of the last switchover; nil: there was none.
	Switchover *v1.SwitchoverStatus
	// Fenced are the instances that a user wants stopped; naming.FencedAll among them is all.
	Fenced []string
	// MaximumLag is how many bytes a standby may be behind and still take over.
	MaximumLag int64
	// NodeLostAfter is how long a node may be out before a standby that is bound to it is made anew elsewhere.
	NodeLostAfter time.Duration

	// Instances are those that have a StatefulSet, by number.
	Instances []Instance
	// Volumes are the data volumes of the cluster, also those without an instance, by number.
	Volumes []Volume
	// OrphanPods are Pods of the cluster whose StatefulSet is gone.
	OrphanPods []string
	// Leftovers are the cluster's other objects, as kind/name: what a deletion has still to remove.
	Leftovers []string
	// Backup is what is known of backups; nil: the spec wants none.
	Backup *Backup
	// Recovery is a recovery in place that is wanted, or under way.
	Recovery Recovery
	// FinalBackup is the backup to make before the cluster goes; nil: none is wanted, or it is not being deleted.
	FinalBackup *WantedBackup
	// BackupRecords are the PostgresBackups that go with a cluster that is being deleted.
	BackupRecords []BackupRecord
	// RepositoryVolume is the volume of the backups; nil: there is none.
	RepositoryVolume *Volume
	// Problems are what is wrong with the cluster as a whole, e.g. a storage class that does not exist.
	Problems []Problem
	// Notes are what its users should know although nothing is wrong.
	Notes []string
}

// Upgrade is what is wanted of a major upgrade, and what the status remembers of it.
type Upgrade struct {
	// Status is what was last written; nil: there never was one.
	Status *v1.UpgradeStatus
	Method v1.UpgradeMethod
	// Manual says that it waits for Approved before it switches over.
	Manual, Approved bool
	// Closed is why the new version may not take over at this time of day; empty: it may.
	Closed string
	// Window is how long the way back is open, MaxPause how long writes may pause.
	Window, MaxPause time.Duration
	// Retry changes when a failed upgrade is to begin again. Check is the major for which a preflight is wanted; empty: for none.
	Retry, Check string
	// Versions are those of the images that majors would have, by major (18: 18.6), as far as they are known.
	Versions map[string]string
	// SyncRequired is how many standbys commits wait for without exception; 0: none.
	SyncRequired int
}

// Storage is the volume that the spec wants for each instance.
type Storage struct {
	// Class is the storage class's name, that of the default class if the spec names none; empty if there is no default.
	Class string
	// Bytes is the size.
	Bytes int64
}

// StorageClass is one that exists.
type StorageClass struct {
	Name string
	// Default says whether it is the one for volumes that name none.
	Default bool
	// Expands says whether its volumes can grow.
	Expands bool
}

// Object is an object in the cluster's namespace.
type Object struct {
	Kind, Name string
	// Cluster is the PostgresCluster that it belongs to; empty if it is none of pgsteward's.
	Cluster string
}

// Instance is one PostgreSQL server that exists.
type Instance struct {
	Name    string
	Ordinal int
	// Deleting says whether its StatefulSet is being deleted.
	Deleting bool
	// Pod is its Pod, or nil while there is none.
	Pod *Pod
	// Refused says why no Pod can be made, if the API server refuses it.
	Refused *Problem
	// Report is what its agent says; unknown while the agent cannot be heard.
	Report Known[agentapi.Status]
	// UnheardFor is for how long the agent has not been heard.
	UnheardFor time.Duration
	// NeverHeard says that no agent of this instance has ever told anything: nothing is known of its server yet, not even
	// from an earlier operator.
	NeverHeard bool
}

// Pod is an instance's Pod.
type Pod struct {
	Name string
	UID  string
	// Current says whether it was made from the StatefulSet's present template.
	Current bool
	// Outdated says whether it is known to differ from what the spec wants of a Pod, so that a new Pod would be of use unless
	// TemplateLags. What only the operator's own version changes is left out.
	Outdated bool
	// TemplateLags says that its StatefulSet does not make Pods as the spec wants them yet: a Pod made now would be the old one again.
	TemplateLags bool
	// Running says whether the postgres container runs, and Ready whether it is ready, in the kubelet's last word.
	Running  bool
	Ready    bool
	Deleting bool
	Node     string
	// NodeState is the node's. It is asked for only when the Pod is in trouble.
	NodeState Known[NodeState]
	IP        string
	// Role is the value of its role label.
	Role string
	// Version is the major that it was made to run; empty: not noted, so the live one. TemplateVersion is that of the Pod that its
	// StatefulSet would make now; empty: not known.
	Version, TemplateVersion string
	// ConfigHash is the value of its configuration annotation, RefreshedAt when it was set.
	ConfigHash  string
	RefreshedAt time.Time
	// Problem says what keeps it from running, if something does.
	Problem *Problem
}

// NodeState is what is known of a node.
type NodeState struct {
	// Name of the node.
	Name string
	// Gone says that there is no such node any more.
	Gone bool
	// NotReadySince is since when it has not been ready; zero: it is ready.
	NotReadySince time.Time
}

// Lost says whether the node is gone, or has not been ready for longer than that.
func (n NodeState) Lost(now time.Time, patience time.Duration) bool {
	return n.Gone || !n.NotReadySince.IsZero() && now.Sub(n.NotReadySince) > patience
}

// Volume is a data volume.
type Volume struct {
	// Instance is the name of the instance it is for.
	Instance string
	Ordinal  int
	// Bound says whether it has a real volume behind it; an unbound one never had data.
	Bound    bool
	Deleting bool
	// Class is its storage class; empty while none is set.
	Class string
	// Bytes is the size that it asks for.
	Bytes int64
	// SystemIdentifier and Version are those of its data, as noted when it was last in use; empty if unknown, or if it is being
	// deleted: what it has goes with it.
	SystemIdentifier string
	Version          string
	// Node is the one node from which it can be reached, if it is bound to one; unknown if it is not, or was not asked for.
	Node Known[NodeState]
	// WasPrimary says whether its data was the primary's when that was last known.
	WasPrimary bool
}

// Instance returns the instance of that name.
func (c *Cluster) Instance(name string) (Instance, bool) {
	i := slices.IndexFunc(c.Instances, func(i Instance) bool { return i.Name == name })
	if i < 0 {
		return Instance{}, false
	}
	return c.Instances[i], true
}

// Volume returns the volume for the instance of that name.
func (c *Cluster) Volume(instance string) (Volume, bool) {
	i := slices.IndexFunc(c.Volumes, func(v Volume) bool { return v.Instance == instance })
	if i < 0 {
		return Volume{}, false
	}
	return c.Volumes[i], true
}

// Conflict is why the cluster must not start an instance on a volume that has none: its data is somebody else's. Nil: it may.
func (c *Cluster) Conflict(v Volume) *Problem {
	if _, inUse := c.Instance(v.Instance); inUse || v.Deleting {
		return nil // its agent looks at the data itself
	}
	switch {
	case v.Version != "" && v.Version != c.Live:
		return &Problem{Reason: v1.ReasonDataVersionMismatch, Message: fmt.Sprintf(
			"PersistentVolumeClaim %s has data of PostgreSQL %s, while the cluster's is %s: create the cluster with version %q, or delete the claim, or give the cluster another name",
			naming.DataVolume(v.Instance), v.Version, c.Live, v.Version)}
	case v.SystemIdentifier != "" && c.SystemIdentifier != "" && v.SystemIdentifier != c.SystemIdentifier:
		return &Problem{Reason: v1.ReasonSystemMismatch, Message: fmt.Sprintf(
			"PersistentVolumeClaim %s has data of another PostgreSQL system (%s, the cluster's is %s): delete the claim, or give the cluster another name",
			naming.DataVolume(v.Instance), v.SystemIdentifier, c.SystemIdentifier)}
	}
	return nil
}

// HasData says whether the cluster is known to have data: then nobody may make a new PostgreSQL system.
func (c *Cluster) HasData() bool {
	if c.SystemIdentifier != "" {
		return true
	}
	for _, i := range c.Instances {
		if report, ok := i.Report.Get(); ok && report.HasData {
			return true
		}
	}
	return slices.ContainsFunc(c.Volumes, func(v Volume) bool { return v.SystemIdentifier != "" })
}

// Runs is the major that the instance's Pod was made to run. One of an operator that did not note it is of before any upgrade.
func (c *Cluster) Runs(i Instance) string {
	switch u := c.Upgrade.Status; {
	case i.Pod != nil && i.Pod.Version != "":
		return i.Pod.Version
	case i.Pod != nil && u != nil && !u.Phase.Final():
		return u.From
	default:
		return c.Live
	}
}

// Aside says whether the instance is not of the live generation: it takes no part in the election, and serves no client.
func (c *Cluster) Aside(i Instance) bool {
	u := c.Upgrade.Status
	return u != nil && !u.Phase.Final() && i.Name != c.Holder && c.Runs(i) != c.Live
}

// Primary returns the instance that holds the Lease and says that it is primary; false if there is none, or it is not known.
func (c *Cluster) Primary() (Instance, bool) {
	i, ok := c.Instance(c.Holder)
	if !ok {
		return Instance{}, false
	}
	report, known := i.Report.Get()
	return i, known && report.Role == agentapi.RolePrimary
}

// Serves says whether every instance that the spec asks for exists and is ready, and one of them is the primary.
func (c *Cluster) Serves() bool {
	primary, ok := c.Instance(c.Holder)
	if !ok || !primary.Ready() || len(c.Instances) != c.Replicas {
		return false
	}
	return !slices.ContainsFunc(c.Instances, func(i Instance) bool { return i.Deleting || !i.Ready() && !c.ReadyAside(i) })
}

// ReadyAside says whether an instance of the other generation is as it should be. The kubelet does not count it as ready, so that it is
// in no Service; its agent says what it is.
func (c *Cluster) ReadyAside(i Instance) bool {
	report, known := i.Report.Get()
	return c.Aside(i) && known && report.Ready && i.Pod.Running && !i.Pod.Deleting
}

// Ready says whether the instance serves: the kubelet says so, and its agent, if it is heard, does not say otherwise.
func (i Instance) Ready() bool {
	if i.Pod == nil || i.Pod.Deleting || !i.Pod.Ready {
		return false
	}
	report, known := i.Report.Get()
	return !known || report.Ready
}

// Problem is what keeps the instance from working, if something is known to: first what Kubernetes says, then its agent.
func (i Instance) Problem() *Problem {
	if i.Refused != nil {
		return i.Refused
	}
	if i.Pod != nil && i.Pod.Problem != nil {
		return i.Pod.Problem
	}
	if report, known := i.Report.Get(); known && report.Problem != nil {
		return &Problem{Reason: report.Problem.Reason, Message: i.Name + ": " + report.Problem.Message}
	}
	return nil
}

// IsFenced says whether a user wants the instance stopped.
func (c *Cluster) IsFenced(instance string) bool {
	return slices.Contains(c.Fenced, instance) || slices.Contains(c.Fenced, naming.FencedAll)
}

// CannotTakeOver is why the standby would not become primary by a switchover; empty: as far as is known it would.
func (c *Cluster) CannotTakeOver(i Instance) string {
	report, known := i.Report.Get()
	switch {
	case i.Deleting || i.Pod == nil || i.Pod.Deleting:
		return "it is going"
	case c.IsFenced(i.Name):
		return "it is fenced"
	case c.Aside(i):
		return fmt.Sprintf("it runs PostgreSQL %s, and the primary %s", c.Runs(i), c.Live)
	case !known:
		return "its agent does not answer the operator"
	case !i.Ready() || report.Role != agentapi.RoleStandby:
		return "it is no standby that is ready"
	case !report.Streaming:
		return "it does not stream from the primary"
	case c.timeline() > report.Timeline:
		return fmt.Sprintf("it has not followed to timeline %d yet", c.timeline())
	case report.LagBytes == nil:
		return "it is not known how far it is behind"
	case *report.LagBytes > c.MaximumLag:
		// without the figure, which changes all the time
		return fmt.Sprintf("it is further behind the primary than spec.availability.maximumLag allows (%d bytes)", c.MaximumLag)
	default:
		return ""
	}
}

// timeline is the primary's; 0 if it is not known.
func (c *Cluster) timeline() int64 {
	primary, known := c.Primary()
	if !known {
		return 0
	}
	report, _ := primary.Report.Get()
	return report.Timeline
}

// PendingRestart says whether parameters wait for a restart of the instance's server.
func (i Instance) PendingRestart() bool {
	report, known := i.Report.Get()
	return known && len(report.PendingRestart) > 0
}

// OlderAgent says whether the agent is known to be of a version that knows nothing of switchovers and restarts.
func (i Instance) OlderAgent() bool {
	report, known := i.Report.Get()
	return known && report.AgentDigest == ""
}

// SeesOldFiles says whether the agent is known to see older files mounted than those that the kubelet was last asked to refresh.
func (i Instance) SeesOldFiles() bool {
	report, known := i.Report.Get()
	return known && i.Pod != nil && report.FilesHash != "" && i.Pod.ConfigHash != "" && report.FilesHash != i.Pod.ConfigHash
}
