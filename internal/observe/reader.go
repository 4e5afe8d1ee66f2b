package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Reader reads clusters.
type Reader struct {
	// Cache is filled by watches.
	Cache client.Reader
	// API asks the API server.
	API client.Reader
	// Secrets reads Secrets where the operator has a right to; nil: Cache has them all.
	Secrets *Secrets
	// Agents hears what the agents say.
	Agents *Agents
	// Now is the clock.
	Now func() time.Time
}

// Wanted is what the spec means after defaults, which observe does not know.
type Wanted struct {
	Image         string
	Versions      map[string]string // of images that majors would have
	Storage       int64
	MaximumLag    int64
	NodeLostAfter time.Duration
	// SpecHash is what a new Pod would be marked with; Outdated says whether a Pod differs from what the spec wants.
	SpecHash string
	Outdated func(*corev1.Pod) bool
	// Schedule and TimeZone are those of backups, Verify is the schedule of their verification; empty: there is no schedule.
	Schedule, TimeZone, Verify string
	// Retention is for how long backups are kept.
	Retention time.Duration
	// Repository is a short name of the repository that backups go to; InRepository says whether a backup of that status.location is in it.
	Repository   string
	InRepository func(location string) bool
}

// isElsewhere says whether the PostgresBackup tells of a backup in another repository than the one that is wanted now.
func (w *Wanted) isElsewhere(b *v1.PostgresBackup) bool {
	return b.Status.Location != "" && w.InRepository != nil && !w.InRepository(b.Status.Location)
}

// Observation is a cluster as it was read in one pass.
type Observation struct {
	Facts facts.Cluster
	// Objects are the cluster's objects as they are.
	Objects Objects
	// Credentials are what its Secrets have; parts that are missing are empty.
	Credentials credential.Set
}

// Cluster reads the PostgresCluster itself.
func (r *Reader) Cluster(ctx context.Context, key types.NamespacedName) (*v1.PostgresCluster, error) {
	c := &v1.PostgresCluster{}
	return c, r.Cache.Get(ctx, key, c)
}

// Forget ends what is kept for a cluster that is gone.
func (r *Reader) Forget(key types.NamespacedName) {
	r.Agents.Forget(key)
	if r.Secrets != nil {
		r.Secrets.Forget(key)
	}
}

