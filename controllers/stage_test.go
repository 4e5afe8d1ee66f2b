package controllers_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/controllers"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/apply"
	"github.com/pgsteward/pgsteward/internal/build"
	"github.com/pgsteward/pgsteward/internal/credential"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/observe"
	"github.com/pgsteward/pgsteward/internal/testing/agent"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

const (
	// patience bounds what a test waits for.
	patience = 60 * time.Second
	// tick is how often a test looks.
	tick = 20 * time.Millisecond
	// system is the PostgreSQL system that the played instances have.
	system = "7123456789012345678"
)

// stage is a reconciler and what it plays with: an API server, in memory or real, and the kubelets, StatefulSet controller, garbage
// collector and agents that play() and the agents' servers stand for.
type stage struct {
	*testing.T
	c         client.Client
	namespace string
	r         *controllers.PostgresCluster
	recorder  *recorder
	agents    map[string]*agent.Agent
	port      int
	// says changes what agents say.
	says func(*agentapi.Status)
}

func newStage(t *testing.T, c client.Client, namespace string) *stage {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "example.org/none",
	}
	if err := c.Create(t.Context(), class); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	s := &stage{T: t, c: c, namespace: namespace, recorder: &recorder{}, agents: map[string]*agent.Agent{}}
	s.port = freePort(t)
	s.r = newReconciler(c, s.recorder, s.port)
	t.Cleanup(func() { s.r.Reader.Forget(s.key()) })
	return s
}

// newReconciler is an operator that has just been started.
func newReconciler(c client.Client, recorder *recorder, port int) *controllers.PostgresCluster {
	return &controllers.PostgresCluster{
		Reader: &observe.Reader{
			Cache: c, API: c, Now: time.Now,
			Agents: &observe.Agents{Changed: func(types.NamespacedName) {}, Log: logr.Discard(), Port: port},
		},
		Writer:   &apply.Writer{Client: c, API: c},
		Recorder: recorder,
		Settings: build.Settings{OperatorImage: "registry.example/pgsteward:1", PostgresImages: map[string]string{"16": "registry.example/postgres:16"}},
	}
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	set, _, err := credential.Complete(credential.Set{}, credential.Cluster{Name: "any", Namespace: "any"}, time.Now(), rand.Reader)
	require.NoError(t, err)
	return agent.Listen(t, "127.0.0.1", 0, set).Port // agents of the test have other addresses
}

func (s *stage) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: "prod-db"}
}

// create makes the cluster of that spec.
func (s *stage) create(spec string) {
	s.Helper()
	require.NoError(s, s.c.Create(s.Context(), ofSpec(s.T, s.namespace, spec)))
}

func (s *stage) cluster() *v1.PostgresCluster {
	s.Helper()
	c := &v1.PostgresCluster{}
	require.NoError(s, s.c.Get(s.Context(), s.key(), c))
	return c
}

// change changes the cluster as a user does.
func (s *stage) change(f func(*v1.PostgresCluster)) {
	s.Helper()
	c := s.cluster()
	before := c.DeepCopy()
	f(c)
	require.NoError(s, s.c.Patch(s.Context(), c, client.MergeFrom(before)))
}

// pass reconciles once.
func (s *stage) pass() (ctrl.Result, error) {
	return s.r.Reconcile(s.Context(), ctrl.Request{NamespacedName: s.key()})
}

// passes reconciles once, without an error.
func (s *stage) passes() ctrl.Result {
	s.Helper()
	result, err := s.pass()
	require.NoError(s, err)
	return result
}

// until plays and reconciles until the condition holds.
func (s *stage) until(what string, condition func() bool) {
	s.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			require.Fail(s, "waiting until "+what, "%+v", s.cluster().Status)
		}
		s.play()
		s.passes()
		select { // agents are heard in their own time
		case <-s.Context().Done():
		case <-time.After(tick):
		}
	}
}

// ready waits until all that the spec asks for serves, and all agents are heard.
func (s *stage) ready() {
	s.Helper()
	s.until("the cluster is ready", func() bool {
		c := s.cluster()
		ready := apimeta.FindStatusCondition(c.Status.Conditions, v1.ConditionReady)
		unheard := slices.ContainsFunc(c.Status.Instances, func(i v1.InstanceStatus) bool { return i.Role == "" || i.State != string(agentapi.StateRunning) })
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == c.Generation && !unheard &&
			apimeta.IsStatusConditionFalse(c.Status.Conditions, v1.ConditionProgressing)
	})
	s.passes() // what was heard in the last one is on the Pods now
}

// condition is "status reason" of a condition.
func (s *stage) condition(conditionType string) string {
	s.Helper()
	c := apimeta.FindStatusCondition(s.cluster().Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// play lets Kubernetes and the instances go on: volumes are bound, Pods made, run and removed; the first instance that has a volume
// with data, or else the first of all, is primary.
func (s *stage) play() {
	s.Helper()
	sets := &appsv1.StatefulSetList{}
	require.NoError(s, s.c.List(s.Context(), sets, client.InNamespace(s.namespace)))
	exists := map[string]bool{}
	for _, set := range sets.Items {
		if set.DeletionTimestamp.IsZero() && *set.Spec.Replicas > 0 {
			exists[set.Name] = true
			s.bind(set.Name)
			s.runPod(&set)
		}
	}
	s.collectPods(exists)
	if len(exists) > 0 {
		s.elect(exists)
	}
	for name := range exists {
		s.speak(name)
	}
}

// bind gives the instance's claim a volume.
func (s *stage) bind(instance string) {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: naming.DataVolume(instance)}, claim))
	if claim.Spec.VolumeName == "" {
		claim.Spec.VolumeName = "pv-" + instance
		require.NoError(s, s.c.Update(s.Context(), claim))
	}
}

