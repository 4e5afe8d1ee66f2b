package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// expiryGrace is how much later than a backup ended the repository must have been read to say that it is gone.
const expiryGrace = time.Minute

// Heard is what somebody who can be asked said last.
type Heard struct {
	PodUID string
	// Status is unknown while it is not heard, which it has not been for UnheardFor.
	Status     facts.Known[agentapi.Status]
	UnheardFor time.Duration
}

// Reports are what all that are followed for the cluster said last, by name: its instances and its repository host.
func (a *Agents) Reports(cluster types.NamespacedName) map[string]Heard {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]Heard{}
	c := a.clusters[cluster]
	if c == nil {
		return all
	}
	for name, s := range c.streams {
		heard := Heard{PodUID: s.target.PodUID}
		if s.heard {
			heard.Status = facts.Know(s.last)
		} else {
			heard.UnheardFor = time.Since(s.since)
		}
		all[name] = heard
	}
	return all
}

// repositoryTarget is where the repository host can be heard, and its Pod; nil: there is none.
func repositoryTarget(c *v1.PostgresCluster, objects Objects) (*facts.Pod, []Target) {
	name := naming.Repository(c.Name)
	set, ok := get[*appsv1.StatefulSet](objects, "StatefulSet", name)
	if !ok {
		return nil, nil
	}
	pod, ok := get[*corev1.Pod](objects, "Pod", naming.Pod(name))
	if !ok {
		return nil, nil
	}
	known := podFacts(pod, set)
	if known.IP == "" || known.Deleting {
		return known, nil
	}
	return known, []Target{{
		Instance: name, PodUID: known.UID, Address: known.IP, ServerName: naming.ServiceHost(naming.Repository(c.Name), c.Namespace),
	}}
}

// repositoryVolume is the volume of the backups; nil: there is none.
func repositoryVolume(objects Objects, cluster string) *facts.Volume {
	claim, ok := get[*corev1.PersistentVolumeClaim](objects, "PersistentVolumeClaim", naming.RepositoryVolume(cluster))
	if !ok {
		return nil
	}
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	v := &facts.Volume{Bound: claim.Spec.VolumeName != "", Deleting: !claim.DeletionTimestamp.IsZero(), Bytes: size.Value()}
	if claim.Spec.StorageClassName != nil {
		v.Class = *claim.Spec.StorageClassName
	}
	return v
}

// backups is what is known of the cluster's backups; nil: the spec wants none.
func (r *Reader) backups(ctx context.Context, c *v1.PostgresCluster, f *facts.Cluster, objects Objects, wanted Wanted) (*facts.Backup, error) {
	if c.Spec.Backup == nil || f.Deleting {
		return nil, nil //nolint:nilnil // there is nothing to know
	}
	host, _ := repositoryTarget(c, objects)
	b := &facts.Backup{Host: host, Missing: c.Spec.Backup.Repository.OnVolume() && host == nil}
	b.Interval, b.Next = due(wanted.Schedule, wanted.TimeZone, f.Now)
	reports := r.Agents.Reports(client.ObjectKeyFromObject(c))
	b.Archive, b.Repository = words(reports, f.Holder, c)
	if host != nil && reports[naming.Repository(c.Name)].PodUID == host.UID {
		b.HostReport = reports[naming.Repository(c.Name)].Status
	}
	all, err := r.BackupsOf(ctx, client.ObjectKeyFromObject(c))
	if err != nil {
		return nil, err
	}
	r.asked(c, b, all, wanted)
	if f.Suspend {
		b.Next = time.Time{} // none is due until somebody wakes it
	} else {
		b.Course = course(objects, c, all, wanted, f.Now)
	}
	return b, nil
}

