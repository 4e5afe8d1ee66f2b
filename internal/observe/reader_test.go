package observe_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/testing/agent"
	"github.com/pgsteward/pgsteward/internal/testing/expect"
	"github.com/pgsteward/pgsteward/internal/testing/memory"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// world is what there is of a cluster in Kubernetes.
type world struct {
	*testing.T
	cluster *v1.PostgresCluster
	c       *memory.Cluster
	reader  *observe.Reader
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	three := int32(3)
	w := &world{T: t, c: memory.New(t, objects...)}
	w.cluster = &v1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "prod-db", Generation: 7},
		Spec:       v1.PostgresClusterSpec{Replicas: &three, Version: "16"},
	}
	w.reader = &observe.Reader{
		Cache: w.c, API: w.c, Now: func() time.Time { return now },
		Agents: &observe.Agents{Changed: func(types.NamespacedName) {}, Log: testr.New(t)},
	}
	t.Cleanup(func() { w.reader.Forget(key) })
	return w
}

func (w *world) observe() observe.Observation {
	w.Helper()
	o, err := w.reader.Observe(w.Context(), w.cluster, observe.Wanted{Image: "image", Storage: 1 << 30})
	require.NoError(w, err)
	return o
}

// parse is an object from parts in YAML, in the namespace and with the labels of the cluster.
func parse[T client.Object](t *testing.T, into T, parts ...string) T {
	t.Helper()
	text := ""
	for _, part := range parts {
		text += expect.Dedent(part)
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), into))
	into.SetNamespace("demo")
	labels := naming.ClusterLabels("prod-db")
	for key, value := range into.GetLabels() {
		labels[key] = value
	}
	into.SetLabels(labels)
	return into
}

// statefulSet is one that was made a minute ago.
func statefulSet(t *testing.T, name string) *appsv1.StatefulSet {
	t.Helper()
	set := parse(t, &appsv1.StatefulSet{}, `
		metadata: {name: `+name+`, uid: uid-of-`+name+`, generation: 2}
		status: {observedGeneration: 2, updateRevision: rev-2, replicas: 0}
	`)
	set.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute))
	return set
}

func pod(t *testing.T, name, rest string) *corev1.Pod {
	t.Helper()
	return parse(t, &corev1.Pod{}, `
		metadata:
		  name: `+name+`
		  uid: uid-of-`+name+`
		  labels: {controller-revision-hash: rev-2, pgsteward.io/instance: `+strings.TrimSuffix(name, "-0")+`}
	`, rest)
}

// TestObserveNothing: a cluster that has nothing yet.
func TestObserveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	assert.Equal(t, facts.Cluster{
		Now: now, Name: "prod-db", Namespace: "demo", Generation: 7, Replicas: 3, Version: "16", Image: "image",
		KeepVolumes: true, Storage: facts.Storage{Bytes: 1 << 30},
		Live: "16", Images: map[string]string{},
		Upgrade: facts.Upgrade{Method: v1.UpgradeAutomatic, Window: time.Hour, MaxPause: 5 * time.Second},
	}, w.observe().Facts)
}

// TestObserveIgnoresOthers: only what has the cluster's label, in its namespace, is its own.
func TestObserveIgnoresOthers(t *testing.T) {
	t.Parallel()
	other := statefulSet(t, "other-1")
	other.Labels[naming.LabelCluster] = "other"
	elsewhere := statefulSet(t, "prod-db-1")
	elsewhere.Namespace = "elsewhere"
	odd := statefulSet(t, "prod-db-x")
	f := newWorld(t, other, elsewhere, odd).observe().Facts
	assert.Empty(t, f.Instances)
	assert.Empty(t, f.Leftovers)
}

