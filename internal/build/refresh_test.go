package build_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// TestPodsRefresh: a Pod whose agent sees old files is refreshed until it sees the new ones; one that sees them is left alone.
func TestPodsRefresh(t *testing.T) {
	t.Parallel()
	in := input(t, minimal)
	current := hash(t, in)
	seen := func(filesHash, annotated string, refreshedAgo time.Duration) []build.Object {
		f := given.Cluster("prod-db").With(given.Member(1).Primary().Labelled("primary", annotated).
			Report(func(s *agentapi.Status) { s.FilesHash = filesHash })).Facts()
		if annotated != "" {
			f.Instances[0].Pod.RefreshedAt = f.Now.Add(-refreshedAgo)
		}
		return build.Pods(in, f)
	}
	assert.Empty(t, seen(current, "", 0), "a new Pod has new files")
	assert.Empty(t, seen(current, current, time.Hour))
	assert.Empty(t, seen("old", current, time.Second), "the kubelet was asked just now")
	assert.Len(t, seen("old", "", 0), 1)
	assert.Len(t, seen("old", "old", time.Hour), 1)
	assert.Len(t, seen(current, "old", time.Hour), 1, "it came by itself: the annotation must not look outdated for ever")

	again := seen("old", current, 4*time.Second)
	require.Len(t, again, 1, "the kubelet had not seen the new ConfigMap when it was asked: without this the files stay old for a minute or more")
	assert.Equal(t, map[string]string{
		naming.AnnotationConfigHash:  current,
		naming.AnnotationRefreshedAt: given.Now.Format(time.RFC3339),
	}, asUnstructured(t, again[0]).GetAnnotations(), "a changed annotation is what makes the kubelet look")
}
