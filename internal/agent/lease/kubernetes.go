package lease

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Kubernetes is the API of one Lease in a Kubernetes cluster.
type Kubernetes struct {
	leases client.LeaseInterface
	name   string
}

// NewKubernetes is the API of the Lease of that name.
//
// It speaks HTTP/1.1, so that a request which timed out gives up its connection: with HTTP/2, further attempts would go over
// the same dead connection. It has no client-side rate limit, which would delay renewals.
func NewKubernetes(config *rest.Config, namespace, name string) (*Kubernetes, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	config.QPS = -1
	leases, err := client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for leases: %w", err)
	}
	return &Kubernetes{leases: leases.Leases(namespace), name: name}, nil
}

// Get reads the Lease.
func (k *Kubernetes) Get(ctx context.Context) (*coordinationv1.Lease, error) {
	return k.leases.Get(ctx, k.name, metav1.GetOptions{})
}

// Update writes the Lease.
func (k *Kubernetes) Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return k.leases.Update(ctx, lease, metav1.UpdateOptions{})
}

// watchSeconds is how long the API server keeps one watch.
const watchSeconds = 300

// Watch calls receive for every change of the Lease.
func (k *Kubernetes) Watch(ctx context.Context, resourceVersion string, receive func(*coordinationv1.Lease)) error {
	watching, err := k.leases.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", k.name).String(),
		ResourceVersion: resourceVersion,
		TimeoutSeconds:  ptr.To[int64](watchSeconds),
	})
	if err != nil {
		return fmt.Errorf("watching the lease: %w", err)
	}
	defer watching.Stop()
	for event := range watching.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		if event.Type == watch.Deleted {
			return errors.New("the lease was deleted")
		}
		if lease, ok := event.Object.(*coordinationv1.Lease); ok {
			receive(lease)
		}
	}
	return nil
}
