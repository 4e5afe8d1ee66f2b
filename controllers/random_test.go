package controllers_test

import (
	"encoding/json"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/status"
)

// randomSpecs is how many specs, with facts, go through planner, builders and status.
const randomSpecs = 10_000

// TestRandomSpecs: whatever stands in a PostgresCluster, also what its schema would refuse, and whatever is known of it, nothing
// panics, and everything that is made can be sent.
func TestRandomSpecs(t *testing.T) {
	t.Parallel()
	const seed = 20261130
	random := rand.New(rand.NewSource(seed)) //nolint:gosec // a test that can be repeated
	fill := randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63()-c.Int63(), resource.BinarySI)
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<32), 0) },
		func(at *time.Time, c randfill.Continue) { *at = time.Unix(c.Int63n(1<<32), 0) },
		func(k *facts.Known[agentapi.Status], c randfill.Continue) {
			if c.Bool() {
				var report agentapi.Status
				c.Fill(&report)
				*k = facts.Know(report)
			}
		},
	)
	for n := range randomSpecs {
		var c v1.PostgresCluster
		var f facts.Cluster
		fill.Fill(&c)
		fill.Fill(&f)
		f.Replicas, f.Name, f.Namespace = random.Intn(12)-1, c.Name, c.Namespace
		decision := plan.Decide(f)
		in := build.Input{Cluster: &c, Members: decision.Members, Bootstrap: decision.Bootstrap, Stopped: decision.Stopped, Volumes: f.Volumes}
		fill.Fill(&in.Credentials)
		fill.Fill(&in.Settings)
		for _, object := range append(build.Objects(in), build.Pods(in, f)...) {
			_, err := json.Marshal(object)
			require.NoError(t, err, "spec %d", n)
		}
		told := status.Input{Facts: f, Decision: decision, Previous: c.Status}
		s := status.Compute(told)
		_ = status.Events(told, s)
		_, err := json.Marshal(s)
		require.NoError(t, err, "spec %d", n)
	}
}
