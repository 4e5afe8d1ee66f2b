package build

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	batchac "k8s.io/client-go/applyconfigurations/batch/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// DefaultRetention is for how long backups are kept if the spec says nothing.
	DefaultRetention = "30d"
	defaultFullEvery = "7d"
	// jobAttempts is how often the Pod of a scheduled backup may fail for reasons of its own, such as a lost node: the next one goes on
	// waiting for the same backup.
	jobAttempts = 3
	// jobKept, in seconds, is how long a Job is kept that has ended.
	jobKept = 24 * 60 * 60
)

// backupConfig is what the agents are told of backups; nil: there are none.
func backupConfig(c *v1.PostgresCluster) *agentapi.BackupConfig {
	if c.Spec.Backup == nil {
		return nil
	}
	return &agentapi.BackupConfig{
		Repository:    repositoryOf(c.Spec.Backup.Repository, c.Name, c.Namespace),
		RetentionDays: int(Period(c.Spec.Backup.Retention, DefaultRetention) / (24 * time.Hour)),
	}
}

// Period is a period of the spec, or the default if there is none that can be understood.
func Period(text v1.Period, otherwise string) time.Duration {
	period, err := backup.ParsePeriod(string(text))
	if err != nil {
		period, _ = backup.ParsePeriod(otherwise) // a constant
	}
	return period
}

// FullEvery is how often a full backup is made.
func FullEvery(c *v1.PostgresCluster) time.Duration {
	return Period(c.Spec.Backup.FullEvery, defaultFullEvery)
}

// repositoryOf is where the backups of the cluster of that name and namespace are. The path has both, so that no two clusters share one.
func repositoryOf(spec v1.RepositorySpec, cluster, namespace string) agentapi.Repository {
	repository := agentapi.Repository{Kind: agentapi.RepositoryHost, Path: "repository", Host: naming.ServiceHost(naming.Repository(cluster), namespace)}
	if !spec.OnVolume() {
		repository = bucketOf(spec)
		repository.Path = path.Join(repository.Path, namespace, cluster)
	}
	if spec.Encryption != nil {
		repository.Encrypted, repository.EncryptionSecret = true, spec.Encryption.Secret
	}
	return repository
}

// BackupLocation says where the backup of that label is, of the cluster's present PostgreSQL system; empty: that is not known.
func BackupLocation(c *v1.PostgresCluster, label string) string {
	major, err := strconv.Atoi(majorOf(c.Status.Version, ""))
	if c.Spec.Backup == nil || err != nil || c.Status.SystemIdentifier == "" {
		return ""
	}
	before, after := place(c)
	return before + path.Join("backup", backup.Stanza(major, c.Status.SystemIdentifier), label) + after
}

// InRepository says whether the backup of that location is in the repository that the cluster has now.
func InRepository(c *v1.PostgresCluster, location string) bool {
	before, after := place(c)
	return strings.HasPrefix(location, before) && strings.HasSuffix(location, after)
}

// RepositoryName is a short name of the cluster's repository, for names of objects.
func RepositoryName(c *v1.PostgresCluster) string {
	before, after := place(c)
	sum := sha256.Sum256([]byte(before + after))
	return hex.EncodeToString(sum[:4])
}

// place is what the location of a backup in the cluster's repository begins and ends with.
func place(c *v1.PostgresCluster) (before, after string) {
	repository := repositoryOf(c.Spec.Backup.Repository, c.Name, c.Namespace)
	if c.Spec.Backup.Repository.OnVolume() {
		return repository.Path + "/", " in PersistentVolumeClaim " + naming.RepositoryVolume(c.Name)
	}
	return bucketScheme[repository.Kind] + "://" + path.Join(repository.Account, repository.Bucket, repository.Path) + "/", " at " + repository.Endpoint
}

