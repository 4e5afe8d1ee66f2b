package apply_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/memory"
)

// live is the cache: what the API server has with our labels.
type live struct {
	t *testing.T
	c client.Reader
}

func (l live) Get(kind, name string) client.Object {
	l.t.Helper()
	require.Equal(l.t, "ConfigMap", kind)
	m := &corev1.ConfigMap{}
	err := l.c.Get(context.Background(), types.NamespacedName{Namespace: "demo", Name: name}, m)
	if apierrors.IsNotFound(err) || m.Labels[naming.LabelManagedBy] == "" {
		return nil
	}
	require.NoError(l.t, err)
	return m
}

func owner() *v1.PostgresCluster {
	return &v1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db", UID: "uid-1"}}
}

func configMap(name string, data map[string]string) runtime.ApplyConfiguration {
	return coreac.ConfigMap(name, "demo").WithLabels(naming.ClusterLabels("prod-db")).WithData(data).
		WithOwnerReferences(metaac.OwnerReference().WithAPIVersion("pgsteward.io/v1").WithKind("PostgresCluster").WithName("prod-db").WithUID("uid-1").WithController(true))
}

type fixture struct {
	*testing.T
	c *memory.Cluster
	w *apply.Writer
}

func newFixture(t *testing.T, objects ...client.Object) fixture {
	t.Helper()
	c := memory.New(t, objects...)
	return fixture{t, c, &apply.Writer{Client: c, API: c}}
}

func (f fixture) objects(desired ...runtime.ApplyConfiguration) error {
	f.Helper()
	return f.w.Objects(f.Context(), owner(), live{f.T, f.c}, desired)
}

func (f fixture) configMap(name string) *corev1.ConfigMap {
	f.Helper()
	m := &corev1.ConfigMap{}
	require.NoError(f, f.c.Get(f.Context(), types.NamespacedName{Namespace: "demo", Name: name}, m))
	return m
}

// TestObjectsWritesOnlyDifferences: created, left alone, mended, changed.
func TestObjectsWritesOnlyDifferences(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := func() runtime.ApplyConfiguration { return configMap("a", map[string]string{"k": "v", "l": "w"}) }

	require.NoError(t, f.objects(want()))
	assert.Equal(t, []string{"apply ConfigMap a"}, f.c.Writes())
	assert.NotEmpty(t, f.configMap("a").Annotations[naming.AnnotationAppliedHash])

	require.NoError(t, f.objects(want()))
	assert.Empty(t, f.c.Writes(), "nothing differs")

	added := f.configMap("a")
	added.Labels["team"], added.Data["x"] = "blue", "y"
	require.NoError(t, f.c.Update(t.Context(), added))
	f.c.Writes()
	require.NoError(t, f.objects(want()))
	assert.Empty(t, f.c.Writes(), "what others add is left alone")

	edited := f.configMap("a")
	edited.Data["k"] = "by hand"
	require.NoError(t, f.c.Update(t.Context(), edited))
	f.c.Writes()
	require.NoError(t, f.objects(want()))
	assert.Equal(t, []string{"apply ConfigMap a"}, f.c.Writes())
	assert.Equal(t, map[string]string{"k": "v", "l": "w", "x": "y"}, f.configMap("a").Data)

	require.NoError(t, f.objects(configMap("a", map[string]string{"k": "v"})))
	assert.Equal(t, []string{"apply ConfigMap a"}, f.c.Writes(), "what is desired no more goes")
	assert.NotContains(t, f.configMap("a").Data, "l")

	unhashed := f.configMap("a")
	delete(unhashed.Annotations, naming.AnnotationAppliedHash)
	require.NoError(t, f.c.Update(t.Context(), unhashed))
	f.c.Writes()
	require.NoError(t, f.objects(configMap("a", map[string]string{"k": "v"})))
	assert.Equal(t, []string{"apply ConfigMap a"}, f.c.Writes(), "it is not known what was applied")
}