// course is what became of the times at which backups were due, since what the status accounts for.
func course(objects Objects, c *v1.PostgresCluster, all []v1.PostgresBackup, wanted Wanted, now time.Time) backup.Course {
	schedule, err := backup.ParseSchedule(wanted.Schedule)
	told := c.Status.Backup
	if err != nil || told == nil {
		return backup.Course{}
	}
	if location, err := backup.ParseTimeZone(wanted.TimeZone); err == nil {
		now = now.In(location)
	}
	var begun []time.Time
	if job, ok := get[*batchv1.CronJob](objects, "CronJob", naming.BackupJob(c.Name)); ok && job.Status.LastScheduleTime != nil {
		begun = append(begun, job.Status.LastScheduleTime.Time)
	}
	for i := range all {
		if at, ok := naming.ScheduledFor(c.Name, all[i].Name); ok {
			begun = append(begun, at)
		}
	}
	from := ptr.Deref(cmp.Or(told.WaitingSince, told.NextScheduled), metav1.Time{})
	return schedule.Course(from.Time, begun, now)
}

// due is about how long two runs of the schedule are apart, and when the next one is due; zero: there is no schedule.
func due(text, zone string, now time.Time) (interval time.Duration, next time.Time) {
	schedule, err := backup.ParseSchedule(text)
	if text == "" || err != nil {
		return 0, time.Time{}
	}
	if location, err := backup.ParseTimeZone(zone); err == nil {
		now = now.In(location)
	}
	return schedule.Interval(now), schedule.Next(now)
}

// finalBackup is what is known of the backup to make before the cluster goes; nil: none is wanted. Without data there is nothing to save.
func (r *Reader) finalBackup(ctx context.Context, c *v1.PostgresCluster, f *facts.Cluster) (*facts.WantedBackup, error) {
	if !f.Deleting || !c.Spec.Deletion.FinalBackup || c.Spec.Backup == nil || f.SystemIdentifier == "" ||
		c.Annotations[naming.AnnotationSkipFinalBackup] == "true" {
		return nil, nil //nolint:nilnil // there is nothing to know
	}
	final := &facts.WantedBackup{Name: naming.FinalBackup(c.Name, string(c.UID))}
	b, err := r.Backup(ctx, types.NamespacedName{Namespace: c.Namespace, Name: final.Name})
	if apierrors.IsNotFound(err) {
		return final, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading PostgresBackup %s/%s: %w", c.Namespace, final.Name, err)
	}
	final.Asked, final.Phase, final.Message = true, b.Status.Phase, b.Status.Message
	return final, nil
}

// recovery is what is wanted of a recovery in place, and how far it is.
func (r *Reader) recovery(ctx context.Context, c *v1.PostgresCluster) (facts.Recovery, error) {
	known := facts.Recovery{Status: c.Status.Recovery.DeepCopy()}
	if text := c.Annotations[naming.AnnotationRecoverInPlace]; text != "" {
		wish, err := backup.ParseInPlace(text)
		if err != nil {
			known.BadWish = fmt.Sprintf("annotation %s: %v", naming.AnnotationRecoverInPlace, err)
		} else {
			known.Wish = &wish
		}
	}
	if s := known.Status; s == nil || s.Phase != v1.RecoverySafetyBackup {
		return known, nil
	}
	known.Safety = &facts.WantedBackup{Name: known.Status.SafetyBackup}
	b, err := r.Backup(ctx, types.NamespacedName{Namespace: c.Namespace, Name: known.Safety.Name})
	if apierrors.IsNotFound(err) {
		return known, nil
	}
	if err != nil {
		return known, fmt.Errorf("reading PostgresBackup %s/%s: %w", c.Namespace, known.Safety.Name, err)
	}
	known.Safety.Asked, known.Safety.Phase, known.Safety.Message = true, b.Status.Phase, b.Status.Message
	return known, nil
}

// backupRecords are the PostgresBackups that go with the cluster, also those of an earlier one of its name: what they tell of is in the
// same place.
func (r *Reader) backupRecords(ctx context.Context, c *v1.PostgresCluster, f *facts.Cluster) ([]facts.BackupRecord, error) {
	if !f.Deleting || !f.DeleteBackups {
		return nil, nil
	}
	all, err := r.BackupsOf(ctx, client.ObjectKeyFromObject(c))
	if err != nil {
		return nil, err
	}
	records := make([]facts.BackupRecord, 0, len(all))
	for i := range all {
		records = append(records, facts.BackupRecord{Name: all[i].Name, UID: string(all[i].UID)})
	}
	return records, nil
}

