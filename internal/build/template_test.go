package build_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
)

// podOf is the Pod that the StatefulSet of prod-db-1 would make.
func podOf(t *testing.T, in build.Input) *corev1.Pod {
	t.Helper()
	set := &appsv1.StatefulSet{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, in, "StatefulSet", "prod-db-1").Object, set))
	return &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
}

// TestOutdated: what the user changes of a Pod makes it outdated, and what an operator's upgrade changes does not, although the
// StatefulSet has the new template.
func TestOutdated(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	before := podOf(t, in)
	assert.False(t, build.Outdated(in.Cluster, before))

	upgraded := input(t, minimal)
	upgraded.Settings.OperatorImage = "registry.example/pgsteward:2"
	upgraded.Settings.PostgresImages = map[string]string{"16": "registry.example/postgres:16.15"}
	assert.NotEqual(t, before.Spec, podOf(t, upgraded).Spec, "the next Pod has the new images")
	assert.False(t, build.Outdated(upgraded.Cluster, before), "but this one is good enough")

	for what, change := range map[string]func(*v1.PostgresCluster){
		"image":     func(c *v1.PostgresCluster) { c.Spec.Image = "registry.example/my/postgres:16" },
		"minor":     func(c *v1.PostgresCluster) { c.Annotations = map[string]string{v1.AnnotationPostgresVersion: "16.12"} },
		"resources": func(c *v1.PostgresCluster) { c.Spec.Resources = cpu("250m") },
		"pull":      func(c *v1.PostgresCluster) { c.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}} },
		"selector":  func(c *v1.PostgresCluster) { c.Spec.Scheduling.NodeSelector = map[string]string{"disk": "fast"} },
		"taint":     func(c *v1.PostgresCluster) { c.Spec.Scheduling.Tolerations = []corev1.Toleration{{Key: "x"}} },
		"affinity":  func(c *v1.PostgresCluster) { c.Spec.Scheduling.Affinity = &corev1.Affinity{} },
		"restart":   func(c *v1.PostgresCluster) { c.Annotations = map[string]string{"pgsteward.io/restart": "today"} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			changed := input(t, minimal)
			change(changed.Cluster)
			assert.True(t, build.Outdated(changed.Cluster, before))
			assert.False(t, build.Outdated(changed.Cluster, podOf(t, changed)), "the new Pod is right")
		})
	}
	for what, change := range map[string]func(*v1.PostgresCluster){
		"parameters": func(c *v1.PostgresCluster) {
			c.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "1MB"}
		},
		"replicas":     func(c *v1.PostgresCluster) { c.Spec.Replicas = new(int32(5)) },
		"availability": func(c *v1.PostgresCluster) { c.Spec.Availability.LeaseDuration = "20s" },
		"storage":      func(c *v1.PostgresCluster) { c.Spec.Storage.Size = new(resource.MustParse("5Gi")) },
	} {
		changed := input(t, minimal)
		change(changed.Cluster)
		assert.False(t, build.Outdated(changed.Cluster, before), "no new Pod for %s", what)
	}
}

func cpu(request string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}}
}

// TestOutdatedOfOld: a Pod that an operator made which noted no hash is judged by what it has.
func TestOutdatedOfOld(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	old := podOf(t, in)
	delete(old.Annotations, "pgsteward.io/spec-hash")
	assert.False(t, build.Outdated(in.Cluster, old))
	in.Settings.PostgresImages["16"] = "registry.example/postgres:16.15"
	assert.False(t, build.Outdated(in.Cluster, old), "another default image")

	in.Cluster.Spec.Resources = cpu("100m")
	assert.False(t, build.Outdated(in.Cluster, old), "it has them already")
	in.Cluster.Spec.Resources = cpu("200m")
	assert.True(t, build.Outdated(in.Cluster, old))
	in.Cluster.Spec.Resources, in.Cluster.Spec.Image = nil, "registry.example/postgres:16"
	assert.False(t, build.Outdated(in.Cluster, old))
	in.Cluster.Spec.Image = "registry.example/postgres:other"
	assert.True(t, build.Outdated(in.Cluster, old))
}

func TestScheduling(t *testing.T) {
	t.Parallel()
	in := input(t, full)
	in.Cluster.Spec.Scheduling.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "cpu", Operator: corev1.NodeSelectorOpIn, Values: []string{"amd"}}},
		}}},
	}}
	spec := podOf(t, in).Spec
	expect.YAML(t, `
		nodeAffinity:
		  requiredDuringSchedulingIgnoredDuringExecution:
		    nodeSelectorTerms: [{matchExpressions: [{key: cpu, operator: In, values: [amd]}]}]
	`, spec.Affinity)
	assert.Equal(t, map[string]string{"disk": "fast"}, spec.NodeSelector)
	expect.YAML(t, `[{key: dedicated, value: postgres, effect: NoSchedule}]`, spec.Tolerations)
	assert.Len(t, spec.TopologySpreadConstraints, 1)
}

// TestUnaffordable: parameters with which PostgreSQL could not start are not told to the agents.
func TestUnaffordable(t *testing.T) {
	t.Parallel()
	parameters := func(in build.Input) string {
		data, ok := find(t, in, "ConfigMap", "prod-db-config").Object["data"].(map[string]any)
		require.True(t, ok)
		text, ok := data["config.json"].(string)
		require.True(t, ok)
		return text
	}
	in := input(t, full)
	in.Cluster.Spec.PostgreSQL.Parameters["shared_buffers"] = "512MB"
	assert.Contains(t, parameters(in), "shared_buffers")
	in.Cluster.Spec.PostgreSQL.Parameters["shared_buffers"] = "3GB"
	assert.NotContains(t, parameters(in), "shared_buffers")
	assert.Contains(t, parameters(in), "work_mem", "the others are")
}
