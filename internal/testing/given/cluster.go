package given

import (
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Defaults of a cluster.
const (
	Namespace = "demo"
	System    = "7123456789012345678"
	GiB       = int64(1) << 30
)

// Now is the time of the pass, unless At says another.
var Now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// ClusterBuilder makes facts.Cluster.
type ClusterBuilder struct{ f facts.Cluster }

// Cluster begins a cluster that wants three instances of PostgreSQL 16, has no data and no instance.
func Cluster(name string) *ClusterBuilder {
	return &ClusterBuilder{f: facts.Cluster{
		Now: Now, Name: name, Namespace: Namespace, Generation: 1, CreatedAt: Now.Add(-time.Hour),
		Replicas: 3, Version: "16", Live: "16", Image: "registry.example/postgres:16", KeepVolumes: true,
		Storage: facts.Storage{Bytes: GiB}, MaximumLag: 16 << 20, NodeLostAfter: 5 * time.Minute,
	}}
}

// Replicas is how many instances the spec wants.
func (b *ClusterBuilder) Replicas(n int) *ClusterBuilder { b.f.Replicas = n; return b }

// At is the time of the pass.
func (b *ClusterBuilder) At(now time.Time) *ClusterBuilder { b.f.Now = now; return b }

// Deleting is a cluster that somebody deletes.
func (b *ClusterBuilder) Deleting() *ClusterBuilder {
	b.f.Deleting, b.f.DeletedAt = true, b.f.Now.Add(-time.Second)
	return b
}

// Since is for how long the cluster is being deleted.
func (b *ClusterBuilder) Since(d time.Duration) *ClusterBuilder {
	b.f.DeletedAt = b.f.Now.Add(-d)
	return b
}

// Forced is a cluster whose deletion is not to wait.
func (b *ClusterBuilder) Forced() *ClusterBuilder { b.f.ForceDelete = true; return b }

// FinalBackup is the backup that is wanted before a cluster that is being deleted goes.
func (b *ClusterBuilder) FinalBackup(final facts.WantedBackup) *ClusterBuilder {
	b.f.FinalBackup = &final
	return b
}

// Paused is a cluster that is to be left alone.
func (b *ClusterBuilder) Paused() *ClusterBuilder { b.f.Paused = true; return b }

// Suspended is a cluster that is not to run.
func (b *ClusterBuilder) Suspended() *ClusterBuilder { b.f.Suspend = true; return b }

// Generation is that of the spec.
func (b *ClusterBuilder) Generation(n int64) *ClusterBuilder { b.f.Generation = n; return b }

// VolumeVersion says of which major the data on a volume is.
func (b *ClusterBuilder) VolumeVersion(ordinal int, version string) *ClusterBuilder {
	for n := range b.f.Volumes {
		if b.f.Volumes[n].Ordinal == ordinal {
			b.f.Volumes[n].Version = version
		}
	}
	return b
}

// DeletesVolumes is a cluster whose deletion policy keeps no volume.
func (b *ClusterBuilder) DeletesVolumes() *ClusterBuilder { b.f.KeepVolumes = false; return b }

// HasSystem is a cluster whose PostgreSQL system is known.
func (b *ClusterBuilder) HasSystem() *ClusterBuilder { b.f.SystemIdentifier = System; return b }

// Forces is an instance that a user lets take over whatever it lacks.
func (b *ClusterBuilder) Forces(instance string) *ClusterBuilder {
	b.f.Force = instance
	return b
}

// Wish is the instance that a user wants to be primary.
func (b *ClusterBuilder) Wish(target string) *ClusterBuilder { b.f.Wish = target; return b }

// Switchover is what the status says of the last switchover.
func (b *ClusterBuilder) Switchover(s v1.SwitchoverStatus) *ClusterBuilder {
	b.f.Switchover = &s
	return b
}

// Fences stops instances, as a user wishes.
func (b *ClusterBuilder) Fences(instances ...string) *ClusterBuilder {
	b.f.Fenced = instances
	return b
}

// HeldBy says which instance the Lease names. Member(n).Primary() says it too.
func (b *ClusterBuilder) HeldBy(ordinal int) *ClusterBuilder {
	b.f.Holder = naming.Instance(b.f.Name, ordinal)
	return b
}

// Storage is what the spec wants for each volume.
func (b *ClusterBuilder) Storage(class string, bytes int64) *ClusterBuilder {
	b.f.Storage = facts.Storage{Class: class, Bytes: bytes}
	return b
}

// Orphans are Pods whose StatefulSet is gone.
func (b *ClusterBuilder) Orphans(pods ...string) *ClusterBuilder { b.f.OrphanPods = pods; return b }

// Leftovers are objects that a deletion has still to remove.
func (b *ClusterBuilder) Leftovers(names ...string) *ClusterBuilder { b.f.Leftovers = names; return b }

// Problem is what observe found wrong with the cluster as a whole.
func (b *ClusterBuilder) Problem(reason, message string) *ClusterBuilder {
	b.f.Problems = append(b.f.Problems, facts.Problem{Reason: reason, Message: message})
	return b
}

// KeptVolume is a bound volume that has no instance, with data of the system ("" if it is not known whose).
func (b *ClusterBuilder) KeptVolume(ordinal int, system string) *ClusterBuilder {
	b.f.Volumes = append(b.f.Volumes, facts.Volume{
		Instance: naming.Instance(b.f.Name, ordinal), Ordinal: ordinal, Bound: true, Bytes: GiB, SystemIdentifier: system,
	})
	return b
}

// WasPrimary says that the data on a volume was the primary's.
func (b *ClusterBuilder) WasPrimary(ordinal int) *ClusterBuilder {
	for n := range b.f.Volumes {
		if b.f.Volumes[n].Ordinal == ordinal {
			b.f.Volumes[n].WasPrimary = true
		}
	}
	return b
}

// With adds instances, in this order.
func (b *ClusterBuilder) With(members ...*MemberBuilder) *ClusterBuilder {
	for _, m := range members {
		instance, volume := m.build(b.f.Name)
		b.f.Instances = append(b.f.Instances, instance)
		if volume != nil {
			b.f.Volumes = append(b.f.Volumes, *volume)
		}
		if m.holds {
			b.f.Holder = instance.Name
		}
	}
	return b
}

// Wants is the major that the spec wants.
func (b *ClusterBuilder) Wants(version string) *ClusterBuilder { b.f.Version = version; return b }

// Live is the major of the live generation.
func (b *ClusterBuilder) Live(version string) *ClusterBuilder { b.f.Live = version; return b }

// Upgrade is what is wanted of a major upgrade, and what the status says of it; nil: it says nothing.
func (b *ClusterBuilder) Upgrade(wanted facts.Upgrade, status *v1.UpgradeStatus) *ClusterBuilder {
	b.f.Upgrade = wanted
	b.f.Upgrade.Status = status
	return b
}

// Facts are the facts.
func (b *ClusterBuilder) Facts() facts.Cluster { return b.f }
