package validate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// backups: the schedule fires some day, in a time zone that exists, and what a recovery begins with can be reached.
func backups(q question) Verdict {
	return Verdict{Errors: slices.Concat(backupErrors(q.after), finalBackup(q.after), recoverySource(q))}
}

// finalBackup: a last backup needs a place, which does not go with the cluster.
func finalBackup(c *v1.PostgresCluster) field.ErrorList {
	path := field.NewPath("spec", "deletion", "finalBackup")
	switch {
	case !c.Spec.Deletion.FinalBackup:
		return nil
	case c.Spec.Backup == nil:
		return field.ErrorList{field.Invalid(path, true, "needs spec.backup, which says where the last backup goes; add it, or leave finalBackup out")}
	case c.Spec.Deletion.Backups == v1.Delete && c.Spec.Backup.Repository.OnVolume():
		return field.ErrorList{field.Invalid(path, true, "spec.deletion.backups: Delete would remove the volume with the last backup at once; set that to Retain, or leave finalBackup out")}
	}
	return nil
}

// maxCronJobName is how long the name of a CronJob may be, so that there is room for the time in those of its Jobs.
const maxCronJobName = 52

// backupErrors are what cannot be carried out of spec.backup.
func backupErrors(c *v1.PostgresCluster) field.ErrorList {
	b, path := c.Spec.Backup, field.NewPath("spec", "backup")
	if b == nil {
		return nil
	}
	var errs field.ErrorList
	if longest := maxCronJobName - len(naming.BackupJob("")); b.Schedule != nil && len(c.Name) > longest {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf(
			"must have at most %d characters with spec.backup.schedule, since a CronJob is named after it; choose a shorter name, or leave the schedule out", longest)))
	}
	if longest := maxCronJobName - len(naming.VerifyJob("")); b.Verify != nil && len(c.Name) > longest {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf(
			"must have at most %d characters with spec.backup.verify, since a CronJob is named after it; choose a shorter name, or leave verify out", longest)))
	}
	if b.Schedule != nil {
		errs = append(errs, scheduleErrors(path.Child("schedule"), *b.Schedule)...)
	}
	if b.Verify != nil {
		errs = append(errs, scheduleErrors(path.Child("verify", "schedule"), b.Verify.Schedule)...)
	}
	errs = append(errs, timeZoneErrors(path.Child("timeZone"), b.TimeZone)...)
	for _, period := range []struct {
		name string
		text v1.Period
	}{{"retention", b.Retention}, {"fullEvery", b.FullEvery}} {
		if _, err := backup.ParsePeriod(string(period.text)); err != nil && period.text != "" {
			errs = append(errs, field.Invalid(path.Child(period.name), string(period.text), err.Error()))
		}
	}
	return errs
}

// recoverySource: a volume is only reached within its namespace, and by a cluster of another name only while its own is there.
func recoverySource(q question) field.ErrorList {
	if q.before != nil || q.after.Spec.Bootstrap == nil || q.after.Spec.Bootstrap.Recovery == nil {
		return nil
	}
	recovery := q.after.Spec.Bootstrap.Recovery
	path := field.NewPath("spec", "bootstrap", "recovery")
	var errs field.ErrorList
	if recovery.TargetTime != "" {
		if _, err := backup.ParseTime(recovery.TargetTime); err != nil {
			errs = append(errs, field.Invalid(path.Child("targetTime"), recovery.TargetTime, err.Error()))
		}
	}
	from := recovery.From
	if !from.Repository.OnVolume() {
		return errs
	}
	if from.Namespace != "" && from.Namespace != q.after.Namespace {
		errs = append(errs, field.Invalid(path.Child("from", "namespace"), from.Namespace,
			"a volume is only reached from its own namespace; name a repository in a bucket in from.repository, or create the cluster in that namespace"))
	}
	if from.Cluster == q.after.Name && (q.after.Spec.Backup == nil || !q.after.Spec.Backup.Repository.OnVolume()) {
		errs = append(errs, field.Required(field.NewPath("spec", "backup"),
			"a cluster that is recovered from the volume of an earlier one of its name takes that volume over as its repository: add spec.backup with the same repository"))
	}
	return errs
}

// backupNames are the objects that a cluster needs for backups.
func backupNames(c *v1.PostgresCluster) []facts.Object {
	job := naming.BackupJob(c.Name)
	return []facts.Object{
		{Kind: "StatefulSet", Name: naming.Repository(c.Name)}, {Kind: "Service", Name: naming.Repository(c.Name)},
		{Kind: "PersistentVolumeClaim", Name: naming.RepositoryVolume(c.Name)},
		{Kind: "CronJob", Name: job}, {Kind: "CronJob", Name: naming.VerifyJob(c.Name)}, {Kind: "ServiceAccount", Name: job}, {Kind: "Role", Name: job}, {Kind: "RoleBinding", Name: job},
	}
}
