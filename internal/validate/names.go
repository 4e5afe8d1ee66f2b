package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Names are the objects that a new cluster needs, for itself and for its instances.
func Names(c *v1.PostgresCluster) []facts.Object {
	n := c.Name
	all := []facts.Object{
		{Kind: "ServiceAccount", Name: naming.ServiceAccount(n)}, {Kind: "Role", Name: naming.ServiceAccount(n)}, {Kind: "RoleBinding", Name: naming.ServiceAccount(n)},
		{Kind: "RoleBinding", Name: naming.OperatorBinding(n)},
		{Kind: "Lease", Name: naming.PrimaryLease(n)}, {Kind: "ConfigMap", Name: naming.ConfigMap(n)},
		{Kind: "Secret", Name: naming.CASecret(n)}, {Kind: "Secret", Name: naming.ServerSecret(n)}, {Kind: "Secret", Name: naming.ReplicationSecret(n)},
		{Kind: "Secret", Name: naming.SuperuserSecret(n)}, {Kind: "Secret", Name: naming.AppSecret(n)},
		{Kind: "Service", Name: naming.ServiceRW(n)}, {Kind: "Service", Name: naming.ServiceRO(n)}, {Kind: "Service", Name: naming.ServiceR(n)}, {Kind: "Service", Name: naming.ServiceInstances(n)},
		{Kind: "PodDisruptionBudget", Name: naming.DisruptionBudget(n)},
	}
	if c.Spec.Backup != nil {
		all = append(all, backupNames(c)...)
	}
	for ordinal := 1; ordinal <= replicas(c); ordinal++ {
		instance := naming.Instance(n, ordinal)
		all = append(all, facts.Object{Kind: "StatefulSet", Name: instance}, facts.Object{Kind: "PersistentVolumeClaim", Name: naming.DataVolume(instance)})
	}
	for i := range all {
		all[i].Cluster = n
	}
	return all
}

// replicas is how many instances are wanted; the API server has set the default.
func replicas(c *v1.PostgresCluster) int {
	if c.Spec.Replicas == nil {
		return 1
	}
	return min(int(*c.Spec.Replicas), naming.MaxReplicas)
}

// names: nobody else has them. Later only the writer looks, before each write.
func names(q question) Verdict {
	if q.before != nil {
		return Verdict{}
	}
	var verdict Verdict
	for _, t := range q.facts.Taken {
		owner := "does not belong to a PostgresCluster"
		if t.Cluster != "" {
			owner = fmt.Sprintf("belongs to PostgresCluster %s", t.Cluster)
		}
		verdict.Errors = append(verdict.Errors, field.Invalid(field.NewPath("metadata", "name"), q.after.Name, fmt.Sprintf(
			"%s %s, whose name this cluster needs, exists and %s; remove or rename it, or choose another name", t.Kind, t.Name, owner)))
	}
	return verdict
}
