package build

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// Input is what the objects of a cluster are made from.
type Input struct {
	Cluster *v1.PostgresCluster
	// Members and Bootstrap are the planner's.
	Members   []plan.Member
	Bootstrap string
	// Live is the major of the live generation; empty: the spec's. Images are those of other majors than the spec's, and Upgrade is
	// what the agents are told of a major upgrade.
	Live    string
	Images  map[string]string
	Upgrade *agentapi.Upgrade
	// InPlace and Floor are what the agents are told of a recovery in place; nil: nothing.
	InPlace *agentapi.InPlace
	Floor   *agentapi.Floor
	// Reports are what the agents say, by instance.
	Reports map[string]agentapi.Status
	// Stopped says that no instance is to run.
	Stopped bool
	// Unwritten says that not everything that Pods mount could be written in this pass: then no refresh is asked for.
	Unwritten bool
	// SystemIdentifier is empty while it is not known, and Holder, the instance that holds the Lease, while nobody does.
	SystemIdentifier string
	Holder           string
	// OnlyRemembered says that only volumes name the system: new ones are not said to have its data.
	OnlyRemembered bool
	// Volumes are the volumes that exist: what cannot be changed of them is left as it is.
	Volumes []facts.Volume
	// RepositoryVolume is that of the backups; nil: there is none. RepositoryImage is the image that its host is to have; empty: the spec's.
	RepositoryVolume *facts.Volume
	RepositoryImage  string
	// Draining says that instances still have Pods although none is to run: their last WAL goes to the repository.
	Draining    bool
	Credentials credential.Set
	Settings    Settings
}

// Object is one object to apply.
type Object = runtime.ApplyConfiguration

// Objects are all objects of the cluster but the Pods, in the order in which they are to be applied: what a Pod needs comes
// before it.
func Objects(in Input) []Object {
	objects := append(Access(in),
		serviceAccount(in),
		role(in),
		roleBinding(in),
		lease(in),
		configMap(in),
		caSecret(in),
		serverSecret(in),
		replicationSecret(in),
		superuserSecret(in),
		appSecret(in),
	)
	objects = append(objects, services(in)...)
	if budget := disruptionBudget(in); budget != nil {
		objects = append(objects, budget)
	}
	objects = append(objects, repositoryHost(in)...)
	for _, m := range in.Members {
		objects = append(objects, dataVolume(in, m), statefulSet(in, m))
	}
	return append(append(objects, scheduled(in)...), verification(in)...)
}

// Access is what the operator itself needs before it can read or write the cluster's Secrets.
func Access(in Input) []Object {
	if in.Settings.ServiceAccount == "" {
		return nil
	}
	return []Object{operatorBinding(in)}
}

// ownerReference makes the garbage collector remove an object with its cluster.
func ownerReference(c *v1.PostgresCluster) *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1.GroupVersion.String()).
		WithKind("PostgresCluster").
		WithName(c.Name).
		WithUID(c.UID).
		WithController(true).
		WithBlockOwnerDeletion(true)
}

// labels are on every object of the cluster.
func (in Input) labels() map[string]string { return naming.ClusterLabels(in.Cluster.Name) }

// live is the major of the live generation.
func (in Input) live() string { return cmp.Or(in.Live, in.Cluster.Spec.Version) }

// version is the major that the member is to run.
func (in Input) version(m plan.Member) string { return cmp.Or(m.Version, in.live()) }

// image is the image of PostgreSQL of that major: the spec's, or what the instances of another major have.
func (in Input) image(version string) string {
	if version == in.Cluster.Spec.Version {
		return in.Settings.Image(in.Cluster)
	}
	return cmp.Or(in.Images[version], in.Settings.PostgresImages[version])
}

// MissingImage is the major of a member for which there is no image; empty: there is one for each.
func MissingImage(in Input) string {
	for _, m := range in.Members {
		if version := in.version(m); in.image(version) == "" {
			return version
		}
	}
	return ""
}
