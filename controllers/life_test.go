package controllers_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/apiserver"
)

// onAPIServer is a stage on a real API server.
func onAPIServer(t *testing.T) *stage {
	t.Helper()
	c := apiserver.Client(t)
	return newStage(t, c, apiserver.Namespace(t, c))
}

func (s *stage) get(object client.Object, name string) {
	s.Helper()
	require.NoError(s, s.c.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, object))
}

// gone says whether the cluster is gone.
func (s *stage) gone() bool {
	s.Helper()
	err := s.c.Get(s.Context(), s.key(), &v1.PostgresCluster{})
	require.NoError(s, client.IgnoreNotFound(err))
	return apierrors.IsNotFound(err)
}

// delete deletes the cluster, and waits until it is gone.
func (s *stage) delete() {
	s.Helper()
	require.NoError(s, s.c.Delete(s.Context(), s.cluster()))
	s.until("the cluster is gone", s.gone)
}

// TestSecondPassWritesNothing: on a real API server, which adds defaults and normalises what it is sent, every resource version stays.
func TestSecondPassWritesNothing(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"minimal": `{replicas: 3, version: "16"}`,
		"full": `{
			replicas: 2, version: "16", image: "registry.example:5000/pg:16", imagePullSecrets: [{name: a}, {name: b}],
			storage: {size: 1536Mi, storageClassName: standard}, resources: {limits: {memory: 1024Mi, cpu: "1.5"}, requests: {cpu: "0.25"}},
			postgresql: {parameters: {work_mem: 16MB, auto_explain.log_min_duration: 1s}, pgHBA: ["host all all 10.0.0.0/8 md5"]},
			bootstrap: {initdb: {database: shop, owner: clerk}}, deletion: {volumes: Delete}
		}`,
		"alone": `{replicas: 1, version: "16"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onAPIServer(t)
			s.create(strings.ReplaceAll(spec, "\t", " "))
			s.ready()
			before, status := s.children(resourceVersion), s.cluster()
			for range 3 {
				s.passes()
			}
			assert.Equal(t, before, s.children(resourceVersion))
			assert.Equal(t, status, s.cluster())
		})
	}
}

// TestHealing: whatever is deleted or edited by hand comes back as it was, and nothing else changes.
func TestHealing(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 2, version: "16"}`)
	s.ready()
	names := slices.Sorted(maps.Keys(s.children(uid)))
	s.heal(names)
	s.mend()
}

// heal deletes each object in turn, but volumes.
func (s *stage) heal(names []string) {
	s.Helper()
	for _, kind := range kinds() {
		for _, name := range names {
			what, name, _ := strings.Cut(name, "/")
			if what != kind.Name || what == "PersistentVolumeClaim" {
				continue
			}
			before := s.children(uid)
			object, ok := kind.Object.DeepCopyObject().(client.Object)
			require.True(s, ok)
			s.get(object, name)
			require.NoError(s, s.c.Delete(s.Context(), object))
			s.passes()
			after := s.children(uid)
			assert.NotEqual(s, before[what+"/"+name], after[what+"/"+name], "%s %s came back", what, name)
			delete(before, what+"/"+name)
			delete(after, what+"/"+name)
			assert.Equal(s, before, after, "after %s %s was deleted", what, name)
		}
	}
	s.ready()
}