func TestObservePods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pod  string
		want func(*facts.Pod)
	}{
		"not scheduled yet": {`status: {}`, func(*facts.Pod) {}},
		"no node fits": {
			`status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes"}]}`,
			func(p *facts.Pod) {
				p.Problem = &facts.Problem{Reason: v1.ReasonUnschedulable, Message: "Pod prod-db-1-0 finds no node: 0/3 nodes"}
			},
		},
		"image being pulled": {
			`
				spec: {nodeName: n1}
				status: {podIP: 10.0.0.1, containerStatuses: [{name: postgres, state: {waiting: {reason: PodInitializing}}}]}
			`,
			func(p *facts.Pod) { p.Node, p.IP = "n1", "10.0.0.1" },
		},
		"image cannot be pulled": {
			`
				spec: {nodeName: n1}
				status: {containerStatuses: [{name: postgres, image: "x:1", state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image: ErrImagePull: not found"}}}]}
			`,
			func(p *facts.Pod) {
				p.Node = "n1"
				p.Problem = &facts.Problem{Reason: v1.ReasonImagePullFailed, Message: `Pod prod-db-1-0: the image "x:1" of container postgres cannot be pulled; correct spec.image or make it available: not found`}
			},
		},
		"image has no name": {
			`status: {initContainerStatuses: [{name: install, image: "x y", state: {waiting: {reason: InvalidImageName, message: "cannot parse"}}}]}`,
			func(p *facts.Pod) {
				p.Problem = &facts.Problem{Reason: v1.ReasonImagePullFailed, Message: `Pod prod-db-1-0: the image "x y" of container install cannot be pulled; correct spec.image or make it available: cannot parse`}
			},
		},
		"crash loop": {
			`status: {containerStatuses: [{name: postgres, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, lastState: {terminated: {exitCode: 127, reason: Error, message: "no initdb"}}}]}`,
			func(p *facts.Pod) {
				p.Problem = &facts.Problem{Reason: v1.ReasonContainerFailed, Message: `Pod prod-db-1-0: container postgres does not run (CrashLoopBackOff): back-off last exit code 127 (Error) no initdb`}
			},
		},
		"running": {
			`
				spec: {nodeName: n1}
				status: {podIP: 10.0.0.1, containerStatuses: [{name: postgres, state: {running: {}}}], conditions: [{type: Ready, status: "False"}]}
			`,
			func(p *facts.Pod) { p.Node, p.IP, p.Running = "n1", "10.0.0.1", true },
		},
		"ready": {
			`
				spec: {nodeName: n1}
				status: {podIP: 10.0.0.1, containerStatuses: [{name: postgres, state: {running: {}}}], conditions: [{type: Ready, status: "True"}]}
			`,
			func(p *facts.Pod) { p.Node, p.IP, p.Running, p.Ready = "n1", "10.0.0.1", true, true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := &facts.Pod{Name: "prod-db-1-0", UID: "uid-of-prod-db-1-0", Current: true}
			test.want(want)
			f := newWorld(t, statefulSet(t, "prod-db-1"), pod(t, "prod-db-1-0", test.pod)).observe().Facts
			require.Len(t, f.Instances, 1)
			assert.Equal(t, want, f.Instances[0].Pod)
			assert.Empty(t, f.OrphanPods)
		})
	}

	t.Run("labelled and configured", func(t *testing.T) {
		t.Parallel()
		p := pod(t, "prod-db-1-0", "")
		p.Labels[naming.LabelRole] = naming.RolePrimary
		p.Annotations = map[string]string{naming.AnnotationConfigHash: "abc"}
		got := newWorld(t, statefulSet(t, "prod-db-1"), p).observe().Facts.Instances[0].Pod
		assert.Equal(t, "primary", got.Role)
		assert.Equal(t, "abc", got.ConfigHash)
	})
	t.Run("of an older template", func(t *testing.T) {
		t.Parallel()
		p := pod(t, "prod-db-1-0", "")
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = "rev-1"
		set := statefulSet(t, "prod-db-1")
		assert.False(t, newWorld(t, set, p).observe().Facts.Instances[0].Pod.Current)
		set.Generation = 3 // its controller has not seen this one yet
		assert.True(t, newWorld(t, set, p).observe().Facts.Instances[0].Pod.Current, "what is not known does not make it old")
	})
	t.Run("going", func(t *testing.T) {
		t.Parallel()
		p := pod(t, "prod-db-1-0", `status: {containerStatuses: [{name: postgres, state: {waiting: {reason: ImagePullBackOff}}}]}`)
		p.Finalizers = []string{"kubernetes/x"}
		deleted := metav1.NewTime(now)
		p.DeletionTimestamp = &deleted
		got := newWorld(t, statefulSet(t, "prod-db-1"), p).observe().Facts.Instances[0].Pod
		assert.True(t, got.Deleting)
		assert.Nil(t, got.Problem, "why it does not run matters no more")
	})
	t.Run("without a StatefulSet", func(t *testing.T) {
		t.Parallel()
		f := newWorld(t, pod(t, "prod-db-2-0", ""), pod(t, "prod-db-1-0", "")).observe().Facts
		assert.Empty(t, f.Instances)
		assert.Equal(t, []string{"prod-db-1-0", "prod-db-2-0"}, f.OrphanPods)
	})
}