// repositoryImage is the image that the primary's Pod has; else that of the repository host's StatefulSet; empty: neither is there.
func repositoryImage(objects Objects, holder, cluster string) string {
	if pod, ok := get[*corev1.Pod](objects, "Pod", naming.Pod(holder)); ok {
		if image := imageOf(pod.Spec); image != "" {
			return image
		}
	}
	if set, ok := get[*appsv1.StatefulSet](objects, "StatefulSet", naming.Repository(cluster)); ok {
		for _, container := range set.Spec.Template.Spec.Containers {
			if container.Name == naming.ContainerRepository {
				return container.Image
			}
		}
	}
	return ""
}

// words are what the primary says of its archiver, and what is said of the repository: by the repository host or, without one, the
// primary; or else by a standby that has made a backup since, and knows more.
func words(all map[string]Heard, holder string, c *v1.PostgresCluster) (archive facts.Known[agentapi.Archive], repository facts.Known[agentapi.RepositoryReport]) {
	if status, known := all[holder].Status.Get(); known && status.Archive != nil {
		archive = facts.Know(*status.Archive)
	}
	first := holder
	if c.Spec.Backup.Repository.OnVolume() {
		first = naming.Repository(c.Name)
	}
	var newest agentapi.RepositoryReport
	if status, known := all[first].Status.Get(); known && status.Repository != nil {
		newest = *status.Repository
		repository = facts.Know(newest)
	}
	for _, heard := range all {
		status, known := heard.Status.Get()
		if !known || status.Repository == nil || !status.Repository.Known || newest.Error != "" {
			continue
		}
		if report := *status.Repository; report.At.After(newest.At) && (newest.Stanza == "" || newest.Stanza == report.Stanza) {
			newest, repository = report, facts.Know(report)
		}
	}
	return archive, repository
}

// asked adds what is known of the cluster's PostgresBackups.
func (r *Reader) asked(c *v1.PostgresCluster, b *facts.Backup, all []v1.PostgresBackup, wanted Wanted) {
	report, _ := b.Repository.Get()
	first, wants := firstBackup(c.Name, report, all, wanted)
	if wants && named(all, first) == nil {
		b.First = first
	}
	b.BeforeUpgrade = beforeUpgrade(c, all)
	var last time.Time
	for i := range all {
		one := &all[i]
		switch one.Status.Phase {
		case v1.BackupCompleted, v1.BackupFailed:
		default:
			b.Asked = append(b.Asked, one.Name)
			continue
		}
		if one.Name == first && wants && failedLongAgo(one, r.Now()) { // so that it is asked for again
			b.Expired = append(b.Expired, facts.BackupRecord{Name: one.Name, UID: string(one.UID)})
		} else if one.Name == first {
			// it stays as long as its stanza, and its timeline if it has one, are the cluster's: it says that there was a first one
		} else if expired(one, report, wanted, r.Now()) {
			b.Expired = append(b.Expired, facts.BackupRecord{Name: one.Name, UID: string(one.UID)})
			continue
		}
		if one.Status.FinishedAt == nil || !one.Status.FinishedAt.After(last) {
			continue
		}
		last, b.Failed = one.Status.FinishedAt.Time, nil
		if one.Status.Phase == v1.BackupFailed {
			b.Failed = &facts.FailedBackup{Name: one.Name, Message: one.Status.Message, At: last}
		}
	}
}

// beforeUpgrade is the backup that a major upgrade waits for before it begins; nil: none does, or somebody has said that it shall not.
func beforeUpgrade(c *v1.PostgresCluster, all []v1.PostgresBackup) *facts.WantedBackup {
	u := c.Status.Upgrade
	if u == nil || u.Phase != v1.UpgradePreflight || u.StartedAt == nil || c.Annotations[naming.AnnotationSkipUpgradeBackup] == "true" {
		return nil
	}
	wanted := &facts.WantedBackup{Name: naming.UpgradeBackup(c.Name, u.To, u.StartedAt.Time)}
	if one := named(all, wanted.Name); one != nil {
		wanted.Asked, wanted.Phase, wanted.Message = true, one.Status.Phase, one.Status.Message
	}
	return wanted
}