// recovery is the backup that the first instance's data is made from; nil: it is new.
func recovery(c *v1.PostgresCluster) *agentapi.Recovery {
	if c.Spec.Bootstrap == nil || c.Spec.Bootstrap.Recovery == nil {
		return nil
	}
	spec := c.Spec.Bootstrap.Recovery
	namespace := spec.From.Namespace
	if namespace == "" {
		namespace = c.Namespace
	}
	target := backup.Target{
		Backup: spec.Backup, LSN: spec.TargetLSN, Name: spec.TargetName, Immediate: spec.TargetImmediate, Exclusive: spec.Exclusive,
	}
	if spec.TargetTimeline != nil {
		target.Timeline = *spec.TargetTimeline
	}
	if spec.TargetTime != "" {
		if at, err := backup.ParseTime(spec.TargetTime); err == nil { // the schema lets nothing else in
			target.Time = &at
		}
	}
	return &agentapi.Recovery{Repository: repositoryOf(spec.From.Repository, spec.From.Cluster, namespace), Target: target}
}

// repositorySecrets mount the secrets of the repository into a folder. They need not exist: the agent says what is missing.
func repositorySecrets(spec v1.RepositorySpec, dir string) []*coreac.VolumeProjectionApplyConfiguration {
	var all []*coreac.VolumeProjectionApplyConfiguration
	optional := func(secret string, keys ...string) *coreac.SecretProjectionApplyConfiguration {
		projection := projectedSecret(secret, dir, keys...)
		all = append(all, projection)
		return projection.Secret.WithOptional(true)
	}
	switch bucket := bucketOf(spec); {
	case spec.S3 != nil:
		optional(bucket.CredentialsSecret, naming.KeyS3Key, naming.KeyS3Secret, naming.KeyCACert)
	case bucket.CredentialsSecret != "":
		optional(bucket.CredentialsSecret, naming.KeyCACert).
			WithItems(coreac.KeyToPath().WithKey(bucket.CredentialsKey).WithPath(dir + "/" + naming.FileCredentials))
	}
	if spec.Encryption != nil {
		optional(spec.Encryption.Secret, naming.KeyPassphrase)
	}
	return all
}

// backupSecrets mount what an instance needs for backups and for a recovery.
func backupSecrets(c *v1.PostgresCluster) []*coreac.VolumeProjectionApplyConfiguration {
	var all []*coreac.VolumeProjectionApplyConfiguration
	if b := c.Spec.Backup; b != nil && !b.Repository.OnVolume() { // a repository host has its own
		all = append(all, repositorySecrets(b.Repository, naming.DirBackup)...)
	}
	if c.Spec.Bootstrap == nil || c.Spec.Bootstrap.Recovery == nil {
		return all
	}
	from := c.Spec.Bootstrap.Recovery.From
	if !from.Repository.OnVolume() {
		return append(all, repositorySecrets(from.Repository, naming.DirRecovery)...)
	}
	if from.Cluster != c.Name { // by its certificate we are let in by that cluster's repository host
		projection := projectedSecret(naming.ServerSecret(from.Cluster), naming.DirRecovery, naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert)
		projection.Secret.WithOptional(true)
		all = append(all, projection)
	}
	return all
}