// mend edits some objects by hand.
func (s *stage) mend() {
	s.Helper()
	edit := func(object client.Object, name string, change func()) {
		s.Helper()
		s.get(object, name)
		change()
		require.NoError(s, s.c.Update(s.Context(), object))
		s.passes()
		s.get(object, name)
	}
	set := &appsv1.StatefulSet{}
	edit(set, "prod-db-1", func() { set.Spec.Replicas = new(int32) })
	assert.EqualValues(s, 1, *set.Spec.Replicas)
	edit(set, "prod-db-1", func() { set.Spec.Template.Spec.Containers[0].Image = "evil" })
	assert.Equal(s, "registry.example/postgres:16", set.Spec.Template.Spec.Containers[0].Image)
	edit(set, "prod-db-1", func() {
		set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "x"})
	})
	assert.Len(s, set.Spec.Template.Spec.Containers, 2, "what others add is left alone")

	service := &corev1.Service{}
	edit(service, "prod-db-rw", func() { service.Spec.Selector[naming.LabelRole] = "standby" })
	assert.Equal(s, "primary", service.Spec.Selector[naming.LabelRole])
	edit(service, "prod-db-rw", func() { service.Spec.Type = corev1.ServiceTypeNodePort })
	assert.Equal(s, corev1.ServiceTypeClusterIP, service.Spec.Type)

	role := &rbacv1.Role{}
	edit(role, "prod-db-instance", func() {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}})
	})
	assert.Len(s, role.Rules, 3, "a right that somebody added is taken away")

	config := &corev1.ConfigMap{}
	edit(config, "prod-db-config", func() { config.Data[naming.FileConfig] = "{}" })
	assert.Contains(s, config.Data[naming.FileConfig], "prod-db-1")

	secret := &corev1.Secret{}
	edit(secret, "prod-db-app", func() { secret.Data[naming.KeyPassword] = []byte("chosen: by/hand") })
	assert.Equal(s, "chosen: by/hand", string(secret.Data[naming.KeyPassword]), "a password is the user's to change")
	assert.Contains(s, string(secret.Data[naming.KeyURI]), "app:chosen%3A%20by%2Fhand@", "the rest of the Secret follows")
	edit(secret, "prod-db-app", func() { delete(secret.Data, naming.KeyPassword) })
	assert.Len(s, secret.Data[naming.KeyPassword], 32, "a new one is made")
	edit(secret, "prod-db-app", func() { secret.Labels = nil })
	assert.NotEmpty(s, secret.Data)
	s.ready()
}

// TestScaling: instances come and go, the primary and the volumes stay.
func TestScaling(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 3, version: "16"}`)
	s.ready()
	assert.Equal(t, "prod-db-1", s.cluster().Status.CurrentPrimary)

	scale := func(n int32) {
		t.Helper()
		s.change(func(c *v1.PostgresCluster) { c.Spec.Replicas = &n })
		s.ready()
		assert.Equal(t, n, s.cluster().Status.Replicas)
		assert.Equal(t, n, s.cluster().Status.ReadyReplicas)
		assert.Equal(t, "prod-db-1", s.cluster().Status.CurrentPrimary)
	}
	scale(4)
	fourth := s.children(uid)["PersistentVolumeClaim/prod-db-4-data"]
	s.events()
	scale(1)
	s.told("Normal VolumeRetained Kept, with their data")
	children := s.children(uid)
	assert.NotContains(t, children, "StatefulSet/prod-db-2")
	assert.NotContains(t, children, "PodDisruptionBudget/prod-db", "it would block a drain for ever")
	assert.Equal(t, fourth, children["PersistentVolumeClaim/prod-db-4-data"])
	scale(3)
	assert.Contains(t, s.children(uid), "StatefulSet/prod-db-3")
	assert.Contains(t, s.children(uid), "PodDisruptionBudget/prod-db")
}

// TestDeletionKeepsVolumes, and a cluster created anew takes them over with their data.
func TestDeletionKeepsVolumes(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 2, version: "16"}`)
	s.ready()
	s.passes()
	volumes := map[string]string{}
	for name, id := range s.children(uid) {
		if strings.HasPrefix(name, "PersistentVolumeClaim/") {
			volumes[name] = id
		}
	}
	assert.Len(t, volumes, 2)

	s.events()
	s.delete()
	assert.Equal(t, volumes, s.children(uid), "nothing but the volumes is left")
	s.told("Normal VolumeRetained Kept, with their data, as spec.deletion.volumes says: PersistentVolumeClaim prod-db-1-data, prod-db-2-data")
	assert.True(t, s.noPods())

	s.create(`{replicas: 2, version: "16"}`)
	s.passes()
	config := &corev1.ConfigMap{}
	s.get(config, "prod-db-config")
	assert.NotContains(t, config.Data[naming.FileConfig], "bootstrap", "nobody may make new data")
	assert.Contains(t, config.Data[naming.FileConfig], system)
	assert.Subset(t, s.children(uid), volumes)
	s.ready()
	assert.Equal(t, system, s.cluster().Status.SystemIdentifier)
}

