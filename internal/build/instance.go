package build

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

const (
	// instanceUser is the uid and gid of the instances: that of postgres in the official Debian-based images. Any would do, since a
	// passwd file is mounted.
	instanceUser = 999
	// terminationGrace, in seconds, is the time that a fast shutdown may take, its checkpoint included.
	terminationGrace = 180
	// secretMode is what libpq and PostgreSQL accept for a private key that root owns.
	secretMode = 0o640
)

// statefulSet is one instance: one Pod that Kubernetes makes again by itself. Its template changes a Pod only when somebody
// deletes the Pod: the operator decides when.
func statefulSet(in Input, m plan.Member) Object {
	c := in.Cluster
	labels := naming.InstanceLabels(c.Name, m.Name)
	selector := map[string]string{naming.LabelCluster: c.Name, naming.LabelInstance: m.Name}
	return appsac.StatefulSet(m.Name, c.Namespace).
		WithLabels(labels).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(appsac.StatefulSetSpec().
			WithReplicas(replicas(in)).
			WithServiceName(naming.ServiceInstances(c.Name)).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithRevisionHistoryLimit(2).
			WithSelector(labelSelector(selector)).
			WithTemplate(coreac.PodTemplateSpec().
				WithLabels(labels).
				WithAnnotations(podAnnotations(in, m)).
				WithSpec(podSpec(in, m))))
}

// replicas is the number of Pods of one instance.
func replicas(in Input) int32 {
	if in.Stopped {
		return 0
	}
	return 1
}

func podSpec(in Input, m plan.Member) *coreac.PodSpecApplyConfiguration {
	c := in.Cluster
	spec := coreac.PodSpec().
		WithServiceAccountName(naming.ServiceAccount(c.Name)).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(terminationGrace).
		WithSecurityContext(podSecurity(in.Settings)).
		WithInitContainers(installContainer(in)).
		WithContainers(postgresContainer(in, m)).
		WithVolumes(podVolumes(c, m)...)
	if m.Carry != "" {
		spec.WithInitContainers(carryContainer(in, m)).
			WithVolumes(coreac.Volume().WithName(naming.VolumeCarried).WithEmptyDir(coreac.EmptyDirVolumeSource()))
	}
	schedule(spec, c)
	for _, s := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(coreac.LocalObjectReference().WithName(s.Name))
	}
	return spec
}

// podSecurity is what the "restricted" Pod Security Standard asks for, with a uid of ours where the platform assigns none.
func podSecurity(s Settings) *coreac.PodSecurityContextApplyConfiguration {
	context := coreac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
		WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
	if !s.UserAssigned {
		context.WithRunAsUser(instanceUser).WithRunAsGroup(instanceUser).WithFSGroup(instanceUser)
	}
	return context
}

// installContainer copies the agent's binary into the Pod, so that any image of PostgreSQL will do.
func installContainer(in Input) *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName(naming.ContainerInstall).
		WithImage(in.Settings.OperatorImage).
		WithArgs("install").
		WithSecurityContext(containerSecurity()).
		// with limits, so that a quota on limits needs no more of the user than limits in the spec
		WithResources(coreac.ResourceRequirements().WithRequests(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}).WithLimits(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("128Mi"),
		})).
		WithVolumeMounts(coreac.VolumeMount().WithName(naming.VolumeProgram).WithMountPath(naming.PathProgram))
}

func postgresContainer(in Input, m plan.Member) *coreac.ContainerApplyConfiguration {
	c := in.Cluster
	container := coreac.Container().
		WithName(naming.ContainerPostgres).
		WithImage(in.image(in.version(m))).
		WithCommand(naming.PathAgentBinary, "agent").
		WithEnv(
			fieldEnv("POD_NAME", "metadata.name"),
			fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("POD_UID", "metadata.uid"),
			coreac.EnvVar().WithName("PGSTEWARD_INSTANCE").WithValue(m.Name),
			// for people who come in with kubectl exec: plain psql works
			coreac.EnvVar().WithName("PGHOST").WithValue(naming.PathRun),
			coreac.EnvVar().WithName("PGDATA").WithValue(naming.PathData+"/pgdata/"+in.version(m)),
		).
		WithPorts(
			containerPort(naming.PortPostgresName, naming.PortPostgres),
			containerPort(naming.PortAgentName, naming.PortAgent),
			containerPort(naming.PortHealthName, naming.PortHealth),
		).
		WithPorts(backupPorts(c)...).
		// the agent answers for itself, not for PostgreSQL, at startup and liveness: recovery and cloning may take hours
		WithStartupProbe(probe("/startupz", 1, 120)).
		WithLivenessProbe(probe("/livez", 10, 3)).
		WithReadinessProbe(probe("/readyz", 2, 2)).
		WithResources(resources(c.Spec.Resources)).
		WithSecurityContext(containerSecurity()).
		WithVolumeMounts(
			coreac.VolumeMount().WithName(naming.VolumeData).WithMountPath(naming.PathData),
			coreac.VolumeMount().WithName(naming.VolumeRun).WithMountPath(naming.PathRun),
			coreac.VolumeMount().WithName(naming.VolumeTmp).WithMountPath("/tmp"),
			coreac.VolumeMount().WithName(naming.VolumeShm).WithMountPath(naming.PathShm),
			coreac.VolumeMount().WithName(naming.VolumeProgram).WithMountPath(naming.PathProgram).WithReadOnly(true),
			coreac.VolumeMount().WithName(naming.VolumeProgram).WithMountPath("/etc/passwd").WithSubPath(naming.FilePasswd).WithReadOnly(true),
			coreac.VolumeMount().WithName(naming.VolumeConfig).WithMountPath(naming.PathConfig).WithReadOnly(true),
			coreac.VolumeMount().WithName(naming.VolumeSecrets).WithMountPath(naming.PathSecrets).WithReadOnly(true),
		)
	if m.Carry != "" {
		container.WithVolumeMounts(carriedMount().WithReadOnly(true))
	}
	return container
}