// Observe reads everything about the cluster.
func (r *Reader) Observe(ctx context.Context, c *v1.PostgresCluster, wanted Wanted) (Observation, error) {
	objects, secretsUnknownFor, err := r.readObjects(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	o := Observation{Objects: objects, Credentials: credentials(objects, c.Name)}
	f := facts.Cluster{
		Now:              r.Now(),
		Name:             c.Name,
		Namespace:        c.Namespace,
		Generation:       c.Generation,
		CreatedAt:        c.CreationTimestamp.Time,
		Deleting:         !c.DeletionTimestamp.IsZero(),
		ForceDelete:      c.Annotations[naming.AnnotationForceDelete] == "true",
		Paused:           c.Annotations[naming.AnnotationPaused] == "true",
		Suspend:          c.Spec.Suspend,
		Replicas:         replicas(c),
		Version:          c.Spec.Version,
		Image:            wanted.Image,
		KeepVolumes:      c.Spec.Deletion.Volumes != v1.Delete,
		DeleteBackups:    c.Spec.Deletion.Backups == v1.Delete,
		RepositoryVolume: repositoryVolume(objects, c.Name),
		Storage:          facts.Storage{Bytes: wanted.Storage},
		Volumes:          volumes(objects, c.Name),
		Leftovers:        leftovers(objects, c),

		Wish:          c.Annotations[naming.AnnotationSwitchover],
		Force:         c.Annotations[naming.AnnotationForceFailover],
		Switchover:    c.Status.Switchover.DeepCopy(),
		Fenced:        fenced(c),
		MaximumLag:    wanted.MaximumLag,
		NodeLostAfter: wanted.NodeLostAfter,

		SecretsUnknownFor: secretsUnknownFor,
	}
	f.DeletedAt = ptr.Deref(c.DeletionTimestamp, metav1.Time{}).Time
	_, hostTarget := repositoryTarget(c, objects)
	var targets []Target
	if f.Instances, targets, err = r.instances(ctx, c, objects, wanted); err != nil {
		return Observation{}, err
	}
	r.hear(c, f.Instances, append(hostTarget, targets...), o.Credentials.CA)
	r.askForNodes(ctx, &f, objects)
	f.OrphanPods = orphans(objects)
	lease, found := get[*coordinationv1.Lease](objects, "Lease", naming.PrimaryLease(c.Name))
	f.SystemIdentifier = c.Status.SystemIdentifier
	if found {
		f.Holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		said := lease.Annotations[naming.AnnotationSystemIdentifier]
		if f.SystemIdentifier = cmp.Or(f.SystemIdentifier, said); c.Status.Upgrade != nil { // in a major upgrade it changes with the lease
			f.SystemIdentifier = cmp.Or(said, f.SystemIdentifier)
		}
	}
	if f.SystemIdentifier == "" {
		f.SystemIdentifier = systemOfVolumes(f.Volumes)
		f.OnlyRemembered = f.SystemIdentifier != ""
	}
	f.Live = liveVersion(c, &f, lease)
	f.Upgrade, f.Images = upgradeFacts(c, f.Now), imagesOf(c, &f, objects)
	f.Upgrade.Versions = wanted.Versions
	if f.StorageClasses, err = r.StorageClasses(ctx); err != nil {
		return Observation{}, err
	}
	f.Storage.Class = className(c.Spec.Storage.StorageClassName, f.StorageClasses)
	if err := r.observeBackups(ctx, c, &f, objects, wanted); err != nil {
		return Observation{}, err
	}
	o.Facts = f
	return o, nil
}

// observeBackups adds what is known of backups, and of what is made from them.
func (r *Reader) observeBackups(ctx context.Context, c *v1.PostgresCluster, f *facts.Cluster, objects Objects, wanted Wanted) (err error) {
	if f.Backup, err = r.backups(ctx, c, f, objects, wanted); err != nil {
		return err
	}
	if f.Recovery, err = r.recovery(ctx, c); err != nil {
		return err
	}
	if f.FinalBackup, err = r.finalBackup(ctx, c, f); err != nil {
		return err
	}
	if f.BackupRecords, err = r.backupRecords(ctx, c, f); err != nil {
		return err
	}
	for _, record := range f.BackupRecords {
		f.Leftovers = append(f.Leftovers, "postgresbackup/"+record.Name)
	}
	if f.Backup != nil {
		f.Backup.Image = repositoryImage(objects, f.Holder, c.Name)
		f.Backup.Verification = verification(objects, c, wanted, f.Now)
	}
	return nil
}

// replicas is what the spec wants; the API server has set the default. A major upgrade may need a second instance.
func replicas(c *v1.PostgresCluster) int {
	wanted := int(ptr.Deref(c.Spec.Replicas, 1))
	if u := c.Status.Upgrade; u != nil && u.Surge {
		return max(wanted, 2)
	}
	return wanted
}

// instances are those with a StatefulSet, by number, and where their agents are asked.
func (r *Reader) instances(ctx context.Context, c *v1.PostgresCluster, objects Objects, wanted Wanted) (all []facts.Instance, targets []Target, err error) {
	for _, object := range objects["StatefulSet"] {
		set, ok := object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		ordinal, ok := naming.Ordinal(c.Name, set.Name)
		if !ok {
			continue
		}
		i := facts.Instance{Name: set.Name, Ordinal: ordinal, Deleting: !set.DeletionTimestamp.IsZero()}
		if pod, ok := get[*corev1.Pod](objects, "Pod", naming.Pod(set.Name)); ok {
			i.Pod = podFacts(pod, set)
			i.Pod.Outdated = wanted.Outdated != nil && wanted.Outdated(pod)
			i.Pod.TemplateLags = i.Pod.Outdated && !upToDate(set, wanted.SpecHash)
			i.Pod.Version = pod.Annotations[naming.AnnotationVersion]
			if set.Status.ObservedGeneration == set.Generation {
				i.Pod.TemplateVersion = set.Spec.Template.Annotations[naming.AnnotationVersion]
			}
			if target, ok := targetOf(c, set.Name, i.Pod); ok {
				targets = append(targets, target)
			}
		} else if refused, err := r.refusal(ctx, set); err != nil {
			return nil, nil, err
		} else {
			i.Refused = refused
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b facts.Instance) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return all, targets, nil
}

// hear adds what the instances' agents say.
func (r *Reader) hear(c *v1.PostgresCluster, all []facts.Instance, targets []Target, authority credential.KeyPair) {
	key := client.ObjectKeyFromObject(c)
	r.Agents.Follow(key, targets, authority)
	for n := range all {
		if all[n].Pod != nil {
			all[n].Report, all[n].UnheardFor = r.Agents.Report(key, all[n].Name, all[n].Pod.UID)
			_, heard := all[n].Report.Get()
			all[n].NeverHeard = !heard && !toldBefore(c, all[n].Name)
		}
	}
}

// upToDate says whether the StatefulSet's controller makes Pods as the spec wants them.
func upToDate(set *appsv1.StatefulSet, hash string) bool {
	return set.Status.ObservedGeneration == set.Generation && set.Spec.Template.Annotations[naming.AnnotationSpecHash] == hash
}

// fenced are the instances that the annotation names.
func fenced(c *v1.PostgresCluster) []string {
	var names []string
	for _, name := range strings.Split(c.Annotations[naming.AnnotationFenced], ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// toldBefore says whether the status has what an agent of the instance told once.
func toldBefore(c *v1.PostgresCluster, instance string) bool {
	return slices.ContainsFunc(c.Status.Instances, func(i v1.InstanceStatus) bool { return i.Name == instance && i.Version != "" })
}

// targetOf is where the instance's agent can be heard, once its Pod has an address.
func targetOf(c *v1.PostgresCluster, instance string, pod *facts.Pod) (Target, bool) {
	if pod.IP == "" || pod.Deleting {
		return Target{}, false
	}
	return Target{
		Instance: instance, PodUID: pod.UID, Address: pod.IP,
		ServerName: naming.InstanceHost(c.Name, c.Namespace, instance),
	}, true
}

// volumes are the cluster's data volumes, by number.
func volumes(objects Objects, cluster string) []facts.Volume {
	var all []facts.Volume
	for _, object := range objects["PersistentVolumeClaim"] {
		claim, ok := object.(*corev1.PersistentVolumeClaim)
		instance := object.GetLabels()[naming.LabelInstance]
		ordinal, valid := naming.Ordinal(cluster, instance)
		if !ok || !valid || claim.Name != naming.DataVolume(instance) {
			continue
		}
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		v := facts.Volume{
			Instance: instance,
			Ordinal:  ordinal,
			Bound:    claim.Spec.VolumeName != "",
			Deleting: !claim.DeletionTimestamp.IsZero(),
			Bytes:    size.Value(),
		}
		if !v.Deleting {
			v.SystemIdentifier = claim.Annotations[naming.AnnotationSystemIdentifier]
			v.Version = claim.Annotations[naming.AnnotationVersion]
			v.WasPrimary = claim.Annotations[naming.AnnotationDataRole] == naming.RolePrimary
		}
		if claim.Spec.StorageClassName != nil {
			v.Class = *claim.Spec.StorageClassName
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b facts.Volume) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return all
}

// systemOfVolumes is the PostgreSQL system that the volumes remember, the primary's before others'.
func systemOfVolumes(volumes []facts.Volume) string {
	for _, primary := range []bool{true, false} {
		for _, v := range volumes {
			if v.SystemIdentifier != "" && v.WasPrimary == primary {
				return v.SystemIdentifier
			}
		}
	}
	return ""
}

// orphans are Pods whose StatefulSet is gone. Those of verifications have none; they are their Jobs'.
func orphans(objects Objects) []string {
	var names []string
	for _, pod := range objects["Pod"] {
		if !naming.IsVerification(pod.GetLabels()) && objects.Get("StatefulSet", pod.GetLabels()[naming.LabelInstance]) == nil {
			names = append(names, pod.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// leftovers are the cluster's objects other than instances and Pods, as kind/name, without volumes that are to be kept.
func leftovers(objects Objects, c *v1.PostgresCluster) []string {
	var names []string
	for kind, found := range objects {
		if kind == "Pod" {
			continue
		}
		for _, object := range found {
			if kind == "StatefulSet" && object.GetName() != naming.Repository(c.Name) {
				continue
			}
			if kind == "PersistentVolumeClaim" && keepsVolume(c, object.GetName()) {
				continue
			}
			names = append(names, strings.ToLower(kind)+"/"+object.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// keepsVolume says whether the volume claim of that name outlives the cluster.
func keepsVolume(c *v1.PostgresCluster, claim string) bool {
	if claim == naming.RepositoryVolume(c.Name) {
		return c.Spec.Deletion.Backups != v1.Delete
	}
	return c.Spec.Deletion.Volumes != v1.Delete
}

// credentials are what the cluster's Secrets have.
func credentials(objects Objects, cluster string) credential.Set {
	data := func(name, key string) []byte {
		secret, ok := get[*corev1.Secret](objects, "Secret", name)
		if !ok {
			return nil
		}
		return secret.Data[key]
	}
	pair := func(name string) credential.KeyPair {
		return credential.KeyPair{Cert: data(name, naming.KeyTLSCert), Key: data(name, naming.KeyTLSKey)}
	}
	return credential.Set{
		SuperuserPassword: string(data(naming.SuperuserSecret(cluster), naming.KeyPassword)),
		AppPassword:       string(data(naming.AppSecret(cluster), naming.KeyPassword)),
		CA:                pair(naming.CASecret(cluster)),
		Server:            pair(naming.ServerSecret(cluster)),
		Replication:       pair(naming.ReplicationSecret(cluster)),
	}
}

// items are a list's objects.
func items(list client.ObjectList) ([]client.Object, error) {
	raw, err := apimeta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	all := make([]client.Object, 0, len(raw))
	for _, item := range raw {
		object, ok := item.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is no object", item)
		}
		all = append(all, object)
	}
	return all, nil
}
