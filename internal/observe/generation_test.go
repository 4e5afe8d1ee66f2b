package observe

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestLiveVersion: which major is live is what the lease says, then what is remembered; what the spec wants only if nothing else is known.
func TestLiveVersion(t *testing.T) {
	t.Parallel()
	saying := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{naming.AnnotationVersion: "17"}}}
	volume := func(instance, version string, primary bool) facts.Volume {
		return facts.Volume{Instance: instance, Version: version, WasPrimary: primary}
	}
	for name, test := range map[string]struct {
		lease   *coordinationv1.Lease
		holder  string
		status  string
		volumes []facts.Volume
		want    string
	}{
		"a new cluster":                  {want: "18"},
		"the lease says":                 {lease: saying, holder: "a-1", status: "16.4", volumes: []facts.Volume{volume("a-1", "16", true)}, want: "17"},
		"an agent that does not say":     {lease: &coordinationv1.Lease{}, holder: "a-1", status: "16.4", volumes: []facts.Volume{volume("a-1", "15", true)}, want: "15"},
		"another's volume":               {holder: "a-1", status: "16.4", volumes: []facts.Volume{volume("a-2", "15", false)}, want: "16"},
		"the lease was deleted":          {status: "16.4", volumes: []facts.Volume{volume("a-1", "17", true)}, want: "17"},
		"volumes of an earlier cluster":  {volumes: []facts.Volume{volume("a-1", "15", true)}, want: "18"},
		"only the status is there still": {status: "16.4", want: "16"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1.PostgresCluster{Status: v1.PostgresClusterStatus{Version: test.status}}
			f := &facts.Cluster{Version: "18", Holder: test.holder, Volumes: test.volumes}
			assert.Equal(t, test.want, liveVersion(c, f, test.lease))
		})
	}
}

// TestReplicas: what the spec wants, and one more while an upgrade of a single instance has added one.
func TestReplicas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec  *int32
		surge bool
		want  int
	}{
		"the default":          {want: 1},
		"an upgrade of one":    {spec: ptr.To[int32](1), surge: true, want: 2},
		"an upgrade of three":  {spec: ptr.To[int32](3), want: 3},
		"three are wanted now": {spec: ptr.To[int32](3), surge: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &v1.PostgresCluster{Spec: v1.PostgresClusterSpec{Replicas: test.spec}}
			c.Status.Upgrade = &v1.UpgradeStatus{Surge: test.surge}
			assert.Equal(t, test.want, replicas(c))
		})
	}
}

// TestImages: an instance of another major keeps its image, though the spec names another one.
func TestImages(t *testing.T) {
	t.Parallel()
	set := func(name, version, image string) client.Object {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if version != "" {
			s.Spec.Template.Annotations = map[string]string{naming.AnnotationVersion: version}
		}
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: naming.ContainerPostgres, Image: image}}
		return s
	}
	c := &v1.PostgresCluster{}
	f := &facts.Cluster{Version: "17", Live: "16", Holder: "a-2"}
	objects := Objects{"StatefulSet": {set("a-1", "", "one"), set("a-2", "", "two"), set("a-3", "17", "new")}}
	assert.Equal(t, map[string]string{"16": "two"}, imagesOf(c, f, objects), "the primary's, of an operator that did not note the version")
	c.Status.Upgrade = &v1.UpgradeStatus{From: "16", FromImage: "first"}
	assert.Equal(t, map[string]string{"16": "first"}, imagesOf(c, f, objects), "what the upgrade began with")
	f.Version = "16"
	assert.Equal(t, map[string]string{"17": "new"}, imagesOf(c, f, objects), "the way back")
}
