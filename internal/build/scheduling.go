package build

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// schedule says where the Pod may run: spread over nodes and zones where there are enough, unless the spec has its own rules.
func schedule(spec *coreac.PodSpecApplyConfiguration, c *v1.PostgresCluster) {
	wanted := c.Spec.Scheduling
	spec.WithTopologySpreadConstraints(zoneSpread(c.Name))
	if wanted.Affinity != nil {
		spec.WithAffinity(converted(wanted.Affinity, coreac.Affinity()))
	} else {
		spec.WithAffinity(nodeSpread(c.Name))
	}
	allow(spec, c)
}

// allow says on which nodes the Pod may run at all.
func allow(spec *coreac.PodSpecApplyConfiguration, c *v1.PostgresCluster) {
	wanted := c.Spec.Scheduling
	if len(wanted.NodeSelector) > 0 {
		spec.WithNodeSelector(wanted.NodeSelector)
	}
	for n := range wanted.Tolerations {
		spec.WithTolerations(converted(&wanted.Tolerations[n], coreac.Toleration()))
	}
}

// nodeSpread prefers a node for each instance.
func nodeSpread(cluster string) *coreac.AffinityApplyConfiguration {
	return awayFrom(naming.ClusterSelector(cluster))
}

// awayFrom prefers nodes without Pods of those labels.
func awayFrom(selector map[string]string) *coreac.AffinityApplyConfiguration {
	return coreac.Affinity().WithPodAntiAffinity(coreac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(coreac.WeightedPodAffinityTerm().WithWeight(100).
			WithPodAffinityTerm(coreac.PodAffinityTerm().
				WithTopologyKey(corev1.LabelHostname).
				WithLabelSelector(labelSelector(selector)))))
}

// zoneSpread keeps the zones even, where there are zones.
func zoneSpread(cluster string) *coreac.TopologySpreadConstraintApplyConfiguration {
	return coreac.TopologySpreadConstraint().
		WithMaxSkew(1).
		WithTopologyKey(corev1.LabelTopologyZone).
		WithWhenUnsatisfiable(corev1.ScheduleAnyway).
		WithLabelSelector(labelSelector(naming.ClusterSelector(cluster)))
}

// converted is a part of a spec as the apply configuration of the same type: both are the same JSON.
func converted[From, To any](from *From, to *To) *To {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(fmt.Sprintf("build: %T cannot be written as %T: %v", from, to, err)) // both are generated from the same type
	}
	return to
}
