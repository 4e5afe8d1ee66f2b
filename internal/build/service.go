package build

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// services are -rw (the primary), -ro (standbys), -r (all that serve) and the headless one that names each instance.
func services(in Input) []Object {
	name := in.Cluster.Name
	primary := service(in, naming.ServiceRW(name), naming.RoleSelector(name, naming.RolePrimary))
	primary.Spec.WithPublishNotReadyAddresses(true) // the label alone says who it is: a probe would only say it later
	return []Object{
		primary,
		service(in, naming.ServiceRO(name), naming.RoleSelector(name, naming.RoleStandby)),
		service(in, naming.ServiceR(name), naming.ClusterSelector(name)),
		headlessService(in),
	}
}

func service(in Input, name string, selector map[string]string) *coreac.ServiceApplyConfiguration {
	return coreac.Service(name, in.Cluster.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(in.Cluster)).
		WithSpec(coreac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(selector).
			WithPorts(servicePort(naming.PortPostgresName, naming.PortPostgres)))
}

// headlessService names instances that are not ready too: standbys clone from, and agents ask, whoever is there.
func headlessService(in Input) Object {
	s := service(in, naming.ServiceInstances(in.Cluster.Name), naming.ClusterSelector(in.Cluster.Name))
	s.Spec.WithClusterIP(corev1.ClusterIPNone).
		WithPublishNotReadyAddresses(true).
		WithPorts(servicePort(naming.PortAgentName, naming.PortAgent))
	return s
}

func servicePort(name string, port int32) *coreac.ServicePortApplyConfiguration {
	return coreac.ServicePort().
		WithName(name).
		WithProtocol(corev1.ProtocolTCP).
		WithPort(port).
		WithTargetPort(intstr.FromString(name))
}

// disruptionBudget lets a drain take one instance at a time; the primary hands over when it is evicted. One that is not ready may be
// evicted in any case, since a copy that takes hours must not block its node for hours. A single instance has no budget, since it
// would block the drain for ever; nor has it one while a major upgrade adds a second, which may never come to run.
func disruptionBudget(in Input) Object {
	c := in.Cluster
	if len(in.Members) < 2 || c.Status.Upgrade != nil && c.Status.Upgrade.Surge {
		return nil
	}
	return policyac.PodDisruptionBudget(naming.DisruptionBudget(c.Name), c.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(c)).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(labelSelector(naming.ClusterSelector(c.Name))))
}
