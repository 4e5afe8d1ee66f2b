package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

// podWish is everything of a PostgresCluster that makes another Pod. What the operator adds of its own, such as its image, the default
// image of PostgreSQL or probes, is left out on purpose: an operator's upgrade must not restart a database. A new field must be left
// out of the JSON while it has no value, so that it changes no hash by itself.
type podWish struct {
	Image       string                        `json:"image,omitempty"`
	Minor       string                        `json:"minor,omitempty"`
	Resources   *corev1.ResourceRequirements  `json:"resources,omitempty"`
	PullSecrets []corev1.LocalObjectReference `json:"pullSecrets,omitempty"`
	Scheduling  *v1.SchedulingSpec            `json:"scheduling,omitempty"`
	Restart     string                        `json:"restart,omitempty"`
	Backup      []string                      `json:"backup,omitempty"`
}

// SpecHash is the hash of what the spec wants of a Pod: instances whose Pod has another one are restarted, one at a time.
func SpecHash(c *v1.PostgresCluster) string { return specHash(c, c.Spec.Image, minor(c)) }

// hash is what a Pod of that major is marked with. One of another major than the spec's has the mark that it would have if the spec were
// as it was for that one.
func (in Input) hash(version string) string {
	if version == in.Cluster.Spec.Version {
		return SpecHash(in.Cluster)
	}
	image := in.image(version)
	if image == in.Settings.PostgresImages[version] {
		image = ""
	}
	return specHash(in.Cluster, image, "")
}

func specHash(c *v1.PostgresCluster, image, minor string) string {
	wish := podWish{
		Image: image, Minor: minor, Resources: c.Spec.Resources, PullSecrets: c.Spec.ImagePullSecrets,
		Restart: c.Annotations[naming.AnnotationRestart], Backup: mountedForBackups(c),
	}
	if s := c.Spec.Scheduling; len(s.NodeSelector) > 0 || len(s.Tolerations) > 0 || s.Affinity != nil {
		wish.Scheduling = &s
	}
	text, err := json.Marshal(wish)
	if err != nil {
		panic(fmt.Sprintf("build: what the spec wants of a Pod cannot be written as JSON: %v", err)) // it was read from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

// Outdated says whether the Pod is known to differ from what the spec wants of one. A Pod that an operator made which wrote no hash is
// judged by what it has.
func Outdated(c *v1.PostgresCluster, pod *corev1.Pod) bool {
	if version := pod.Annotations[naming.AnnotationVersion]; version != "" && version != c.Spec.Version {
		return false // of another major: that is the upgrade's
	}
	if c.Spec.Backup != nil && pod.Annotations[naming.AnnotationArchives] == "" {
		return true // it does not archive
	}
	if hash, has := pod.Annotations[naming.AnnotationSpecHash]; has {
		return hash != SpecHash(c)
	}
	if c.Annotations[naming.AnnotationRestart] != "" || len(c.Spec.Scheduling.NodeSelector) > 0 || c.Spec.Scheduling.Affinity != nil {
		return true
	}
	for _, container := range pod.Spec.Containers {
		if container.Name == naming.ContainerPostgres {
			return c.Spec.Image != "" && container.Image != c.Spec.Image || c.Spec.Resources != nil && !gives(container.Resources, *c.Spec.Resources)
		}
	}
	return false
}

// gives says whether the resources are at least those that are wanted; a namespace's defaults may add to them.
func gives(have, want corev1.ResourceRequirements) bool {
	same := func(have, want corev1.ResourceList) bool {
		for name, quantity := range want {
			if given, ok := have[name]; !ok || given.Cmp(quantity) != 0 {
				return false
			}
		}
		return true
	}
	return same(have.Requests, want.Requests) && same(have.Limits, want.Limits)
}

// podAnnotations are what is noted on a Pod when it is made.
func podAnnotations(in Input, m plan.Member) map[string]string {
	c, version := in.Cluster, in.version(m)
	annotations := map[string]string{
		"kubectl.kubernetes.io/default-container": naming.ContainerPostgres,
		naming.AnnotationSpecHash:                 in.hash(version),
		naming.AnnotationVersion:                  version,
	}
	if c.Spec.Backup != nil {
		annotations[naming.AnnotationArchives] = "true"
	}
	if at := c.Annotations[naming.AnnotationRestart]; at != "" {
		annotations[naming.AnnotationRestart] = at
	}
	return annotations
}
