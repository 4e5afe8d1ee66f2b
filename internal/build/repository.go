package build

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

const (
	// repositoryPart is how many times as large as an instance's volume that of the repository is, if the spec says nothing.
	repositoryPart = 4
	// repositoryGrace, in seconds, is the time that a repository host has to end: a backup that runs is given up.
	repositoryGrace = 30
)

// HasRepositoryHost says whether the cluster's backups go to a volume, which a Pod of its own serves.
func HasRepositoryHost(c *v1.PostgresCluster) bool {
	return c.Spec.Backup != nil && c.Spec.Backup.Repository.OnVolume()
}

// RepositorySize is the size of the repository's volume.
func RepositorySize(c *v1.PostgresCluster) resource.Quantity {
	if c.Spec.Backup != nil && c.Spec.Backup.Repository.Volume != nil && c.Spec.Backup.Repository.Volume.Size != nil {
		return *c.Spec.Backup.Repository.Volume.Size
	}
	storage := StorageSize(c)
	return *resource.NewQuantity(repositoryPart*storage.Value(), resource.BinarySI)
}

// repositoryHost are the objects of the Pod that has the volume with the backups; none if they go elsewhere.
func repositoryHost(in Input) []Object {
	c := in.Cluster
	if !HasRepositoryHost(c) {
		return nil
	}
	name, selector := naming.Repository(c.Name), naming.RepositorySelector(c.Name)
	service := service(in, name, selector)
	service.Spec.WithClusterIP(corev1.ClusterIPNone).WithPublishNotReadyAddresses(true).Ports = nil
	service.Spec.WithPorts(servicePort(naming.PortBackupName, naming.PortBackup), servicePort(naming.PortAgentName, naming.PortAgent))
	set := appsac.StatefulSet(name, c.Namespace).
		WithLabels(naming.RepositoryLabels(c.Name)).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(appsac.StatefulSetSpec().
			WithReplicas(repositoryReplicas(in)).
			WithServiceName(name).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsac.StatefulSetUpdateStrategy().WithType(appsv1.RollingUpdateStatefulSetStrategyType)).
			WithRevisionHistoryLimit(2).
			WithSelector(labelSelector(selector)).
			WithTemplate(coreac.PodTemplateSpec().WithLabels(naming.RepositoryLabels(c.Name)).WithSpec(repositoryPod(in))))
	return []Object{service, repositoryVolume(in), set}
}

// repositoryReplicas is the number of the host's Pods: one as long as there is WAL to come.
func repositoryReplicas(in Input) int32 {
	if in.Draining {
		return 1
	}
	return replicas(in)
}

// repositoryVolume has the backups. It has an owner only if it is to go with the cluster.
func repositoryVolume(in Input) Object {
	c := in.Cluster
	size := RepositorySize(c)
	var class *string
	if volume := c.Spec.Backup.Repository.Volume; volume != nil {
		class = volume.StorageClassName
	}
	if in.RepositoryVolume != nil {
		size, class = unchangeable(*in.RepositoryVolume, size, class)
	}
	spec := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != nil {
		spec.WithStorageClassName(*class)
	}
	claim := coreac.PersistentVolumeClaim(naming.RepositoryVolume(c.Name), c.Namespace).
		WithLabels(naming.RepositoryLabels(c.Name)).
		WithSpec(spec)
	if c.Spec.Deletion.Backups == v1.Delete {
		claim.WithOwnerReferences(ownerReference(c))
	}
	return claim
}