// failedCreate is the StatefulSet controller's event.
func failedCreate(t *testing.T, name, uid, message string, at time.Time) *corev1.Event {
	t.Helper()
	e := parse(t, &corev1.Event{}, `
		metadata: {name: `+name+`}
		involvedObject: {uid: `+uid+`}
		reason: FailedCreate
	`)
	e.Message, e.LastTimestamp = message, metav1.NewTime(at)
	return e
}

// TestObserveRefusal: why a StatefulSet has no Pod, in the words of the newest event.
func TestObserveRefusal(t *testing.T) {
	t.Parallel()
	const uid = "uid-of-prod-db-1"
	event := func(name, message string, at time.Time) client.Object { return failedCreate(t, name, uid, message, at) }
	problem := func(reason, message string) *facts.Problem {
		return &facts.Problem{Reason: reason, Message: "No Pod for prod-db-1: " + message}
	}
	for name, test := range map[string]struct {
		objects []client.Object
		want    *facts.Problem
	}{
		"no event":         {nil, nil},
		"a quota":          {[]client.Object{event("a", "create Pod failed: exceeded quota: small", now)}, problem(v1.ReasonQuotaExceeded, "create Pod failed: exceeded quota: small")},
		"a quota's demand": {[]client.Object{event("a", "failed quota: small: must specify limits.cpu", now)}, problem(v1.ReasonQuotaExceeded, "failed quota: small: must specify limits.cpu")},
		"a namespace":      {[]client.Object{event("a", "because it is being terminated", now)}, problem(v1.ReasonNamespaceTerminating, "because it is being terminated")},
		"Pod Security":     {[]client.Object{event("a", "violates PodSecurity", now)}, problem(v1.ReasonPodRefused, "violates PodSecurity")},
		"the newest counts": {
			[]client.Object{event("a", "exceeded quota: a", now.Add(-time.Hour)), event("b", "violates PodSecurity", now), event("c", "exceeded quota: c", now.Add(-time.Minute))},
			problem(v1.ReasonPodRefused, "violates PodSecurity"),
		},
		"of an earlier StatefulSet": {[]client.Object{failedCreate(t, "a", "uid-of-the-last", "exceeded quota", now)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWorld(t, append(test.objects, statefulSet(t, "prod-db-1"))...).observe().Facts
			assert.Equal(t, test.want, f.Instances[0].Refused)
			assert.Nil(t, f.Instances[0].Pod)
		})
	}

	t.Run("its controller has had no time yet", func(t *testing.T) {
		t.Parallel()
		set := statefulSet(t, "prod-db-1")
		set.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
		w := newWorld(t, set)
		w.c.FailReads(func(read string) error {
			require.NotContains(t, read, "Event")
			return nil
		})
		assert.Nil(t, w.observe().Facts.Instances[0].Refused)
	})
	t.Run("it is suspended", func(t *testing.T) {
		t.Parallel()
		set := statefulSet(t, "prod-db-1")
		set.Spec.Replicas = new(int32)
		assert.Nil(t, newWorld(t, set, event("a", "exceeded quota", now)).observe().Facts.Instances[0].Refused)
	})
	t.Run("it cannot be asked", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, statefulSet(t, "prod-db-1"))
		w.c.FailReads(func(read string) error {
			if strings.Contains(read, "Event") {
				return errors.New("connection refused")
			}
			return nil
		})
		_, err := w.reader.Observe(t.Context(), w.cluster, observe.Wanted{})
		require.ErrorContains(t, err, "events of StatefulSet demo/prod-db-1: connection refused")
	})
}

// claim is a volume claim of an instance.
func claim(t *testing.T, instance, rest string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return parse(t, &corev1.PersistentVolumeClaim{}, `
		metadata: {name: `+instance+`-data, labels: {pgsteward.io/instance: `+instance+`}}
	`, rest)
}

