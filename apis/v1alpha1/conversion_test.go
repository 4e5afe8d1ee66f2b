package v1alpha1

import (
	"encoding/json"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/randfill"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

var (
	_ conversion.Hub         = &v1.PostgresCluster{}
	_ conversion.Convertible = &PostgresCluster{}
)

// objects is how many random objects go each way.
const objects = 10_000

// asJSON is what of an object reaches the other side: nil and empty are told apart where the wire does.
func asJSON(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return string(text)
}

// overTheWire is the object as the other side reads it.
func overTheWire[T any](t *testing.T, object T) T {
	t.Helper()
	var read T
	require.NoError(t, json.Unmarshal([]byte(asJSON(t, object)), &read))
	return read
}

func toV1(t *testing.T, c *PostgresCluster) *v1.PostgresCluster {
	t.Helper()
	to := &v1.PostgresCluster{}
	require.NoError(t, c.ConvertTo(to))
	return to
}

func fromV1(t *testing.T, c *v1.PostgresCluster) *PostgresCluster {
	t.Helper()
	from := &PostgresCluster{}
	require.NoError(t, from.ConvertFrom(c))
	return from
}

// randomV1 is a random v1 object.
func randomV1(random *randfill.Filler) *v1.PostgresCluster {
	c := &v1.PostgresCluster{}
	random.Fill(c)
	c.TypeMeta = metav1.TypeMeta{}
	return c
}

// same fails with the place where two long texts begin to differ.
func same(t *testing.T, object int, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	around := func(s string) string { return strings.ToValidUTF8(s[max(0, at-80):min(len(s), at+80)], "") }
	require.Equal(t, around(want), around(got), "object %d, from byte %d on", object, at)
}

// TestRoundTrips: random objects of each version come back as they were, over the wire and in memory, and the original is not
// touched.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	t.Run("v1 to v1alpha1 and back", func(t *testing.T) {
		t.Parallel()
		random := filler(1)
		carries := 0
		for n := range objects {
			original := overTheWire(t, randomV1(random))
			before := asJSON(t, original)
			shown := fromV1(t, original)
			same(t, n, before, asJSON(t, original))
			if _, ok := shown.Annotations[AnnotationV1]; ok {
				carries++
			}
			same(t, n, before, asJSON(t, toV1(t, overTheWire(t, shown))))
		}
		require.Greater(t, carries, objects/2)
	})
	t.Run("v1alpha1 to v1 and back", func(t *testing.T) {
		t.Parallel()
		random := filler(2)
		for n := range objects {
			original := &PostgresCluster{}
			random.Fill(original)
			original.TypeMeta = metav1.TypeMeta{}
			before := asJSON(t, original)
			stored := toV1(t, original)
			same(t, n, before, asJSON(t, original))
			same(t, n, before, asJSON(t, fromV1(t, overTheWire(t, stored))))
		}
	})
}

// TestOldClient: a client that knows v1alpha1 only reads, changes what it knows and writes. Nothing else changes.
func TestOldClient(t *testing.T) {
	t.Parallel()
	random := filler(3)
	for n := range objects {
		original := overTheWire(t, randomV1(random))
		shown := overTheWire(t, fromV1(t, original))
		replicas, size, class := int32(n%9+1), resource.MustParse("77Gi"), "changed"
		want := original.DeepCopy()
		if n%2 == 0 {
			shown.Spec.Replicas, want.Spec.Replicas = replicas, &replicas
		}
		if n%3 == 0 {
			shown.Spec.Storage.Size, want.Spec.Storage.Size = size, &size
		}
		switch n % 5 {
		case 0:
			shown.Spec.Storage.StorageClassName, want.Spec.Storage.StorageClassName = class, &class
		case 1:
			shown.Spec.Storage.StorageClassName = ""
			if ptr.Deref(want.Spec.Storage.StorageClassName, "") != "" {
				want.Spec.Storage.StorageClassName = nil
			}
		}
		if n%7 == 0 {
			shown.Spec.PostgresVersion = original.Spec.Version + ".99"
			metav1.SetMetaDataAnnotation(&want.ObjectMeta, v1.AnnotationPostgresVersion, original.Spec.Version+".99")
		}
		got := toV1(t, shown)
		if shown.Spec.Replicas == defaultReplicas && original.Spec.Replicas == nil {
			want.Spec.Replicas = nil // 3 is what it saw
		}
		same(t, n, asJSON(t, want), asJSON(t, got))
	}
}

