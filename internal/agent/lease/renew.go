package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/naming"
)

var (
	// ErrHeldByOther is that another instance is the recorded holder.
	ErrHeldByOther = errors.New("another instance holds the lease")
	errNotWanted   = errors.New("the lease is not wanted any more")
	// ErrOtherPod is that another Pod of this instance may be writing.
	ErrOtherPod = errors.New("another Pod of this instance holds the lease")
)

func (k *Keeper) renew(ctx context.Context) {
	wait := time.Duration(0)
	for {
		pause(ctx, wait, k.kick)
		if ctx.Err() != nil {
			return
		}
		timings := k.Timings()
		wait = timings.Renew
		began := k.now()
		if err := k.attempt(ctx); err != nil {
			wait = timings.retry()
			k.log.Warn("Renewing the lease failed", "error", err)
			continue
		}
		wait = max(0, wait-(k.now()-began))
	}
}

// attempt renews once if the agent wants to hold the Lease and may.
func (k *Keeper) attempt(ctx context.Context) error {
	k.mu.Lock()
	want, seen := k.want && k.now() < k.wantUntil, k.lease
	k.mu.Unlock()
	if !want {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.Timings().request())
	defer cancel()
	if seen == nil {
		lease, err := k.api.Get(ctx)
		if err != nil {
			k.note(err)
			return err
		}
		k.observe(lease)
		seen = lease
	}
	err := k.write(ctx, seen)
	if !apierrors.IsConflict(err) {
		return err
	}
	// Somebody wrote it, or an earlier request of ours was carried out although its answer was lost.
	lease, err := k.api.Get(ctx)
	if err != nil {
		k.note(err)
		return err
	}
	k.observe(lease)
	return k.write(ctx, lease)
}

// write renews the Lease that was seen.
func (k *Keeper) write(ctx context.Context, seen *coordinationv1.Lease) error {
	desired, err := k.desired(seen)
	if err != nil {
		return nil //nolint:nilerr // not ours to take: whoever decides sees the holder and stops wanting it
	}
	sent := k.now()
	written, err := k.api.Update(ctx, desired)
	k.note(err)
	if err != nil {
		return fmt.Errorf("updating the lease: %w", err)
	}
	k.mu.Lock()
	won := !k.holding
	k.holding, k.renewedAt = true, sent
	k.mu.Unlock()
	k.observe(written)
	if won {
		k.log.Info("Holding the lease", "transitions", ptr.Deref(written.Spec.LeaseTransitions, 0))
		k.changed()
	}
	return nil
}

// desired is the Lease with this agent as its holder, or why it must not be.
func (k *Keeper) desired(seen *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	holder := ptr.Deref(seen.Spec.HolderIdentity, "")
	pod := seen.Annotations[naming.AnnotationHolderPod]
	if !k.want {
		return nil, errNotWanted // since a moment ago
	}
	if holder != "" && holder != k.self {
		return nil, ErrHeldByOther
	}
	if holder == k.self && pod != "" && pod != k.pod && !k.view().Expired {
		return nil, ErrOtherPod
	}
	lease := seen.DeepCopy()
	now := metav1.NewMicroTime(time.Now())
	if holder != k.self {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(seen.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = ptr.To(k.self)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(k.timings.Duration / time.Second))
	lease.Spec.RenewTime = &now
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[naming.AnnotationHolderPod] = k.pod
	if k.system != "" {
		lease.Annotations[naming.AnnotationSystemIdentifier] = k.system
	}
	return lease, nil
}

// Stopped writes to the Lease that this Pod writes no more, though its instance remains the holder: the instance's next Pod
// then starts at once. To be called when PostgreSQL has ended.
func (k *Keeper) Stopped(ctx context.Context) error {
	k.Hold(false)
	ctx, cancel := context.WithTimeout(ctx, k.Timings().request())
	defer cancel()
	for {
		lease, err := k.api.Get(ctx)
		if err != nil {
			return fmt.Errorf("reading the lease: %w", err)
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") != k.self || lease.Annotations[naming.AnnotationHolderPod] != k.pod {
			return nil
		}
		delete(lease.Annotations, naming.AnnotationHolderPod)
		if _, err = k.api.Update(ctx, lease); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// pause waits for the duration, the kick or the context.
func pause(ctx context.Context, duration time.Duration, kick <-chan struct{}) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-kick:
	}
}
