package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// writeTimeout bounds one request.
const writeTimeout = 15 * time.Second

// Writer writes.
type Writer struct {
	Client client.Client
	// API asks the API server itself, for objects that the cache does not hold because they are not ours.
	API client.Reader

	// written has the resource version of each PostgresCluster that was last written here, by key.
	written sync.Map
}

// Live are the cluster's objects as they are.
type Live interface {
	// Get returns the object of that kind and name, nil if there is none.
	Get(kind, name string) client.Object
}

// Objects applies those of the desired objects that differ from the live ones, in order. An object that is refused does not keep
// the others from being written; all errors are returned, joined. But nothing is written after a Secret that could not be: what
// is in it was made for this pass, and what follows would tell of a password or an authority that nobody will ever see again.
func (w *Writer) Objects(ctx context.Context, owner *v1.PostgresCluster, live Live, desired []runtime.ApplyConfiguration) error {
	var errs []error
	for _, object := range desired {
		err := w.object(ctx, owner, live, object)
		errs = append(errs, err)
		if _, secret := object.(*coreac.SecretApplyConfiguration); secret && err != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (w *Writer) object(ctx context.Context, owner *v1.PostgresCluster, live Live, desired runtime.ApplyConfiguration) error {
	want, err := unstructuredOf(desired)
	if err != nil {
		return err
	}
	name := want.GetKind() + " " + want.GetNamespace() + "/" + want.GetName()
	hash, err := hashOf(want)
	if err != nil {
		return fmt.Errorf("hashing %s: %w", name, err)
	}
	have := live.Get(want.GetKind(), want.GetName())
	if have != nil {
		same, err := unchanged(have, want, hash)
		if err != nil {
			return fmt.Errorf("comparing %s: %w", name, err)
		}
		if same {
			return nil
		}
	}
	if err := w.mayWrite(ctx, owner, have, want); err != nil {
		return err
	}
	setAnnotation(want, naming.AnnotationAppliedHash, hash)
	if have != nil { // what was decided from one that is gone by now is not to be written to a new one of its name: a conflict
		want.SetUID(have.GetUID())
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(naming.FieldManager), client.ForceOwnership)
	return classify(err, name)
}

// mayWrite refuses to take over an object of somebody else.
func (w *Writer) mayWrite(ctx context.Context, owner *v1.PostgresCluster, have client.Object, want *unstructured.Unstructured) error {
	if have == nil { // not in the cache, which holds only what has our labels
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(want.GroupVersionKind())
		err := w.API.Get(ctx, client.ObjectKeyFromObject(want), meta)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return classify(err, want.GetKind()+" "+want.GetName())
		}
		have = meta
	}
	if controller := metav1.GetControllerOf(have); controller != nil {
		if controller.UID == owner.UID {
			return nil
		}
	} else if have.GetLabels()[naming.LabelCluster] == owner.Name && have.GetLabels()[naming.LabelManagedBy] == naming.ManagedBy {
		return nil
	}
	return &Refused{
		Reason: v1.ReasonNameTaken,
		Message: fmt.Sprintf("%s %s/%s exists and does not belong to this PostgresCluster: remove or rename it, or give the cluster another name",
			want.GetKind(), want.GetNamespace(), want.GetName()),
	}
}

// Pod applies to a Pod that exists; a Pod that is gone or was replaced meanwhile is none of our business.
func (w *Writer) Pod(ctx context.Context, pod runtime.ApplyConfiguration) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.Client.Apply(ctx, pod, client.FieldOwner(naming.PodFieldManager), client.ForceOwnership)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return classify(err, "a Pod's labels and annotations")
}

// Delete deletes just this object; one that is gone or was replaced meanwhile is left alone.
func (w *Writer) Delete(ctx context.Context, object client.Object) error {
	return w.delete(ctx, object, deletion{})
}

// DeleteUnchanged deletes just this object, and only if nothing about it has changed since it was observed.
func (w *Writer) DeleteUnchanged(ctx context.Context, object client.Object) error {
	return w.delete(ctx, object, deletion{unchanged: true})
}

// deletion says how an object is deleted: only if nothing about it has changed; without waiting for the kubelet.
type deletion struct{ unchanged, atOnce bool }