// TestObjectsOfOthers: an object of somebody else is never taken over, and does not keep ours from being written.
func TestObjectsOfOthers(t *testing.T) {
	t.Parallel()
	yes := true
	labels := naming.ClusterLabels("prod-db")
	for name, test := range map[string]struct {
		labels map[string]string
		owner  types.UID
		taken  bool
	}{
		"somebody's":                         {nil, "", true},
		"somebody's, owned":                  {nil, "uid-9", true},
		"another cluster's":                  {naming.ClusterLabels("other"), "uid-2", true},
		"with our labels, but another owner": {labels, "uid-0", true},
		"ours":                               {labels, "uid-1", false},
		"kept from an earlier life":          {labels, "", false},
		"ours, its labels removed by hand":   {nil, "uid-1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			existing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "a", Labels: test.labels}, Data: map[string]string{"k": "theirs"}}
			if test.owner != "" {
				existing.OwnerReferences = []metav1.OwnerReference{{APIVersion: "pgsteward.io/v1", Kind: "PostgresCluster", Name: "x", UID: test.owner, Controller: &yes}}
			}
			f := newFixture(t, existing)
			refusals, rest := apply.Refusals(f.objects(configMap("a", map[string]string{"k": "ours"}), configMap("b", nil)))
			require.NoError(t, rest)
			assert.Contains(t, f.c.Writes(), "apply ConfigMap b")
			if !test.taken {
				assert.Empty(t, refusals)
				assert.Equal(t, "ours", f.configMap("a").Data["k"])
				return
			}
			require.Len(t, refusals, 1)
			assert.Equal(t, v1.ReasonNameTaken, refusals[0].Reason)
			assert.Equal(t, "ConfigMap demo/a exists and does not belong to this PostgresCluster: remove or rename it, or give the cluster another name", refusals[0].Message)
			assert.Equal(t, "theirs", f.configMap("a").Data["k"])
		})
	}
}

// TestObjectsGoesOn: one object's error does not keep the others from being written, and none is lost.
func TestObjectsGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("exceeded quota: small"))
	down := errors.New("connection refused")
	f.c.FailWrites(func(write string) error {
		return map[string]error{"apply ConfigMap a": quota, "apply ConfigMap b": down}[write]
	})
	refusals, rest := apply.Refusals(f.objects(configMap("a", nil), configMap("b", nil), configMap("c", nil)))
	require.Len(t, refusals, 1)
	assert.Equal(t, v1.ReasonQuotaExceeded, refusals[0].Reason)
	require.ErrorIs(t, rest, down)
	require.ErrorContains(t, rest, "writing ConfigMap demo/b")
	assert.Len(t, f.c.Writes(), 3)
	f.configMap("c")
}

func TestObjectsAsksBeforeItTakes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.c.FailReads(func(string) error { return errors.New("connection refused") })
	err := f.w.Objects(t.Context(), owner(), nothing{}, []runtime.ApplyConfiguration{configMap("a", nil)})
	require.ErrorContains(t, err, "connection refused")
	assert.Empty(t, f.c.Writes(), "whose it is, is not known")
}

type nothing struct{}

func (nothing) Get(string, string) client.Object { return nil }

func pod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db-1-0", UID: uid}}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		exists []client.Object
		delete *corev1.Pod
		gone   bool
	}{
		"just this one": {[]client.Object{pod("u1")}, pod("u1"), true},
		"not the next":  {[]client.Object{pod("u2")}, pod("u1"), false},
		"gone already":  {nil, pod("u1"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, test.exists...)
			require.NoError(t, f.w.DeletePod(t.Context(), "demo", test.delete.Name, string(test.delete.UID)))
			err := f.c.Get(t.Context(), client.ObjectKeyFromObject(test.delete), &corev1.Pod{})
			assert.Equal(t, test.gone, apierrors.IsNotFound(err))
		})
	}

	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		require.NoError(t, f.w.Delete(t.Context(), nil))
		assert.Empty(t, f.c.Writes())
	})
	t.Run("what is going already", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		going := pod("u1")
		going.DeletionTimestamp = &metav1.Time{}
		going.DeletionTimestamp.Time = metav1.Unix(1, 0).Time
		require.NoError(t, f.w.Delete(t.Context(), going))
		assert.Empty(t, f.c.Writes())
	})
	t.Run("an error is told with the object", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, pod("u1"))
		f.c.FailWrites(func(string) error { return errors.New("connection refused") })
		require.ErrorContains(t, f.w.Delete(t.Context(), pod("u1")), "demo/prod-db-1-0: connection refused")
	})
}

