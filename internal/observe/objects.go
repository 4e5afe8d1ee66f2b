package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Kinds are the kinds of objects that a cluster is made of, each as an example and as a list, but for Secrets.
func Kinds() []Kind {
	return []Kind{
		{"StatefulSet", &appsv1.StatefulSet{}, func() client.ObjectList { return &appsv1.StatefulSetList{} }},
		{"Pod", &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }},
		{"PersistentVolumeClaim", &corev1.PersistentVolumeClaim{}, func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }},
		{"Service", &corev1.Service{}, func() client.ObjectList { return &corev1.ServiceList{} }},
		{"ConfigMap", &corev1.ConfigMap{}, func() client.ObjectList { return &corev1.ConfigMapList{} }},
		{"ServiceAccount", &corev1.ServiceAccount{}, func() client.ObjectList { return &corev1.ServiceAccountList{} }},
		{"Role", &rbacv1.Role{}, func() client.ObjectList { return &rbacv1.RoleList{} }},
		{"RoleBinding", &rbacv1.RoleBinding{}, func() client.ObjectList { return &rbacv1.RoleBindingList{} }},
		{"PodDisruptionBudget", &policyv1.PodDisruptionBudget{}, func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }},
		{"CronJob", &batchv1.CronJob{}, func() client.ObjectList { return &batchv1.CronJobList{} }},
		{"Lease", &coordinationv1.Lease{}, func() client.ObjectList { return &coordinationv1.LeaseList{} }},
	}
}

// SecretKind is the kind that needs a right of its own: see Secrets.
func SecretKind() Kind {
	return Kind{"Secret", &corev1.Secret{}, func() client.ObjectList { return &corev1.SecretList{} }}
}

// Kind is one kind of object.
type Kind struct {
	Name   string
	Object client.Object
	list   func() client.ObjectList
}

// Objects are a cluster's objects as they are, by kind.
type Objects map[string][]client.Object

// Get returns the object of that kind and name; nil if there is none.
func (o Objects) Get(kind, name string) client.Object {
	i := slices.IndexFunc(o[kind], func(object client.Object) bool { return object.GetName() == name })
	if i < 0 {
		return nil
	}
	return o[kind][i]
}

// get returns the object of that kind and name with its type; false if there is none.
func get[T client.Object](o Objects, kind, name string) (T, bool) {
	object, ok := o.Get(kind, name).(T)
	return object, ok
}

// readObjects reads all objects with the cluster's label, and says for how long its Secrets could not be read.
func (r *Reader) readObjects(ctx context.Context, c *v1.PostgresCluster) (Objects, time.Duration, error) {
	objects := Objects{}
	for _, kind := range Kinds() {
		if err := objects.read(ctx, r.Cache, kind, c); err != nil {
			return nil, 0, err
		}
	}
	secrets, unknownFor, err := r.secretsOf(c, objects)
	if err != nil || secrets == nil {
		return objects, unknownFor, err
	}
	if err := objects.read(ctx, secrets, SecretKind(), c); err != nil {
		return nil, 0, err
	}
	return objects, 0, r.readUncached(ctx, c, objects)
}

// readUncached asks the API server for those of the cluster's Secrets that the cache lacks: it may lag behind what was written
// just now, and does not hold what lost our label. A password that exists must not be taken for a missing one, and be replaced.
func (r *Reader) readUncached(ctx context.Context, c *v1.PostgresCluster, objects Objects) error {
	if !c.DeletionTimestamp.IsZero() {
		return nil
	}
	for _, name := range naming.Secrets(c.Name) {
		if objects.Get(SecretKind().Name, name) != nil {
			continue
		}
		secret := &corev1.Secret{}
		err := r.API.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, secret)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("reading Secret %s/%s: %w", c.Namespace, name, err)
		case metav1.IsControlledBy(secret, c):
			objects[SecretKind().Name] = append(objects[SecretKind().Name], secret)
		}
	}
	return nil
}

// secretsOf is what reads the cluster's Secrets, or for how long there was nothing that could.
func (r *Reader) secretsOf(c *v1.PostgresCluster, objects Objects) (client.Reader, time.Duration, error) {
	if r.Secrets == nil {
		return r.Cache, 0, nil
	}
	if objects.Get("RoleBinding", naming.OperatorBinding(c.Name)) == nil && !r.Secrets.Watches(c.Namespace) {
		return nil, time.Nanosecond, nil // we have no right to them yet
	}
	secrets, unknownFor, err := r.Secrets.In(client.ObjectKeyFromObject(c))
	if err != nil {
		return nil, 0, fmt.Errorf("watching the Secrets of namespace %s: %w", c.Namespace, err)
	}
	return secrets, unknownFor, nil
}

// read reads the cluster's objects of one kind.
func (o Objects) read(ctx context.Context, from client.Reader, kind Kind, c *v1.PostgresCluster) error {
	list := kind.list()
	if err := from.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabels{naming.LabelCluster: c.Name}); err != nil {
		return fmt.Errorf("listing the %ss of %s/%s: %w", kind.Name, c.Namespace, c.Name, err)
	}
	found, err := items(list)
	if err != nil {
		return fmt.Errorf("listing the %ss of %s/%s: %w", kind.Name, c.Namespace, c.Name, err)
	}
	o[kind.Name] = found
	return nil
}