// runPod makes the StatefulSet's Pod, and lets it run and be ready.
func (s *stage) runPod(set *appsv1.StatefulSet) {
	s.Helper()
	pod := &corev1.Pod{}
	err := s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: naming.Pod(set.Name)}, pod)
	if err == nil {
		return
	}
	require.NoError(s, client.IgnoreNotFound(err))
	pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: naming.Pod(set.Name), Labels: set.Spec.Template.Labels, UID: types.UID("uid-of-" + naming.Pod(set.Name)),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = "node-1"
	require.NoError(s, s.c.Create(s.Context(), pod))
	ordinal, _ := naming.Ordinal("prod-db", set.Name)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: fmt.Sprintf("127.0.0.%d", 10+ordinal),
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: naming.ContainerPostgres, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	require.NoError(s, s.c.Status().Update(s.Context(), pod))
}

// collectPods removes Pods whose StatefulSet is gone, or runs none.
func (s *stage) collectPods(exists map[string]bool) {
	s.Helper()
	pods := &corev1.PodList{}
	require.NoError(s, s.c.List(s.Context(), pods, client.InNamespace(s.namespace)))
	for _, pod := range pods.Items {
		if !exists[pod.Labels[naming.LabelInstance]] || !pod.DeletionTimestamp.IsZero() {
			require.NoError(s, client.IgnoreNotFound(s.c.Delete(s.Context(), &pod, client.GracePeriodSeconds(0))))
		}
	}
}

// elect makes the lowest instance primary, if nobody is who exists.
func (s *stage) elect(exists map[string]bool) {
	s.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: naming.PrimaryLease("prod-db")}, lease))
	if lease.Spec.HolderIdentity != nil && exists[*lease.Spec.HolderIdentity] {
		return
	}
	for n := 1; n <= naming.MaxOrdinal; n++ {
		if name := naming.Instance("prod-db", n); exists[name] {
			lease.Spec.HolderIdentity = &name
			break
		}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[naming.AnnotationSystemIdentifier] = system
	require.NoError(s, s.c.Update(s.Context(), lease))
}

// holder is the instance that the Lease names.
func (s *stage) holder() string {
	s.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: naming.PrimaryLease("prod-db")}, lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// speak lets the instance's agent say what it is.
func (s *stage) speak(instance string) {
	s.Helper()
	a := s.agents[instance]
	if a == nil {
		ordinal, _ := naming.Ordinal("prod-db", instance)
		a = agent.Listen(s.T, fmt.Sprintf("127.0.0.%d", 10+ordinal), s.port, s.credentials())
		s.agents[instance] = a
	}
	a.Trust(s.T, s.credentials())
	status := agentapi.Status{
		Instance: instance, State: agentapi.StateRunning, Role: agentapi.RoleStandby, Ready: true, DataKnown: true, HasData: true,
		ServerVersion: "16.14", SystemIdentifier: system, Timeline: 1, LSN: "0/5000000", ConfigGeneration: s.cluster().Generation,
	}
	if instance == s.holder() {
		status.Role, status.DataRole = agentapi.RolePrimary, agentapi.RolePrimary
	} else {
		status.Streaming, status.LagBytes = true, new(int64(0))
	}
	status.AgentDigest = given.AgentDigest
	if s.says != nil {
		s.says(&status)
	}
	a.Say(status)
}

// credentials are those in the cluster's Secrets.
func (s *stage) credentials() credential.Set {
	s.Helper()
	pair := func(name string) credential.KeyPair {
		secret := &corev1.Secret{}
		require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, secret))
		return credential.KeyPair{Cert: secret.Data[naming.KeyTLSCert], Key: secret.Data[naming.KeyTLSKey]}
	}
	return credential.Set{CA: pair(naming.CASecret("prod-db")), Server: pair(naming.ServerSecret("prod-db"))}
}

// kinds are all kinds of objects that a cluster may have.
func kinds() []observe.Kind { return append(observe.Kinds(), observe.SecretKind()) }

// children are the cluster's objects but its Pods, as Kind/name, with what value gives of each.
func (s *stage) children(value func(client.Object) string) map[string]string {
	s.Helper()
	found := map[string]string{}
	for _, kind := range kinds() {
		if kind.Name == "Pod" {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		gvk, err := s.c.GroupVersionKindFor(kind.Object)
		require.NoError(s, err)
		list.SetGroupVersionKind(gvk)
		require.NoError(s, s.c.List(s.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{naming.LabelManagedBy: naming.ManagedBy}))
		for _, item := range list.Items {
			found[kind.Name+"/"+item.Name] = value(&item)
		}
	}
	return found
}

func resourceVersion(o client.Object) string { return o.GetResourceVersion() }

func uid(o client.Object) string { return string(o.GetUID()) }

// recorder keeps events as "Type Reason message".
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (r *recorder) Eventf(_, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, eventType+" "+reason+" "+fmt.Sprintf(note, args...))
}

// events are those since the last call.
func (s *stage) events() []string {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	said := s.recorder.said
	s.recorder.said = nil
	return said
}

// told asserts that an event begins like that.
func (s *stage) told(beginning string) {
	s.Helper()
	all := s.events()
	for _, e := range all {
		if strings.HasPrefix(e, beginning) {
			return
		}
	}
	assert.Fail(s, "no such event", "%q among %q", beginning, all)
}