func TestPod(t *testing.T) {
	t.Parallel()
	desired := func() runtime.ApplyConfiguration {
		return coreac.Pod("prod-db-1-0", "demo").WithUID("u1").WithLabels(map[string]string{naming.LabelRole: naming.RolePrimary})
	}
	f := newFixture(t, pod("u1"))
	require.NoError(t, f.w.Pod(t.Context(), desired()))
	got := &corev1.Pod{}
	require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(pod("u1")), got))
	assert.Equal(t, naming.RolePrimary, got.Labels[naming.LabelRole])

	resource := schema.GroupResource{Resource: "pods"}
	for _, err := range []error{
		apierrors.NewConflict(resource, "p", errors.New("another UID")), apierrors.NewNotFound(resource, "p"),
		apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), // a Pod that is gone cannot be made by its labels alone
	} {
		f.c.FailWrites(func(string) error { return err })
		require.NoError(t, f.w.Pod(t.Context(), desired()))
	}
	f.c.FailWrites(func(string) error { return errors.New("connection refused") })
	require.ErrorContains(t, f.w.Pod(t.Context(), desired()), "connection refused")
}

func TestFinalizer(t *testing.T) {
	t.Parallel()
	c := owner()
	c.Finalizers = []string{"somebody.example/else"}
	f := newFixture(t, c)
	get := func() *v1.PostgresCluster {
		got := &v1.PostgresCluster{}
		require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(c), got))
		return got
	}
	require.NoError(t, f.w.Finalizer(t.Context(), get(), true))
	assert.Equal(t, []string{"somebody.example/else", naming.Finalizer}, get().Finalizers)
	f.c.Writes()
	require.NoError(t, f.w.Finalizer(t.Context(), get(), true))
	assert.Empty(t, f.c.Writes())

	stale := get()
	changed := get()
	changed.Labels = map[string]string{"team": "blue"}
	require.NoError(t, f.c.Update(t.Context(), changed))
	require.Error(t, f.w.Finalizer(t.Context(), stale, false), "the list of finalizers may have changed meanwhile")

	require.NoError(t, f.w.Finalizer(t.Context(), get(), false))
	assert.Equal(t, []string{"somebody.example/else"}, get().Finalizers)

	gone := get()
	gone.Name = "gone"
	require.NoError(t, f.w.Finalizer(t.Context(), gone, true), "who is gone needs no finalizer")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	c := owner()
	f := newFixture(t, c)
	get := func() *v1.PostgresCluster {
		got := &v1.PostgresCluster{}
		require.NoError(t, f.c.Get(t.Context(), client.ObjectKeyFromObject(c), got))
		return got
	}
	status := v1.PostgresClusterStatus{Phase: v1.PhaseRunning, Replicas: 3, Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: "R"}}}
	require.NoError(t, f.w.Status(t.Context(), get(), status))
	assert.Equal(t, []string{"patch status of PostgresCluster prod-db"}, f.c.Writes())
	assert.Equal(t, v1.PhaseRunning, get().Status.Phase)

	same := get()
	require.NoError(t, f.w.Status(t.Context(), same, *same.Status.DeepCopy()))
	assert.Empty(t, f.c.Writes(), "nothing has changed")

	require.NoError(t, f.w.Status(t.Context(), get(), v1.PostgresClusterStatus{Phase: v1.PhaseFailed}))
	assert.Zero(t, get().Status.Replicas)
	assert.Empty(t, get().Status.Conditions)

	gone := get()
	gone.Name = "gone"
	require.NoError(t, f.w.Status(t.Context(), gone, status), "who is gone needs no status")

	f.c.FailWrites(func(string) error { return errors.New("connection refused") })
	require.ErrorContains(t, f.w.Status(t.Context(), get(), status), "writing the status of PostgresCluster demo/prod-db: connection refused")
}
