package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	errPromised = errors.New("another instance was promised that this one waits")
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
			wait = retry(timings)
			k.log.Warn("Renewing the lease failed", "error", err)
			continue
		}
		wait = max(0, wait-(k.now()-began))
	}
}

// attempt renews once if the agent wants to hold the Lease and may.
func (k *Keeper) attempt(ctx context.Context) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	want, seen := k.want && k.now() < k.wantUntil, k.lease
	k.mu.Unlock()
	if !want {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, request(k.Timings()))
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

// errNotRenewed is that no renewal came about although no request failed: the Lease is not wanted, or not this agent's.
var errNotRenewed = errors.New("the lease was not renewed")

// Confirm renews the Lease now, and says whether the API server has written that down: what the members promise does not count. So whoever is
// about to stop writing for a hand-over knows that it can come to pass.
func (k *Keeper) Confirm(ctx context.Context) error {
	began := k.now()
	if err := k.attempt(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.holding || k.byPromises || k.writtenAt < began {
		return errNotRenewed
	}
	return nil
}

// write renews the Lease that was seen.
func (k *Keeper) write(ctx context.Context, seen *coordinationv1.Lease) error {
	desired, err := k.begin(seen)
	if err != nil {
		return nil //nolint:nilerr // not ours to take: whoever decides sees the holder and stops wanting it
	}
	sent := k.now()
	written, err := k.api.Update(ctx, desired.lease)
	k.note(err)
	k.mu.Lock()
	k.attempting = false
	if err != nil {
		k.mu.Unlock()
		return fmt.Errorf("updating the lease: %w", err)
	}
	won := !k.holding
	k.timings = desired.timings.Counting(k.wanted)
	k.holding, k.renewedAt, k.writtenAt, k.byPromises = true, sent, sent, false
	k.tried, k.triedSyncs = nil, []string{recordOf(written).Sync} // it is in the view from here on, not only when it is observed
	k.claim.Campaign = false
	k.kept = written.Annotations
	until := sent + k.timings.StopKill()
	k.mu.Unlock()
	if k.options.Renewed != nil {
		k.options.Renewed(until)
	}
	k.observe(written)
	if won {
		k.log.Info("Holding the lease", "transitions", ptr.Deref(written.Spec.LeaseTransitions, 0))
		k.options.Changed()
	}
	return nil
}

// attempted is a Lease that is sent, and the timings that are in it.
type attempted struct {
	lease   *coordinationv1.Lease
	timings Timings
}

// begin is desired, and takes note that the request is on its way: no promise is given meanwhile.
func (k *Keeper) begin(seen *coordinationv1.Lease) (attempted, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	desired, err := k.desired(seen)
	if err != nil {
		return attempted{}, err
	}
	k.attempting = true
	if sync := desired.Annotations[naming.AnnotationSync]; sync != recordOf(seen).Sync && !slices.Contains(k.triedSyncs, sync) {
		k.triedSyncs = append(k.triedSyncs, sync)
	}
	if members := k.publication.Members; len(members) > 0 {
		k.tried = append(k.tried, members)
		if len(k.tried) > maxTried {
			k.tried = append(k.tried[:0:0], slices.Compact(slices.Sorted(slices.Values(slices.Concat(k.tried...)))))
		}
	}
	return attempted{lease: desired, timings: k.wanted}, nil
}

// maxTried bounds how many publications without an answer are kept one by one.
const maxTried = 8

// mayWrite says whether this agent may become or stay the holder of the Lease that was seen; else why not.
func (k *Keeper) mayWrite(record Record) error {
	claim, view := k.claim, k.view()
	campaign := claim.Campaign && record.Version == claim.Seen.Version && view.Version == record.Version && view.Expired
	handed := claim.HandedOver && record.Version == claim.Seen.Version
	decided := record.Holder == claim.Seen.Holder && record.HolderPod == claim.Seen.HolderPod
	mine := k.isMine(record)
	switch {
	case !k.want:
		return errNotWanted // since a moment ago
	case record.Holder != "" && record.Holder != k.self && !campaign && !handed:
		return ErrHeldByOther
	case claim.Seen.Version != "" && !mine && !decided:
		return ErrHeldByOther
	case claim.Sync != nil && !mine && record.Version != claim.Seen.Version:
		return ErrHeldByOther // it replaces the set of that very version
	case record.Holder == k.self && record.HolderPod != "" && !mine && !view.Expired:
		return ErrOtherPod
	}
	if p := view.Promise; p != nil && !k.handedOver(record) && !k.entitled() {
		if !handed || p.Holder != record.Holder || p.Pod != record.HolderPod {
			return errPromised
		}
	}
	return nil
}

func (k *Keeper) isMine(record Record) bool {
	return record.Holder == k.self && record.HolderPod == k.pod
}

// desired is the Lease with this agent as its holder, or why it must not be.
func (k *Keeper) desired(seen *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	record, claim := recordOf(seen), k.claim
	if err := k.mayWrite(record); err != nil {
		return nil, err
	}
	lease := seen.DeepCopy()
	now := metav1.NewMicroTime(time.Now())
	if record.Holder != k.self {
		lease.Spec.AcquireTime = &now
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(seen.Spec.LeaseTransitions, 0) + 1)
	}
	lease.Spec.HolderIdentity = ptr.To(k.self)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(k.wanted.Duration / time.Second))
	lease.Spec.RenewTime = &now
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	if record.Holder == "" && k.holding { // it was made anew
		for _, name := range []string{naming.AnnotationVersion, naming.AnnotationSync, naming.AnnotationSyncMode, naming.AnnotationTimeline, naming.AnnotationTimelineStart} {
			if value, ok := k.kept[name]; ok {
				lease.Annotations[name] = value
			}
		}
	}
	lease.Annotations[naming.AnnotationHolderPod] = k.pod
	delete(lease.Annotations, naming.AnnotationEnd)
	k.publication.putIn(lease.Annotations)
	if claim.Timeline > recordOf(lease).Timeline {
		lease.Annotations[naming.AnnotationTimeline] = strconv.FormatInt(claim.Timeline, 10)
	}
	if claim.Sync != nil && !k.isMine(record) {
		lease.Annotations[naming.AnnotationSync], lease.Annotations[naming.AnnotationSyncMode] = claim.Sync.Set, claim.Sync.Mode
	}
	return lease, nil
}

