package build

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// DefaultStorage is the size of a volume if the spec has none.
var DefaultStorage = resource.MustParse("1Gi")

// StorageSize is the size of the cluster's volumes.
func StorageSize(c *v1.PostgresCluster) resource.Quantity {
	if c.Spec.Storage.Size != nil {
		return *c.Spec.Storage.Size
	}
	return DefaultStorage
}

// dataVolume is the instance's volume claim. It has an owner only if it is to go with the cluster: so the garbage collector
// obeys the deletion policy even while the operator is down. Its annotations say whose data it has.
func dataVolume(in Input, m plan.Member) Object {
	c := in.Cluster
	size, class, primary := StorageSize(c), c.Spec.Storage.StorageClassName, in.Holder == m.Name
	system, version := in.SystemIdentifier, in.live()
	i := slices.IndexFunc(in.Volumes, func(v facts.Volume) bool { return v.Instance == m.Name })
	if in.OnlyRemembered && i < 0 {
		system = ""
	}
	if i >= 0 {
		size, class = unchangeable(in.Volumes[i], size, class)
		primary = primary || in.Holder == "" && in.Volumes[i].WasPrimary
		if in.Upgrade != nil && in.Volumes[i].SystemIdentifier != "" {
			system, version = in.Volumes[i].SystemIdentifier, in.Volumes[i].Version
		}
	}
	if report, known := in.Reports[m.Name]; known && in.Upgrade != nil && report.HasData && report.SystemIdentifier != "" {
		// during a major upgrade volumes differ; only the agent knows what is on its own
		system, version = report.SystemIdentifier, majorOf(report.ServerVersion, version)
	}
	spec := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != nil {
		spec.WithStorageClassName(*class)
	}
	claim := coreac.PersistentVolumeClaim(naming.DataVolume(m.Name), c.Namespace).
		WithLabels(naming.InstanceLabels(c.Name, m.Name)).
		WithSpec(spec)
	if system != "" {
		claim.WithAnnotations(map[string]string{
			naming.AnnotationSystemIdentifier: system,
			naming.AnnotationVersion:          version,
		})
	}
	if primary {
		claim.WithAnnotations(map[string]string{naming.AnnotationDataRole: naming.RolePrimary})
	}
	if c.Spec.Deletion.Volumes == v1.Delete {
		claim.WithOwnerReferences(ownerReference(c))
	}
	return claim
}

// unchangeable keeps what Kubernetes does not let anybody change of a claim: its class once it has one, and a size that is
// larger than the wanted one (a retained volume may be).
func unchangeable(have facts.Volume, size resource.Quantity, class *string) (resource.Quantity, *string) {
	if have.Bytes > size.Value() {
		size = *resource.NewQuantity(have.Bytes, resource.BinarySI)
	}
	if have.Class != "" {
		class = &have.Class
	}
	return size, class
}

// majorOf is the major of a server's version, such as 16 of "16.14".
func majorOf(version, otherwise string) string {
	major, _, _ := strings.Cut(version, ".")
	return cmp.Or(major, otherwise)
}
