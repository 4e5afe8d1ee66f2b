package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// Kinds are the kinds of objects that a cluster is made of, each as an example and as a list.
func Kinds() []Kind {
	return []Kind{
		{"StatefulSet", &appsv1.StatefulSet{}, func() client.ObjectList { return &appsv1.StatefulSetList{} }},
		{"Pod", &corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }},
		{"PersistentVolumeClaim", &corev1.PersistentVolumeClaim{}, func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }},
		{"Service", &corev1.Service{}, func() client.ObjectList { return &corev1.ServiceList{} }},
		{"Secret", &corev1.Secret{}, func() client.ObjectList { return &corev1.SecretList{} }},
		{"ConfigMap", &corev1.ConfigMap{}, func() client.ObjectList { return &corev1.ConfigMapList{} }},
		{"ServiceAccount", &corev1.ServiceAccount{}, func() client.ObjectList { return &corev1.ServiceAccountList{} }},
		{"Role", &rbacv1.Role{}, func() client.ObjectList { return &rbacv1.RoleList{} }},
		{"RoleBinding", &rbacv1.RoleBinding{}, func() client.ObjectList { return &rbacv1.RoleBindingList{} }},
		{"PodDisruptionBudget", &policyv1.PodDisruptionBudget{}, func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }},
		{"Lease", &coordinationv1.Lease{}, func() client.ObjectList { return &coordinationv1.LeaseList{} }},
	}
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

// readObjects reads all objects with the cluster's label.
func (r *Reader) readObjects(ctx context.Context, c *v1.PostgresCluster) (Objects, error) {
	return r.readKinds(ctx, client.ObjectKeyFromObject(c))
}

// readKinds reads the objects with the cluster's label of those kinds; of all kinds if none is named.
func (r *Reader) readKinds(ctx context.Context, cluster types.NamespacedName, only ...string) (Objects, error) {
	objects := Objects{}
	for _, kind := range Kinds() {
		if len(only) > 0 && !slices.Contains(only, kind.Name) {
			continue
		}
		list := kind.list()
		if err := r.Cache.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingLabels{naming.LabelCluster: cluster.Name}); err != nil {
			return nil, fmt.Errorf("listing the %ss of %s: %w", kind.Name, cluster, err)
		}
		found, err := items(list)
		if err != nil {
			return nil, fmt.Errorf("listing the %ss of %s: %w", kind.Name, cluster, err)
		}
		objects[kind.Name] = found
	}
	return objects, nil
}