func (s *stage) noPods() bool {
	s.Helper()
	pods := &corev1.PodList{}
	require.NoError(s, s.c.List(s.Context(), pods, client.InNamespace(s.namespace)))
	return len(pods.Items) == 0
}

// TestFewerInstancesThanVolumes: a cluster created anew with one instance begins with the volume that was the primary's.
func TestFewerInstancesThanVolumes(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 3, version: "16"}`)
	s.ready()
	lease, second := &coordinationv1.Lease{}, "prod-db-2"
	s.get(lease, "prod-db-primary")
	lease.Spec.HolderIdentity = &second
	require.NoError(t, s.c.Update(t.Context(), lease))
	s.until("it has failed over", func() bool { return s.cluster().Status.CurrentPrimary == second })
	s.ready()
	s.delete()
	s.create(`{replicas: 1, version: "16"}`)
	s.ready()
	assert.Equal(t, second, s.cluster().Status.CurrentPrimary)
	assert.Equal(t, int32(1), s.cluster().Status.Replicas)
}

// TestDeletionOfVolumes: they go if the policy says so.
func TestDeletionOfVolumes(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 2, version: "16", deletion: {volumes: Delete}}`)
	s.ready()
	require.NoError(t, s.c.Delete(t.Context(), s.cluster()))
	s.until("the cluster is gone", func() bool {
		s.releaseVolumes()
		return s.gone()
	})
	assert.Empty(t, s.children(uid))
}

// releaseVolumes plays the controller that keeps claims while they are in use.
func (s *stage) releaseVolumes() {
	s.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	require.NoError(s, s.c.List(s.Context(), claims, client.InNamespace(s.namespace)))
	for _, claim := range claims.Items {
		if !claim.DeletionTimestamp.IsZero() && len(claim.Finalizers) > 0 {
			claim.Finalizers = nil
			require.NoError(s, client.IgnoreNotFound(s.c.Update(s.Context(), &claim)))
		}
	}
}

// TestOtherMajorsVolume: a kept volume of another major is refused with its name, and taken when the version fits.
func TestOtherMajorsVolume(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "prod-db-1-data", Labels: naming.InstanceLabels("prod-db", "prod-db-1"),
			Annotations: map[string]string{naming.AnnotationSystemIdentifier: system, naming.AnnotationVersion: "15"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	require.NoError(t, s.c.Create(t.Context(), claim))
	s.create(`{replicas: 1, version: "16"}`)
	s.passes()
	s.passes()
	assert.Equal(t, "True DataVersionMismatch", s.condition(v1.ConditionDegraded))
	assert.NotContains(t, s.children(uid), "StatefulSet/prod-db-1")
	s.told("Warning DataVersionMismatch PersistentVolumeClaim prod-db-1-data has data of PostgreSQL 15, while the cluster's is 16")
}

// TestSuspend: the Pods go, everything else stays, and the same instances come back.
func TestSuspend(t *testing.T) {
	t.Parallel()
	s := onAPIServer(t)
	s.create(`{replicas: 2, version: "16"}`)
	s.ready()
	before := s.children(uid)
	s.change(func(c *v1.PostgresCluster) { c.Spec.Suspend = true })
	s.until("it is suspended", func() bool {
		return s.noPods() && s.condition(v1.ConditionProgressing) == "False Suspended"
	})
	assert.Equal(t, v1.PhaseSuspended, s.cluster().Status.Phase)
	assert.Equal(t, before, s.children(uid))
	s.change(func(c *v1.PostgresCluster) { c.Spec.Suspend = false })
	s.ready()
	assert.Equal(t, before, s.children(uid))
}
