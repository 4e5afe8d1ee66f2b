package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// HandOver makes the target the holder, in one update. To be called when PostgreSQL has stopped, at that position; clean says that
// it was shut down properly, so that nothing comes after. If it was not, PostgreSQL's files show less than was written, and what was
// published before may be more: that stays, since it says what whoever takes over must not lack. The agent must not be the holder any
// more from now on, whatever comes of it: only what is then read from the API server says who is.
func (k *Keeper) HandOver(ctx context.Context, target string, end postgres.Position, clean bool) error {
	return k.handOver(ctx, target, func(annotations map[string]string, now *metav1.MicroTime) {
		if clean || end.Compare(parsePosition(annotations[naming.AnnotationPosition])) > 0 {
			annotations[naming.AnnotationPosition] = formatPosition(end)
		}
		delete(annotations, naming.AnnotationEnd)
		if clean {
			annotations[naming.AnnotationEnd] = formatEnd(election.End{By: k.self, Position: end}, now)
		}
	})
}

// HandOverTo is HandOver to an instance of another generation, which becomes the live one by the same update.
func (k *Keeper) HandOverTo(ctx context.Context, target string, next Generation) error {
	return k.handOver(ctx, target, func(annotations map[string]string, _ *metav1.MicroTime) { next.putIn(annotations) })
}

func (k *Keeper) handOver(ctx context.Context, target string, note func(annotations map[string]string, now *metav1.MicroTime)) error {
	k.Hold(false)
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	k.lose()
	k.mu.Unlock()
	err := k.change(ctx, func(lease *coordinationv1.Lease) {
		now := metav1.NewMicroTime(time.Now())
		lease.Spec.HolderIdentity = ptr.To(target)
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		delete(lease.Annotations, naming.AnnotationHolderPod)
		note(lease.Annotations, &now)
	})
	if err != nil {
		return fmt.Errorf("handing the lease to %s: %w", target, err)
	}
	return nil
}

// WasHandedOver says whether HandOverTo came to pass, of which no answer was had: it asks until there is one. If not, it cannot come to pass
// afterwards.
func (k *Keeper) WasHandedOver(ctx context.Context, version string) (bool, error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	for {
		err := k.touch(ctx)
		switch {
		case err == nil:
			return false, nil
		case errors.Is(err, ErrHeldByOther):
			return k.View().LiveVersion == version, nil // by whoever of that generation
		}
		k.log.Warn("Asking whether the lease was handed over", "error", err)
		if pause(ctx, retry(k.Timings()), nil); ctx.Err() != nil {
			return false, err
		}
	}
}

// touch writes the Lease while it is this Pod's, rather than read it: an update that is still on its way is of a version that was then.
func (k *Keeper) touch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, request(k.Timings()))
	defer cancel()
	return k.change(ctx, func(lease *coordinationv1.Lease) {
		now := metav1.NewMicroTime(time.Now())
		lease.Spec.RenewTime = &now
	})
}