func repositoryPod(in Input) *coreac.PodSpecApplyConfiguration {
	c := in.Cluster
	volume := coreac.Volume().WithName(naming.VolumeData).WithPersistentVolumeClaim(
		coreac.PersistentVolumeClaimVolumeSource().WithClaimName(naming.RepositoryVolume(c.Name)))
	spec := coreac.PodSpec().
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(repositoryGrace).
		WithSecurityContext(podSecurity(in.Settings)).
		WithInitContainers(installContainer(in)).
		WithContainers(coreac.Container().
			WithName(naming.ContainerRepository).
			WithImage(cmp.Or(in.RepositoryImage, in.Settings.Image(c))). // the same pgBackRest as the primary's: others do not talk to each other
			WithCommand(naming.PathAgentBinary, "repository").
			WithEnv(fieldEnv("POD_UID", "metadata.uid"), coreac.EnvVar().WithName("PGSTEWARD_INSTANCE").WithValue(naming.Repository(c.Name))).
			WithPorts(
				containerPort(naming.PortBackupName, naming.PortBackup),
				containerPort(naming.PortAgentName, naming.PortAgent),
				containerPort(naming.PortHealthName, naming.PortHealth)).
			WithStartupProbe(probe("/startupz", 1, 120)).
			WithLivenessProbe(probe("/livez", 10, 3)).
			WithReadinessProbe(probe("/readyz", 5, 2)).
			WithResources(coreac.ResourceRequirements().WithRequests(corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}).WithLimits(corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
			})).
			WithSecurityContext(containerSecurity()).
			WithVolumeMounts(engineMounts()...)).
		WithVolumes(engineVolumes(c, volume, repositorySecrets(c.Spec.Backup.Repository, naming.DirBackup))...)
	for _, s := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	return spec
}

// engineMounts are those of a container beside the instances in which pgBackRest runs.
func engineMounts() []*coreac.VolumeMountApplyConfiguration {
	mount := func(name, path string) *coreac.VolumeMountApplyConfiguration {
		return coreac.VolumeMount().WithName(name).WithMountPath(path)
	}
	return []*coreac.VolumeMountApplyConfiguration{
		mount(naming.VolumeData, naming.PathData), mount(naming.VolumeRun, naming.PathRun), mount(naming.VolumeTmp, "/tmp"),
		mount(naming.VolumeProgram, naming.PathProgram).WithReadOnly(true),
		mount(naming.VolumeProgram, "/etc/passwd").WithSubPath(naming.FilePasswd).WithReadOnly(true),
		mount(naming.VolumeConfig, naming.PathConfig).WithReadOnly(true),
		mount(naming.VolumeSecrets, naming.PathSecrets).WithReadOnly(true),
	}
}

// engineVolumes are those of its Pod: the data's, and what lets it use the repository.
func engineVolumes(
	c *v1.PostgresCluster, data *coreac.VolumeApplyConfiguration, repository []*coreac.VolumeProjectionApplyConfiguration,
) []*coreac.VolumeApplyConfiguration {
	emptyDir := func(name string) *coreac.VolumeApplyConfiguration {
		return coreac.Volume().WithName(name).WithEmptyDir(coreac.EmptyDirVolumeSource())
	}
	secrets := coreac.ProjectedVolumeSource().WithDefaultMode(secretMode).WithSources(
		projectedSecret(naming.ServerSecret(c.Name), naming.DirServer, naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert)).
		WithSources(repository...)
	return []*coreac.VolumeApplyConfiguration{
		data, emptyDir(naming.VolumeRun), emptyDir(naming.VolumeTmp), emptyDir(naming.VolumeProgram),
		coreac.Volume().WithName(naming.VolumeConfig).WithConfigMap(
			coreac.ConfigMapVolumeSource().WithName(naming.ConfigMap(c.Name)).WithDefaultMode(secretMode)),
		coreac.Volume().WithName(naming.VolumeSecrets).WithProjected(secrets),
	}
}

// UnwantedBackups are the objects for backups that the cluster does not need as it is. The volume stays: it has backups.
func UnwantedBackups(in Input) []Ref {
	c := in.Cluster
	var refs []Ref
	if !HasRepositoryHost(c) {
		refs = append(refs, Ref{Kind: "StatefulSet", Name: naming.Repository(c.Name)}, Ref{Kind: "Service", Name: naming.Repository(c.Name)})
	}
	if _, _, ok := Schedule(c); !ok {
		name := naming.BackupJob(c.Name)
		for _, kind := range []string{"CronJob", "RoleBinding", "Role", "ServiceAccount"} {
			refs = append(refs, Ref{Kind: kind, Name: name})
		}
	}
	if _, _, ok := VerifySchedule(c); !ok {
		refs = append(refs, Ref{Kind: "CronJob", Name: naming.VerifyJob(c.Name)})
	}
	return refs
}