func (w *Writer) delete(ctx context.Context, object client.Object, how deletion) error {
	if object == nil || !object.GetDeletionTimestamp().IsZero() && !how.atOnce {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	uid, version := object.GetUID(), object.GetResourceVersion()
	preconditions := client.Preconditions{UID: &uid}
	if how.unchanged {
		preconditions.ResourceVersion = &version
	}
	options := []client.DeleteOption{preconditions, client.PropagationPolicy(metav1.DeletePropagationBackground)}
	if how.atOnce {
		options = append(options, client.GracePeriodSeconds(0))
	}
	err := w.Client.Delete(ctx, object, options...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return classify(err, fmt.Sprintf("deleting %T %s/%s", object, object.GetNamespace(), object.GetName()))
}

// DeletePod deletes the Pod of that UID.
func (w *Writer) DeletePod(ctx context.Context, namespace, name, uid string) error {
	return w.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}})
}

// ForgetPod deletes the Pod of that UID without waiting for the kubelet to say that it has ended.
func (w *Writer) ForgetPod(ctx context.Context, namespace, name, uid string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	return w.delete(ctx, pod, deletion{atOnce: true})
}

// DropAnnotation removes the annotation of c, if it still has the value that c has.
func (w *Writer) DropAnnotation(ctx context.Context, c *v1.PostgresCluster, key string) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": path, "value": c.Annotations[key]},
		{"op": "remove", "path": path},
	})
	if err != nil {
		return fmt.Errorf("removing the annotation %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = w.Client.Patch(ctx, c, client.RawPatch(types.JSONPatchType, patch))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsBadRequest(err): // there is another one now, or none
		return nil
	case err != nil:
		return fmt.Errorf("removing the annotation %s of PostgresCluster %s/%s: %w", key, c.Namespace, c.Name, err)
	}
	w.written.Store(client.ObjectKeyFromObject(c), c.ResourceVersion)
	return nil
}

// Outdated says whether c is older than what was last written of it here: the cache has not seen that yet. A pass over it would
// say again what was said, and undo what was done.
func (w *Writer) Outdated(c *v1.PostgresCluster) bool {
	last, ok := w.written.Load(client.ObjectKeyFromObject(c))
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(c.ResourceVersion, last.(string)) //nolint:forcetypeassert,errcheck // only strings are stored
	return err == nil && order < 0
}

// Forget ends what is kept for a cluster that is gone.
func (w *Writer) Forget(key types.NamespacedName) { w.written.Delete(key) }

// Finalizer sets or removes our finalizer.
func (w *Writer) Finalizer(ctx context.Context, c *v1.PostgresCluster, want bool) error {
	before := c.DeepCopy()
	changed := false
	if want {
		changed = controllerutil.AddFinalizer(c, naming.Finalizer)
	} else {
		changed = controllerutil.RemoveFinalizer(c, naming.Finalizer)
	}
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.Client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("changing the finalizer of PostgresCluster %s/%s: %w", c.Namespace, c.Name, err))
	}
	w.written.Store(client.ObjectKeyFromObject(c), c.ResourceVersion)
	return nil
}

// Status writes the status, if it differs from the one that c has.
func (w *Writer) Status(ctx context.Context, c *v1.PostgresCluster, status v1.PostgresClusterStatus) error {
	before := c.DeepCopy()
	c.Status = status
	patch := client.MergeFrom(before)
	data, err := patch.Data(c)
	if err != nil {
		return fmt.Errorf("status of PostgresCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	if string(data) == "{}" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := w.Client.Status().Patch(ctx, c, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of PostgresCluster %s/%s: %w", c.Namespace, c.Name, err))
	}
	w.written.Store(client.ObjectKeyFromObject(c), c.ResourceVersion)
	return nil
}

// unchanged says whether the live object has the desired state already.
func unchanged(have client.Object, want *unstructured.Unstructured, hash string) (bool, error) {
	if have.GetAnnotations()[naming.AnnotationAppliedHash] != hash {
		return false, nil
	}
	live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if err != nil {
		return false, err
	}
	desired := want.DeepCopy().Object
	delete(desired, "apiVersion") // typed objects of a cache have no type of their own
	delete(desired, "kind")
	return covers(live, desired), nil
}

// unstructuredOf is an apply configuration with the number types that the API machinery uses.
func unstructuredOf(desired runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(desired)
	if err != nil {
		return nil, fmt.Errorf("writing %T as JSON: %w", desired, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("reading %T: %w", desired, err)
	}
	return u, nil
}

func hashOf(u *unstructured.Unstructured) (string, error) {
	text, err := json.Marshal(u.Object) // with sorted keys
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16], nil
}

func setAnnotation(u *unstructured.Unstructured, key, value string) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	u.SetAnnotations(annotations)
}