func TestObserveVolumes(t *testing.T) {
	t.Parallel()
	second := claim(t, "prod-db-2", `spec: {volumeName: pv-2, storageClassName: fast, resources: {requests: {storage: 2Gi}}}`)
	second.Annotations = map[string]string{naming.AnnotationSystemIdentifier: "7123", naming.AnnotationVersion: "16", naming.AnnotationDataRole: "primary"}
	strange := claim(t, "prod-db-3", "")
	strange.Name = "prod-db-3-other"
	f := newWorld(t, second, claim(t, "prod-db-1", `spec: {resources: {requests: {storage: 1Gi}}}`), strange).observe().Facts
	assert.Equal(t, []facts.Volume{
		{Instance: "prod-db-1", Ordinal: 1, Bytes: 1 << 30},
		{Instance: "prod-db-2", Ordinal: 2, Bytes: 2 << 30, Bound: true, Class: "fast", SystemIdentifier: "7123", Version: "16", WasPrimary: true},
	}, f.Volumes)
	assert.Equal(t, "7123", f.SystemIdentifier)
	assert.True(t, f.HasData())
}

// TestObserveStorageClass: which class new volumes get, and what the others are like. internal/validate says what is wrong with it.
func TestObserveStorageClass(t *testing.T) {
	t.Parallel()
	class := func(name string, isDefault bool, age time.Duration) client.Object {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}, Provisioner: "x"}
		if isDefault {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	expands := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "elastic"}, Provisioner: "x", AllowVolumeExpansion: new(true)}
	fast := "fast"
	for name, test := range map[string]struct {
		named   *string
		objects []client.Object
		class   string
		want    []facts.StorageClass
	}{
		"the default": {nil, []client.Object{class("slow", false, 1), class("standard", true, 1)}, "standard",
			[]facts.StorageClass{{Name: "slow"}, {Name: "standard", Default: true}}},
		"the newest default": {nil, []client.Object{class("a", true, time.Hour), class("b", true, time.Minute), class("c", true, 2*time.Hour)}, "b",
			[]facts.StorageClass{{Name: "a"}, {Name: "b", Default: true}, {Name: "c"}}},
		"no default":                   {nil, []client.Object{expands}, "", []facts.StorageClass{{Name: "elastic", Expands: true}}},
		"the named one":                {&fast, []client.Object{class("fast", false, 1)}, "fast", []facts.StorageClass{{Name: "fast"}}},
		"the named one does not exist": {&fast, nil, "fast", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.objects...)
			w.cluster.Spec.Storage.StorageClassName = test.named
			f := w.observe().Facts
			assert.Equal(t, test.class, f.Storage.Class)
			assert.Equal(t, test.want, f.StorageClasses)
		})
	}
}

// TestObserveLease: who holds it, and whose data the cluster has; first what the status says, then the Lease, then the volumes.
func TestObserveLease(t *testing.T) {
	t.Parallel()
	lease := parse(t, &coordinationv1.Lease{}, `
		metadata: {name: prod-db-primary, annotations: {pgsteward.io/system-identifier: "2"}}
		spec: {holderIdentity: prod-db-3}
	`)
	volume := claim(t, "prod-db-1", "")
	volume.Annotations = map[string]string{naming.AnnotationSystemIdentifier: "3"}

	w := newWorld(t, lease, volume)
	assert.Equal(t, "prod-db-3", w.observe().Facts.Holder)
	assert.Equal(t, "2", w.observe().Facts.SystemIdentifier)
	w.cluster.Status.SystemIdentifier = "1"
	assert.Equal(t, "1", w.observe().Facts.SystemIdentifier)
	assert.False(t, w.observe().Facts.OnlyRemembered)
	remembered := newWorld(t, volume).observe().Facts
	assert.Equal(t, "3", remembered.SystemIdentifier)
	assert.True(t, remembered.OnlyRemembered)
	volume.DeletionTimestamp, volume.Finalizers = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, []string{"kubernetes.io/pvc-protection"}
	going := newWorld(t, volume).observe().Facts
	assert.False(t, going.HasData(), "what a volume that goes has, goes with it")

	empty := parse(t, &coordinationv1.Lease{}, `metadata: {name: prod-db-primary}`)
	assert.Empty(t, newWorld(t, empty).observe().Facts.Holder)
}

