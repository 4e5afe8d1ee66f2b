// Package memory is an API server in memory for tests: controller-runtime's fake client, which remembers what was written and can
// be made to fail. What it cannot do (validation, defaults, field ownership) is tested with a real API server: see package
// apiserver.
package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
)

// Cluster is a client of a Kubernetes in memory.
type Cluster struct {
	client.WithWatch

	mu     sync.Mutex
	writes []string
	// fail is asked before each write, as in "apply Secret prod-db-app".
	fail func(write string) error
	// failRead is asked before each read, as in "list Pod".
	failRead func(read string) error
}

// New is a Kubernetes that has these objects.
func New(t testing.TB, objects ...client.Object) *Cluster {
	t.Helper()
	scheme := Scheme(t)
	c := &Cluster{}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithStatusSubresource(&v1.PostgresCluster{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithIndex(&corev1.Event{}, "reason", func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		Build(), c.funcs())
	return c
}

// Scheme knows Kubernetes' kinds and ours.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1.AddToScheme(scheme))
	return scheme
}

// FailWrites lets f decide which writes fail; nil: none.
func (c *Cluster) FailWrites(f func(write string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = f
}

// FailReads lets f decide which reads fail; nil: none.
func (c *Cluster) FailReads(f func(read string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failRead = f
}

// Writes are what was tried to be written since the last call.
func (c *Cluster) Writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	writes := c.writes
	c.writes = nil
	return writes
}

func (c *Cluster) write(verb string, gvk schema.GroupVersionKind, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := fmt.Sprintf("%s %s %s", verb, gvk.Kind, name)
	c.writes = append(c.writes, w)
	if c.fail != nil {
		return c.fail(w)
	}
	return nil
}

func (c *Cluster) read(verb string, object runtime.Object, name string) error {
	c.mu.Lock()
	f := c.failRead
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	gvk, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return err
	}
	return f(fmt.Sprintf("%s %s %s", verb, gvk.Kind, name))
}

func (c *Cluster) funcs() interceptor.Funcs {
	kind := func(o runtime.Object) schema.GroupVersionKind {
		gvk, err := apiutil.GVKForObject(o, c.Scheme())
		if err != nil {
			panic(err) // a test that writes what its scheme does not know
		}
		return gvk
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.read("get", o, key.Name); err != nil {
				return err
			}
			return w.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.read("list", list, ""); err != nil {
				return err
			}
			return w.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.write("create", kind(o), o.GetName()); err != nil {
				return err
			}
			return w.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.write("update", kind(o), o.GetName()); err != nil {
				return err
			}
			return w.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.write("patch", kind(o), o.GetName()); err != nil {
				return err
			}
			return w.Patch(ctx, o, patch, opts...)
		},
		Apply: func(ctx context.Context, w client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			gvk, name := identity(o)
			if err := c.write("apply", gvk, name); err != nil {
				return err
			}
			return w.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.write("delete", kind(o), o.GetName()); err != nil {
				return err
			}
			if err := checkUID(ctx, w, o, opts); err != nil {
				return err
			}
			return w.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, w client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := c.write("patch "+sub+" of", kind(o), o.GetName()); err != nil {
				return err
			}
			return w.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}
}

// checkUID refuses what the API server would refuse, and the fake client does not.
func checkUID(ctx context.Context, w client.WithWatch, o client.Object, opts []client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		return nil
	}
	live, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", o)
	}
	if err := w.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return err
	}
	if live.GetUID() != *options.Preconditions.UID {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("the UID is %s", live.GetUID()))
	}
	return nil
}

// named is what the apply configurations that we use have in common.
type named interface {
	GetName() *string
	GetKind() *string
}

// object is the same of an unstructured apply configuration.
type object interface {
	GetName() string
	GroupVersionKind() schema.GroupVersionKind
}

func identity(o runtime.ApplyConfiguration) (schema.GroupVersionKind, string) {
	switch a := o.(type) {
	case object:
		return a.GroupVersionKind(), a.GetName()
	case named:
		return schema.GroupVersionKind{Kind: *a.GetKind()}, *a.GetName()
	default:
		panic(fmt.Sprintf("%T has no name", o))
	}
}

// Sorted is a copy of the list in order, for comparisons.
func Sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