// Stopped writes to the Lease that this Pod writes no more, though its instance remains the holder: the instance's next Pod
// then starts at once. To be called when PostgreSQL has ended.
func (k *Keeper) Stopped(ctx context.Context) error {
	k.Hold(false)
	ctx, cancel := context.WithTimeout(ctx, request(k.Timings()))
	defer cancel()
	err := k.change(ctx, func(lease *coordinationv1.Lease) { delete(lease.Annotations, naming.AnnotationHolderPod) })
	if errors.Is(err, ErrHeldByOther) {
		return nil
	}
	return err
}

// change changes the Lease while it is this Pod's; ErrHeldByOther if it is not.
func (k *Keeper) change(ctx context.Context, how func(*coordinationv1.Lease)) error {
	k.mu.Lock()
	lease := k.lease
	k.mu.Unlock()
	for {
		if lease == nil {
			var err error
			if lease, err = k.get(ctx); err != nil {
				return fmt.Errorf("reading the lease: %w", err)
			}
			k.observe(lease)
		}
		if record := recordOf(lease); record.Holder != k.self || record.HolderPod != k.pod {
			return ErrHeldByOther
		}
		desired := lease.DeepCopy()
		how(desired)
		written, err := k.api.Update(ctx, desired)
		k.note(err)
		if err == nil {
			k.observe(written)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
		lease = nil // somebody wrote it
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