// TestObserveDeletion: what is left of a cluster that is being deleted; kept volumes are not left over.
func TestObserveDeletion(t *testing.T) {
	t.Parallel()
	objects := func() []client.Object {
		return []client.Object{
			statefulSet(t, "prod-db-1"), pod(t, "prod-db-1-0", ""), claim(t, "prod-db-1", ""),
			parse(t, &corev1.Secret{}, `metadata: {name: prod-db-app}`),
			parse(t, &coordinationv1.Lease{}, `metadata: {name: prod-db-primary}`),
		}
	}
	w := newWorld(t, objects()...)
	deleted := metav1.NewTime(now.Add(-time.Minute))
	w.cluster.DeletionTimestamp = &deleted
	f := w.observe().Facts
	assert.True(t, f.Deleting)
	assert.Equal(t, deleted.Time, f.DeletedAt)
	assert.Equal(t, []string{"lease/prod-db-primary", "secret/prod-db-app"}, f.Leftovers)
	assert.True(t, f.KeepVolumes)

	w.cluster.Spec.Deletion.Volumes = v1.Delete
	f = w.observe().Facts
	assert.False(t, f.KeepVolumes)
	assert.Equal(t, []string{"lease/prod-db-primary", "persistentvolumeclaim/prod-db-1-data", "secret/prod-db-app"}, f.Leftovers)
}

func TestObserveWishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cluster.Annotations = map[string]string{naming.AnnotationPaused: "true", naming.AnnotationForceDelete: "true"}
	w.cluster.Spec.Suspend = true
	f := w.observe().Facts
	assert.True(t, f.Paused)
	assert.True(t, f.ForceDelete)
	assert.True(t, f.Suspend)
}

func TestObserveCredentials(t *testing.T) {
	t.Parallel()
	secret := func(name string, data map[string][]byte) client.Object {
		s := parse(t, &corev1.Secret{}, `metadata: {name: `+name+`}`)
		s.Data = data
		return s
	}
	o := newWorld(t,
		secret("prod-db-app", map[string][]byte{"password": []byte("app")}),
		secret("prod-db-ca", map[string][]byte{"tls.crt": []byte("cert"), "tls.key": []byte("key")}),
		secret("prod-db-server", map[string][]byte{"tls.crt": []byte("server")}),
	).observe()
	assert.Equal(t, "app", o.Credentials.AppPassword)
	assert.Empty(t, o.Credentials.SuperuserPassword)
	assert.Equal(t, []byte("key"), o.Credentials.CA.Key)
	assert.Equal(t, []byte("server"), o.Credentials.Server.Cert)
	assert.Empty(t, o.Credentials.Server.Key)
	assert.Empty(t, o.Credentials.Replication)
}

// TestObserveErrors: a pass that cannot read everything says so, rather than taking what it does not see for missing.
func TestObserveErrors(t *testing.T) {
	t.Parallel()
	for _, kind := range observe.Kinds() {
		w := newWorld(t)
		w.c.FailReads(func(read string) error {
			if read == "list "+kind.Name+"List " {
				return errors.New("connection refused")
			}
			return nil
		})
		_, err := w.reader.Observe(t.Context(), w.cluster, observe.Wanted{})
		require.ErrorContains(t, err, "demo/prod-db: connection refused", kind.Name)
	}
}

// TestObserveAgent: from the Pod's address and the cluster's authority to what the agent says.
func TestObserveAgent(t *testing.T) {
	t.Parallel()
	set := credentials(t)
	a := agent.Listen(t, "127.0.0.1", 0, set)
	said := agentapi.Status{Instance: "prod-db-1", State: agentapi.StateRunning, Role: agentapi.RolePrimary, Ready: true}
	a.Say(said)
	ca := parse(t, &corev1.Secret{}, `metadata: {name: prod-db-ca}`)
	ca.Data = map[string][]byte{naming.KeyTLSCert: set.CA.Cert, naming.KeyTLSKey: set.CA.Key}
	w := newWorld(t, ca, statefulSet(t, "prod-db-1"), pod(t, "prod-db-1-0", `status: {podIP: 127.0.0.1}`))
	l := listen(t, a.Port)
	w.reader.Agents = l.Agents

	first := w.observe().Facts.Instances[0]
	_, known := first.Report.Get()
	assert.False(t, known)
	assert.True(t, first.NeverHeard)
	l.changed()
	heard := w.observe().Facts.Instances[0]
	report, known := heard.Report.Get()
	require.True(t, known)
	assert.False(t, heard.NeverHeard)
	assert.Equal(t, said, report)

	w.reader.Forget(key)
	a.Heard(t, 0)
}
