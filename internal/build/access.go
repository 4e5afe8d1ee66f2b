package build

import (
	coordinationac "k8s.io/client-go/applyconfigurations/coordination/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// serviceAccount is the instances' identity.
func serviceAccount(in Input) Object {
	return coreac.ServiceAccount(naming.ServiceAccount(in.Cluster.Name), in.Cluster.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(in.Cluster)).
		WithAutomountServiceAccountToken(false)
}

// role is what an instance may do: hold this cluster's Lease and label this cluster's Pods. It cannot read a Secret.
func role(in Input) Object {
	c := in.Cluster
	pods := make([]string, 0, len(in.Members))
	for _, m := range in.Members {
		pods = append(pods, naming.Pod(m.Name))
	}
	return rbacac.Role(naming.ServiceAccount(c.Name), c.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(c)).
		WithRules(
			rbacac.PolicyRule().WithAPIGroups("coordination.k8s.io").WithResources("leases").
				WithResourceNames(naming.PrimaryLease(c.Name)).WithVerbs("get", "list", "watch", "update", "patch"),
			rbacac.PolicyRule().WithAPIGroups("").WithResources("pods").
				WithResourceNames(pods...).WithVerbs("get", "patch"),
			rbacac.PolicyRule().WithAPIGroups("events.k8s.io").WithResources("events").WithVerbs("create"),
		)
}

// roleBinding gives the role to the service account.
func roleBinding(in Input) Object {
	c := in.Cluster
	name := naming.ServiceAccount(c.Name)
	return rbacac.RoleBinding(name, c.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(c)).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
		WithSubjects(rbacac.Subject().WithKind("ServiceAccount").WithNamespace(c.Namespace).WithName(name))
}

// operatorBinding lets the operator at the Secrets of this namespace; it has a right to Secrets nowhere else.
func operatorBinding(in Input) Object {
	c := in.Cluster
	return rbacac.RoleBinding(naming.OperatorBinding(c.Name), c.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(c)).
		WithRoleRef(rbacac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(naming.SecretsRole)).
		WithSubjects(rbacac.Subject().WithKind("ServiceAccount").WithNamespace(in.Settings.Namespace).WithName(in.Settings.ServiceAccount))
}

// lease is the primary's Lease without a holder: its spec belongs to the agents.
func lease(in Input) Object {
	return coordinationac.Lease(naming.PrimaryLease(in.Cluster.Name), in.Cluster.Namespace).
		WithLabels(in.labels()).
		WithOwnerReferences(ownerReference(in.Cluster))
}