// named is the PostgresBackup of that name; nil: there is none.
func named(all []v1.PostgresBackup, name string) *v1.PostgresBackup {
	i := slices.IndexFunc(all, func(one v1.PostgresBackup) bool { return one.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// firstBackup is the name of the PostgresBackup that is made as soon as the newest cannot be recovered from what the repository has, and whether that
// is so now.
func firstBackup(cluster string, report agentapi.RepositoryReport, all []v1.PostgresBackup, wanted Wanted) (name string, due bool) {
	mark, due := report.Due()
	name = naming.FirstBackup(cluster, report.Stanza, mark, "")
	if one := named(all, name); one != nil && wanted.isElsewhere(one) {
		name = naming.FirstBackup(cluster, report.Stanza, mark, wanted.Repository)
	}
	return name, due
}

// anewAfter is when a first backup that failed is asked for again.
const anewAfter = time.Hour

// failedLongAgo says whether the PostgresBackup failed so long ago that it may be tried again.
func failedLongAgo(one *v1.PostgresBackup, now time.Time) bool {
	return one.Status.Phase == v1.BackupFailed && one.Status.FinishedAt != nil && now.Sub(one.Status.FinishedAt.Time) > anewAfter && one.DeletionTimestamp.IsZero()
}

// expired says whether the PostgresBackup tells of nothing any more: its backup was removed from the repository, as it is known since
// the backup ended, or goes with those of its generation; or it failed longer ago than backups are kept. Of a repository that the cluster had
// before nothing is known.
func expired(one *v1.PostgresBackup, report agentapi.RepositoryReport, wanted Wanted, now time.Time) bool {
	finished, retention := one.Status.FinishedAt, wanted.Retention
	if finished == nil || !one.DeletionTimestamp.IsZero() {
		return false
	}
	if one.Status.Phase == v1.BackupFailed {
		return retention > 0 && now.Sub(finished.Time) > retention
	}
	_, system, ok := backup.ParseStanza(report.Stanza)
	if !ok || !report.Known || !NewerThan(report, finished.Time) || wanted.isElsewhere(one) {
		return false
	}
	if system != one.Status.SystemIdentifier { // of an earlier generation: see backup.Outlived
		return now.Sub(finished.Time) > retention && backup.Covers(report.Backups, retention, now)
	}
	return !slices.ContainsFunc(report.Backups, func(b backup.Backup) bool { return b.Label == one.Status.Label })
}

// BackupsOf are the PostgresBackups of the cluster.
func (r *Reader) BackupsOf(ctx context.Context, cluster types.NamespacedName) ([]v1.PostgresBackup, error) {
	list := &v1.PostgresBackupList{}
	if err := r.Cache.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the PostgresBackups of %s: %w", cluster.Namespace, err)
	}
	var all []v1.PostgresBackup
	for _, one := range list.Items {
		if one.Spec.Cluster == cluster.Name {
			all = append(all, one)
		}
	}
	return all, nil
}

// Backup reads a PostgresBackup.
func (r *Reader) Backup(ctx context.Context, key types.NamespacedName) (*v1.PostgresBackup, error) {
	b := &v1.PostgresBackup{}
	return b, r.Cache.Get(ctx, key, b)
}

// Everything is all PostgresClusters and PostgresBackups that the operator looks after.
func (r *Reader) Everything(ctx context.Context) ([]v1.PostgresCluster, []v1.PostgresBackup, error) {
	clusters, backups := &v1.PostgresClusterList{}, &v1.PostgresBackupList{}
	if err := r.Cache.List(ctx, clusters); err != nil {
		return nil, nil, fmt.Errorf("listing the PostgresClusters: %w", err)
	}
	if err := r.Cache.List(ctx, backups); err != nil {
		return nil, nil, fmt.Errorf("listing the PostgresBackups: %w", err)
	}
	return clusters.Items, backups.Items, nil
}
