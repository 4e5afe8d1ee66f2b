package controllers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// TestWanted: a wish that is an annotation begins a pass at once, and nothing else that is annotated does.
func TestWanted(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		naming.AnnotationRestart: true, naming.AnnotationSwitchover: true, naming.AnnotationUpgradeSwitchover: true,
		naming.AnnotationUpgradeRetry: true, naming.AnnotationUpgradePreflight: true, "example.com/seen": false,
	} {
		after := &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "now"}}}
		assert.Equal(t, want, wanted().Update(event.UpdateEvent{ObjectOld: &v1.PostgresCluster{}, ObjectNew: after}), key)
	}
}
