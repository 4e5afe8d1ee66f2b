package build

import (
	"fmt"
	"strings"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Settings are the operator's own, the same for all clusters.
type Settings struct {
	// OperatorImage is the image whose binary the instances run as their agent.
	OperatorImage string
	// ServiceAccount and Namespace are the operator's own; without the former it needs no RoleBinding to come at Secrets.
	ServiceAccount, Namespace string
	// UserAssigned says that the platform gives each namespace its own range of uids and refuses others, as OpenShift does: then
	// the Pods name none.
	UserAssigned bool
	// PostgresImages are the operator's images of PostgreSQL: the default one of a major by the major ("16"), others by their
	// version ("16.12").
	PostgresImages map[string]string
	// PostgresVersions are the versions of the default images by major ("16": "16.14"); a major may be missing.
	PostgresVersions map[string]string
}

// Image is the image of the cluster's instances: the spec's, else one of exactly the version that v1alpha1 asked for, else the
// default of its major; empty if there is none.
func (s Settings) Image(c *v1.PostgresCluster) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	if image := s.PostgresImages[minor(c)]; image != "" {
		return image
	}
	return s.PostgresImages[c.Spec.Version]
}

// Versions are those of the images that the cluster would get of the majors, as far as they are known: nothing is of an image of its own.
func (s Settings) Versions(c *v1.PostgresCluster) map[string]string {
	if c.Spec.Image != "" {
		return nil
	}
	return s.PostgresVersions
}

// Notes say where another version runs than v1alpha1 asked for.
func (s Settings) Notes(c *v1.PostgresCluster) []string {
	wanted, have := minor(c), s.PostgresVersions[c.Spec.Version]
	if c.Spec.Image != "" || wanted == "" || wanted == have || s.PostgresImages[wanted] != "" {
		return nil
	}
	if have == "" {
		have = "the default image of " + c.Spec.Version
	}
	return []string{fmt.Sprintf("there is no image of PostgreSQL %s, which was asked for, so the instances run %s", wanted, have)}
}

// minor is the version with its minor that v1alpha1 asked for; empty if it did not.
func minor(c *v1.PostgresCluster) string {
	if wanted := c.Annotations[v1.AnnotationPostgresVersion]; strings.HasPrefix(wanted, c.Spec.Version+".") {
		return wanted
	}
	return ""
}
