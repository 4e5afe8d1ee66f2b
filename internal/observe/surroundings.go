package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// annotationDefaultClass marks the default StorageClass
// (https://kubernetes.io/docs/concepts/storage/storage-classes/#default-storageclass).
const annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"

// StorageClasses are all that there are. If several are marked as the default one, the newest is, as for Kubernetes itself.
func (r *Reader) StorageClasses(ctx context.Context) ([]facts.StorageClass, error) {
	list := &storagev1.StorageClassList{}
	if err := r.Cache.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing StorageClasses: %w", err)
	}
	newest := -1
	for i, class := range list.Items {
		if class.Annotations[annotationDefaultClass] == "true" &&
			(newest < 0 || list.Items[newest].CreationTimestamp.Before(&class.CreationTimestamp)) {
			newest = i
		}
	}
	var all []facts.StorageClass
	for i, class := range list.Items {
		all = append(all, facts.StorageClass{Name: class.Name, Default: i == newest, Expands: ptr.Deref(class.AllowVolumeExpansion, false)})
	}
	return all, nil
}

// className is the class that new volumes get: the one that is wanted, else the default one; empty if there is none.
func className(wanted *string, classes []facts.StorageClass) string {
	if wanted != nil {
		return *wanted
	}
	if i := slices.IndexFunc(classes, func(c facts.StorageClass) bool { return c.Default }); i >= 0 {
		return classes[i].Name
	}
	return ""
}

// Volumes are the data volumes that there are for a cluster of that name, which need not exist yet.
func (r *Reader) Volumes(ctx context.Context, c *v1.PostgresCluster) ([]facts.Volume, error) {
	objects := Objects{}
	for _, kind := range Kinds() {
		if kind.Name != "PersistentVolumeClaim" {
			continue
		}
		if err := objects.read(ctx, r.Cache, kind, c); err != nil {
			return nil, err
		}
	}
	return volumes(objects, c.Name), nil
}

// Foreign are those of the wanted objects that exist and belong to somebody else. It asks the API server, since the cache holds
// only what is ours, for all at once; what is found is returned even if something could not be asked.
func (r *Reader) Foreign(ctx context.Context, namespace string, wanted []facts.Object) ([]facts.Object, error) {
	found, errs := make([]*facts.Object, len(wanted)), make([]error, len(wanted))
	var asked sync.WaitGroup
	for i, want := range wanted {
		asked.Go(func() { found[i], errs[i] = r.foreign(ctx, namespace, want) })
	}
	asked.Wait()
	var all []facts.Object
	for _, object := range found {
		if object != nil {
			all = append(all, *object)
		}
	}
	return all, errors.Join(errs...)
}

func (r *Reader) foreign(ctx context.Context, namespace string, want facts.Object) (*facts.Object, error) {
	kinds := append(Kinds(), SecretKind())
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == want.Kind })
	if i < 0 {
		return nil, fmt.Errorf("observe: no kind %s", want.Kind)
	}
	gvk, err := apiutil.GVKForObject(kinds[i].Object, clientgoscheme.Scheme)
	if err != nil {
		return nil, err
	}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(gvk)
	err = r.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: want.Name}, meta)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // Secrets cannot be seen where no cluster is yet
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s %s/%s: %w", want.Kind, namespace, want.Name, err)
	}
	have := facts.Object{Kind: want.Kind, Name: want.Name}
	if meta.Labels[naming.LabelManagedBy] == naming.ManagedBy {
		have.Cluster = meta.Labels[naming.LabelCluster]
	}
	if have.Cluster == want.Cluster {
		return nil, nil
	}
	return &have, nil
}