// mountedForBackups are the names of the Secrets that instances mount for backups, and of the key that the spec chooses: part of what
// makes another Pod.
func mountedForBackups(c *v1.PostgresCluster) []string {
	if c.Spec.Backup == nil || c.Spec.Backup.Repository.OnVolume() {
		return nil
	}
	var names []string
	for _, projection := range repositorySecrets(c.Spec.Backup.Repository, naming.DirBackup) {
		names = append(names, *projection.Secret.Name)
	}
	if bucket := bucketOf(c.Spec.Backup.Repository); bucket.CredentialsKey != "" {
		names = append(names, bucket.CredentialsSecret+"/"+bucket.CredentialsKey)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Schedule is the schedule of backups as a CronJob takes it; false if there is none, or none that can be carried out.
func Schedule(c *v1.PostgresCluster) (schedule, zone string, ok bool) {
	if c.Spec.Backup == nil || c.Spec.Backup.Schedule == nil {
		return "", "", false
	}
	return feasible(c, *c.Spec.Backup.Schedule)
}

// feasible is a schedule of spec.backup as a CronJob takes it; false if it cannot be carried out.
func feasible(c *v1.PostgresCluster, text string) (schedule, zone string, ok bool) {
	zone = cmp.Or(c.Spec.Backup.TimeZone, "Etc/UTC")
	if _, err := backup.ParseTimeZone(zone); err != nil {
		return "", "", false
	}
	if _, err := backup.ParseSchedule(text); err != nil {
		return "", "", false
	}
	return strings.TrimSpace(text), zone, true
}

// backupPorts are the ports of an instance that is backed up.
func backupPorts(c *v1.PostgresCluster) []*coreac.ContainerPortApplyConfiguration {
	if c.Spec.Backup == nil {
		return nil
	}
	return []*coreac.ContainerPortApplyConfiguration{containerPort(naming.PortBackupName, naming.PortBackup)}
}

// scheduled are the CronJob that asks for backups, and what it needs to.
func scheduled(in Input) []Object {
	c := in.Cluster
	schedule, zone, ok := Schedule(c)
	if !ok {
		return nil
	}
	name := naming.BackupJob(c.Name)
	return []Object{
		coreac.ServiceAccount(name, c.Namespace).WithLabels(in.labels()).WithOwnerReferences(ownerReference(c)).
			WithAutomountServiceAccountToken(false),
		rbacac.Role(name, c.Namespace).WithLabels(in.labels()).WithOwnerReferences(ownerReference(c)).
			WithRules(rbacac.PolicyRule().WithAPIGroups(v1.Group).WithResources("postgresbackups").WithVerbs("create", "get")),
		rbacac.RoleBinding(name, c.Namespace).WithLabels(in.labels()).WithOwnerReferences(ownerReference(c)).
			WithRoleRef(rbacac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
			WithSubjects(rbacac.Subject().WithKind("ServiceAccount").WithNamespace(c.Namespace).WithName(name)),
		batchac.CronJob(name, c.Namespace).WithLabels(in.labels()).WithOwnerReferences(ownerReference(c)).
			WithSpec(batchac.CronJobSpec().
				WithSchedule(schedule).
				WithTimeZone(zone).
				WithConcurrencyPolicy(batchv1.ForbidConcurrent).
				WithStartingDeadlineSeconds(int64(backup.StartingDeadline / time.Second)).
				WithSuspend(in.Stopped).
				WithSuccessfulJobsHistoryLimit(1).
				WithFailedJobsHistoryLimit(3).
				WithJobTemplate(batchac.JobTemplateSpec().
					WithLabels(in.labels()).
					WithSpec(batchac.JobSpec().
						WithBackoffLimit(jobAttempts).
						WithTTLSecondsAfterFinished(jobKept).
						WithTemplate(coreac.PodTemplateSpec().WithLabels(naming.BackupJobLabels(c.Name)).WithSpec(backupPod(in)))))),
	}
}

// backupPod asks for a backup and waits for it.
func backupPod(in Input) *coreac.PodSpecApplyConfiguration {
	c := in.Cluster
	spec := coreac.PodSpec().
		WithServiceAccountName(naming.BackupJob(c.Name)).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithRestartPolicy(corev1.RestartPolicyNever).
		WithSecurityContext(podSecurity(in.Settings)).
		WithContainers(coreac.Container().
			WithName(naming.ContainerBackup).
			WithImage(in.Settings.OperatorImage).
			WithArgs("backup", "--cluster="+c.Name).
			WithEnv(fieldEnv("POD_NAMESPACE", "metadata.namespace"), fieldEnv("JOB_NAME", "metadata.labels['batch.kubernetes.io/job-name']")).
			WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
			WithResources(small()).
			WithSecurityContext(containerSecurity()))
	for _, s := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	return spec
}

// small are the resources of a container that does nearly nothing.
func small() *coreac.ResourceRequirementsApplyConfiguration {
	return coreac.ResourceRequirements().WithRequests(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
	}).WithLimits(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	})
}
