package build

import (
	"cmp"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	batchac "k8s.io/client-go/applyconfigurations/batch/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/backup"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// verifyKept, in seconds, is how long a Job is kept that has verified a backup. The Pod keeps the result, for an operator that is down, and
// its volume, which should be free again soon.
const verifyKept = 6 * 60 * 60

// VerifySchedule is the schedule of verifications as a CronJob takes it; false if there is none, or none that can be carried out.
func VerifySchedule(c *v1.PostgresCluster) (schedule, zone string, ok bool) {
	if c.Spec.Backup == nil || c.Spec.Backup.Verify == nil {
		return "", "", false
	}
	return feasible(c, c.Spec.Backup.Verify.Schedule)
}

// verification is the CronJob that verifies backups. Each Job has one Pod, whose result is its own: what it found would be found again.
// Only a Pod that Kubernetes itself ends, for a drain, say, is followed by another.
func verification(in Input) []Object {
	c := in.Cluster
	schedule, zone, ok := VerifySchedule(c)
	if !ok {
		return nil
	}
	return []Object{batchac.CronJob(naming.VerifyJob(c.Name), c.Namespace).WithLabels(in.labels()).WithOwnerReferences(ownerReference(c)).
		WithSpec(batchac.CronJobSpec().
			WithSchedule(schedule).
			WithTimeZone(zone).
			WithConcurrencyPolicy(batchv1.ForbidConcurrent).
			WithStartingDeadlineSeconds(int64(backup.StartingDeadline / time.Second)).
			WithSuspend(in.Stopped).
			WithSuccessfulJobsHistoryLimit(1).
			WithFailedJobsHistoryLimit(1).
			WithJobTemplate(batchac.JobTemplateSpec().
				WithLabels(in.labels()).
				WithSpec(batchac.JobSpec().
					WithBackoffLimit(0).
					WithPodFailurePolicy(batchac.PodFailurePolicy().WithRules(batchac.PodFailurePolicyRule().
						WithAction(batchv1.PodFailurePolicyActionIgnore).
						WithOnPodConditions(batchac.PodFailurePolicyOnPodConditionsPattern().WithType(corev1.DisruptionTarget).WithStatus(corev1.ConditionTrue)))).
					WithActiveDeadlineSeconds(int64((backup.VerifyBound + backup.VerifyWait) / time.Second)).
					WithTTLSecondsAfterFinished(verifyKept).
					WithTemplate(coreac.PodTemplateSpec().WithLabels(naming.VerifyLabels(c.Name)).WithSpec(verifyPod(in))))))}
}

// verifyPod restores a backup and checks it. It has no right to anything in Kubernetes, and keeps away from the primary.
func verifyPod(in Input) *coreac.PodSpecApplyConfiguration {
	c := in.Cluster
	var secrets []*coreac.VolumeProjectionApplyConfiguration
	spec := coreac.PodSpec()
	if !c.Spec.Backup.Repository.OnVolume() { // a repository host has its own; the cloud's identity for a bucket is the instances'
		secrets = repositorySecrets(c.Spec.Backup.Repository, naming.DirBackup)
		spec.WithServiceAccountName(naming.ServiceAccount(c.Name))
	}
	spec.
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithRestartPolicy(corev1.RestartPolicyNever).
		WithSecurityContext(podSecurity(in.Settings)).
		WithAffinity(awayFrom(naming.RoleSelector(c.Name, naming.RolePrimary))).
		WithInitContainers(installContainer(in)).
		WithContainers(coreac.Container().
			WithName(naming.ContainerVerify).
			WithImage(cmp.Or(in.RepositoryImage, in.image(in.live()))). // the same PostgreSQL and pgBackRest as the primary's
			WithCommand(naming.PathAgentBinary, "verify", "--timeout="+backup.VerifyBound.String()).
			WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
			WithResources(verifyResources(c)).
			WithSecurityContext(containerSecurity()).
			WithVolumeMounts(engineMounts()...)).
		WithVolumes(engineVolumes(c, verifyVolume(c), secrets)...)
	allow(spec, c)
	for _, s := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	return spec
}

// verifyVolume comes and goes with the Pod.
func verifyVolume(c *v1.PostgresCluster) *coreac.VolumeApplyConfiguration {
	size, class := StorageSize(c), c.Spec.Storage.StorageClassName
	wanted := c.Spec.Backup.Verify.Storage
	if wanted.Size != nil {
		size = *wanted.Size
	}
	if wanted.StorageClassName != nil {
		class = wanted.StorageClassName
	}
	claim := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != nil {
		claim.WithStorageClassName(*class)
	}
	return coreac.Volume().WithName(naming.VolumeData).WithEphemeral(coreac.EphemeralVolumeSource().WithVolumeClaimTemplate(
		coreac.PersistentVolumeClaimTemplate().WithLabels(naming.VerifyVolumeLabels(c.Name)).WithSpec(claim)))
}

// verifyResources are small if the spec does not say otherwise: a verification has time.
func verifyResources(c *v1.PostgresCluster) *coreac.ResourceRequirementsApplyConfiguration {
	if wanted := c.Spec.Backup.Verify.Resources; wanted != nil {
		return resources(wanted)
	}
	return resources(nil).WithLimits(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	})
}
