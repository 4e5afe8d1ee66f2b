package main

import (
	"context"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// provisionedBy is the annotation that names the maker of a volume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// resizer does what a CSI driver's resizer does: a claim that asks for more than it has gets it. Whether it may ask is
// the API server's to say (StorageClass.allowVolumeExpansion).
type resizer struct {
	client  kubernetes.Interface
	name    string
	disks   disks
	claims  listers.PersistentVolumeClaimLister
	volumes listers.PersistentVolumeLister
	queue   workqueue.TypedRateLimitingInterface[string]
	events  record.EventRecorder
}

func newResizer(client kubernetes.Interface, name string, disks disks, claims corev1.PersistentVolumeClaimInformer, volumes listers.PersistentVolumeLister) *resizer {
	sink := record.NewBroadcaster()
	sink.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	r := &resizer{
		client: client, name: name, disks: disks, claims: claims.Lister(), volumes: volumes,
		queue:  workqueue.NewTypedRateLimitingQueue(retries()),
		events: sink.NewRecorder(scheme.Scheme, v1.EventSource{Component: "local-resizer"}),
	}
	enqueue := func(obj any) {
		if claim, ok := obj.(*v1.PersistentVolumeClaim); ok && wantsMore(claim) {
			r.queue.Add(claim.Namespace + "/" + claim.Name)
		}
	}
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, now any) { enqueue(now) }})
	if err != nil {
		klog.Fatal(err)
	}
	return r
}

func wantsMore(claim *v1.PersistentVolumeClaim) bool {
	wanted, has := claim.Spec.Resources.Requests[v1.ResourceStorage], claim.Status.Capacity[v1.ResourceStorage]
	return claim.Status.Phase == v1.ClaimBound && wanted.Cmp(has) > 0
}

func (r *resizer) run(ctx context.Context) {
	for {
		key, stop := r.queue.Get()
		if stop {
			return
		}
		if err := r.resize(ctx, key); err != nil {
			klog.ErrorS(err, "Resizing failed", "claim", key)
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}

// resize grows the file system first, then says so in the volume and last in the claim.
func (r *resizer) resize(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	claim, err := r.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && !wantsMore(claim) {
		return nil
	} else if err != nil {
		return err
	}
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return err
	}
	if volume.Annotations[provisionedBy] != r.name {
		return nil
	}
	size := claim.Spec.Resources.Requests[v1.ResourceStorage]
	if err := r.disks.run(ctx, "grow", nodeOf(volume), volume.Name, strconv.FormatInt(size.Value(), 10)); err != nil {
		r.events.Event(claim, v1.EventTypeWarning, "VolumeResizeFailed", err.Error())
		return err
	}
	if has := volume.Spec.Capacity[v1.ResourceStorage]; has.Cmp(size) < 0 {
		volume = volume.DeepCopy()
		volume.Spec.Capacity[v1.ResourceStorage] = size
		if _, err := r.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	claim = claim.DeepCopy()
	claim.Status.Capacity[v1.ResourceStorage] = size
	if _, err := r.client.CoreV1().PersistentVolumeClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("claim %s: %w", key, err)
	}
	r.events.Eventf(claim, v1.EventTypeNormal, "VolumeResizeSuccessful", "the volume has %s now", size.String())
	return nil
}