// carryContainer copies the programs of the previous major, from its own image, for pg_upgrade.
func carryContainer(in Input, m plan.Member) *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName(naming.ContainerCarry).
		WithImage(in.image(m.Carry)).
		WithCommand(naming.PathAgentBinary, "carry", "--major", m.Carry, "--to", naming.PathCarried).
		WithSecurityContext(containerSecurity()).
		WithResources(coreac.ResourceRequirements().WithRequests(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}).WithLimits(corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("256Mi"),
		})).
		WithVolumeMounts(
			coreac.VolumeMount().WithName(naming.VolumeProgram).WithMountPath(naming.PathProgram).WithReadOnly(true),
			carriedMount())
}

func carriedMount() *coreac.VolumeMountApplyConfiguration {
	return coreac.VolumeMount().WithName(naming.VolumeCarried).WithMountPath(naming.PathCarried)
}

// podVolumes are the volumes of an instance's Pod.
func podVolumes(c *v1.PostgresCluster, m plan.Member) []*coreac.VolumeApplyConfiguration {
	cluster := c.Name
	emptyDir := func(name string) *coreac.VolumeApplyConfiguration {
		return coreac.Volume().WithName(name).WithEmptyDir(coreac.EmptyDirVolumeSource())
	}
	secrets := coreac.ProjectedVolumeSource().WithDefaultMode(secretMode).WithSources(
		projectedSecret(naming.ServerSecret(cluster), naming.DirServer, naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert),
		projectedSecret(naming.ReplicationSecret(cluster), naming.DirReplication, naming.KeyTLSCert, naming.KeyTLSKey, naming.KeyCACert),
		projectedSecret(naming.AppSecret(cluster), naming.DirApp, naming.KeyUser, naming.KeyPassword, naming.KeyDBName),
		projectedSecret(naming.SuperuserSecret(cluster), naming.DirSuperuser, naming.KeyUser, naming.KeyPassword),
	).WithSources(backupSecrets(c)...)
	return []*coreac.VolumeApplyConfiguration{
		coreac.Volume().WithName(naming.VolumeData).WithPersistentVolumeClaim(
			coreac.PersistentVolumeClaimVolumeSource().WithClaimName(naming.DataVolume(m.Name))),
		emptyDir(naming.VolumeRun),
		emptyDir(naming.VolumeTmp),
		// containers get 64 MiB of shared memory by default, too little for parallel queries
		coreac.Volume().WithName(naming.VolumeShm).WithEmptyDir(coreac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory)),
		emptyDir(naming.VolumeProgram),
		coreac.Volume().WithName(naming.VolumeConfig).WithConfigMap(
			coreac.ConfigMapVolumeSource().WithName(naming.ConfigMap(cluster)).WithDefaultMode(secretMode)),
		coreac.Volume().WithName(naming.VolumeSecrets).WithProjected(secrets),
	}
}

// projectedSecret mounts the Secret's keys into a folder of their own.
func projectedSecret(secret, dir string, keys ...string) *coreac.VolumeProjectionApplyConfiguration {
	s := coreac.SecretProjection().WithName(secret)
	for _, key := range keys {
		s.WithItems(coreac.KeyToPath().WithKey(key).WithPath(dir + "/" + key))
	}
	return coreac.VolumeProjection().WithSecret(s)
}

// resources are those wanted, with requests for CPU and memory in any case.
func resources(wanted *corev1.ResourceRequirements) *coreac.ResourceRequirementsApplyConfiguration {
	want := corev1.ResourceRequirements{}
	if wanted != nil {
		want = *wanted
	}
	requests := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
	}
	for name, quantity := range want.Limits { // Kubernetes' own default for a request is the limit
		requests[name] = quantity
	}
	for name, quantity := range want.Requests {
		requests[name] = quantity
	}
	r := coreac.ResourceRequirements().WithRequests(requests)
	if len(want.Limits) > 0 {
		r.WithLimits(want.Limits)
	}
	return r
}

// containerSecurity is what the "restricted" Pod Security Standard asks for, and a read-only root.
func containerSecurity() *coreac.SecurityContextApplyConfiguration {
	return coreac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithReadOnlyRootFilesystem(true).
		WithCapabilities(coreac.Capabilities().WithDrop("ALL"))
}

func probe(path string, period, failures int32) *coreac.ProbeApplyConfiguration {
	return coreac.Probe().
		WithHTTPGet(coreac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(naming.PortHealthName)).WithScheme(corev1.URISchemeHTTP)).
		WithPeriodSeconds(period).
		WithTimeoutSeconds(3).
		WithFailureThreshold(failures)
}

func containerPort(name string, port int32) *coreac.ContainerPortApplyConfiguration {
	return coreac.ContainerPort().WithName(name).WithContainerPort(port).WithProtocol(corev1.ProtocolTCP)
}

func fieldEnv(name, path string) *coreac.EnvVarApplyConfiguration {
	return coreac.EnvVar().WithName(name).WithValueFrom(
		coreac.EnvVarSource().WithFieldRef(coreac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath(path)))
}

func labelSelector(labels map[string]string) *metaac.LabelSelectorApplyConfiguration {
	return metaac.LabelSelector().WithMatchLabels(labels)
}