// TestConversion shows by example what the random objects only prove.
func TestConversion(t *testing.T) {
	t.Parallel()
	old := &PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod-db", Annotations: map[string]string{"team": "a"}},
		Spec: PostgresClusterSpec{
			Replicas: 2, PostgresVersion: "15.2",
			Storage: StorageSpec{Size: resource.MustParse("10Gi"), StorageClassName: "fast"},
		},
		Status: PostgresClusterStatus{Phase: PhaseReady, PrimaryHost: "prod-db-rw.x.svc"},
	}
	stored := toV1(t, old)
	require.Equal(t, "15", stored.Spec.Version)
	require.EqualValues(t, 2, *stored.Spec.Replicas)
	require.Equal(t, "fast", *stored.Spec.Storage.StorageClassName)
	require.Equal(t, v1.PhaseRunning, stored.Status.Phase)
	require.Equal(t, map[string]string{"team": "a", v1.AnnotationPostgresVersion: "15.2"}, stored.Annotations)
	require.Equal(t, map[string]string{"team": "a"}, fromV1(t, stored).Annotations, "nothing needs to be carried")

	t.Run("what v1 alone has is carried", func(t *testing.T) {
		t.Parallel()
		c := stored.DeepCopy()
		c.Spec.PostgreSQL.Parameters = map[string]v1.ParameterValue{"work_mem": "16MB"}
		shown := fromV1(t, c)
		require.Contains(t, shown.Annotations[AnnotationV1], `"work_mem":"16MB"`)
		require.Equal(t, "15.2", shown.Spec.PostgresVersion)
	})
	t.Run("no minor, no class, no size", func(t *testing.T) {
		t.Parallel()
		shown := fromV1(t, &v1.PostgresCluster{Spec: v1.PostgresClusterSpec{Version: "18"}})
		require.Equal(t, "18", shown.Spec.PostgresVersion)
		require.Equal(t, "1Gi", shown.Spec.Storage.Size.String())
		require.Empty(t, shown.Spec.Storage.StorageClassName)
		require.EqualValues(t, 3, shown.Spec.Replicas)
	})
	t.Run("a minor of another major does not count", func(t *testing.T) {
		t.Parallel()
		c := stored.DeepCopy()
		c.Spec.Version = "16"
		shown := fromV1(t, c)
		require.Equal(t, "16", shown.Spec.PostgresVersion)
		require.Equal(t, "15.2", shown.Annotations[v1.AnnotationPostgresVersion], "nor is it lost")
	})
	t.Run("a minor that is taken away is gone", func(t *testing.T) {
		t.Parallel()
		shown := old.DeepCopy()
		shown.Spec.PostgresVersion = "15"
		shown.Annotations[v1.AnnotationPostgresVersion] = "15.2"
		require.NotContains(t, toV1(t, shown).Annotations, v1.AnnotationPostgresVersion)
	})
	t.Run("an annotation that was changed is refused", func(t *testing.T) {
		t.Parallel()
		shown := old.DeepCopy()
		shown.Annotations[AnnotationV1] = "{"
		require.ErrorContains(t, shown.ConvertTo(&v1.PostgresCluster{}), "restore what you read")
	})
	t.Run("phases", func(t *testing.T) {
		t.Parallel()
		for phase, want := range map[v1.Phase]Phase{
			"": "", v1.PhaseCreating: PhaseCreating, v1.PhaseRunning: PhaseReady, "Upgrading": PhaseReady,
			v1.PhaseFailed: PhaseFailed, v1.PhaseDeleting: PhaseFailed, v1.PhaseSuspended: PhaseFailed,
		} {
			require.Equal(t, want, showPhase(phase), "%q", phase)
		}
	})
}

// filler makes random objects of the shapes that the API server lets through.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(pick(c.Rand, "1Gi", "128Mi", "10Gi", "1500M", "250m", "1", "0"))
		},
		func(s *v1.PostgresClusterSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Version = pick(c.Rand, "15", "16", "17", "18")
			if s.Replicas != nil {
				*s.Replicas = int32(c.Intn(9) + 1)
			}
		},
		func(s *v1.StorageSpec, c randfill.Continue) {
			c.FillNoCustom(s)
			if s.Size != nil && s.Size.IsZero() {
				s.Size = ptr.To(resource.MustParse("3Gi"))
			}
			if s.StorageClassName != nil {
				*s.StorageClassName = pick(c.Rand, "", "fast", "slow") // "" is refused, but was not always
			}
		},
		func(s *PostgresClusterSpec, c randfill.Continue) {
			s.Replicas = int32(c.Intn(9) + 1)
			s.PostgresVersion = pick(c.Rand, "15", "16", "17", "18", "15.2", "16.14", "18.0")
			s.Storage.Size = resource.MustParse(pick(c.Rand, "1Gi", "128Mi", "10Gi", "1500M"))
			s.Storage.StorageClassName = pick(c.Rand, "", "fast", "slow")
		},
		func(p *Phase, c randfill.Continue) { *p = pick(c.Rand, "", PhaseCreating, PhaseReady, PhaseFailed) },
		func(p *v1.Phase, c randfill.Continue) {
			*p = pick(c.Rand, "", v1.PhaseCreating, v1.PhaseRunning, v1.PhaseFailed, v1.PhaseDeleting, "Upgrading", v1.PhaseSuspended)
		},
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			*m = metav1.ObjectMeta{
				Name: pick(c.Rand, "a", "prod-db"), Namespace: "x", UID: "u", ResourceVersion: "7", Generation: c.Int63n(5),
				Finalizers: pick(c.Rand, nil, []string{"pgsteward.io/cleanup"}),
				Labels:     pick(c.Rand, nil, map[string]string{}, map[string]string{"a": "b"}),
				// one that another tool added, and minors that count, do not count and are none
				Annotations: pick(c.Rand, nil, map[string]string{}, map[string]string{"other": "tool"}),
			}
		},
		func(c *v1.PostgresCluster, r randfill.Continue) {
			r.FillNoCustom(c)
			if minor := pick(r.Rand, "", "15.2", "16.14", "17", "nonsense"); minor != "" {
				c.Annotations = map[string]string{v1.AnnotationPostgresVersion: minor}
			}
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(1_800_000_000+c.Int63n(1000), 0) },
		func(r *corev1.ResourceRequirements, c randfill.Continue) {
			*r = pick(c.Rand, corev1.ResourceRequirements{}, corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			})
		},
	)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.Intn(len(from))] }

// BenchmarkConversion is the work of one request for one object.
func BenchmarkConversion(b *testing.B) {
	original := &v1.PostgresCluster{}
	filler(time.Now().UnixNano()).Fill(original)
	for b.Loop() {
		shown := &PostgresCluster{}
		if err := shown.ConvertFrom(original); err != nil {
			b.Fatal(err)
		}
		if err := shown.ConvertTo(&v1.PostgresCluster{}); err != nil {
			b.Fatal(err)
		}
	}
}
