package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/naming"
)

// API reads and writes one Lease.
type API interface {
	Get(ctx context.Context) (*coordinationv1.Lease, error)
	// Update is compare-and-swap on the resource version.
	Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// Watch calls receive for every change after the resource version, until it breaks.
	Watch(ctx context.Context, resourceVersion string, receive func(*coordinationv1.Lease)) error
}

var (
	// ErrHeldByOther is that another instance is the recorded holder.
	ErrHeldByOther = errors.New("another instance holds the lease")
	// ErrOtherPod is that another Pod of this instance may be writing.
	ErrOtherPod = errors.New("another Pod of this instance holds the lease")
)

// View is the Lease as it was last seen.
type View struct {
	// Known says whether it was seen at all.
	Known            bool
	Holder           string
	HolderPod        string
	SystemIdentifier string
	// Expired says whether its duration has passed since the last change that was seen.
	Expired bool
	// Remaining is how long this agent holds it yet; 0 if it does not.
	Remaining time.Duration
	// SinceRenewal is the time since before the last renewal by this agent was sent; meaningful while Holding.
	SinceRenewal time.Duration
	// Holding says whether this agent has renewed it and it was seen in nobody else's hands since; it may have run out.
	Holding bool
	// Err is why the last request failed; nil if it did not.
	Err error
}

// Options are what a Keeper needs.
type Options struct {
	API API
	// Self is the instance, Pod the UID of its Pod.
	Self string
	Pod  string
	Now  Clock
	Log  *slog.Logger
	// Changed is called when holder or system have changed, or the Lease was won or lost.
	Changed func()
}

// Keeper watches and renews the Lease for one instance.
type Keeper struct {
	api     API
	self    string
	pod     string
	now     Clock
	log     *slog.Logger
	changed func()
	kick    chan struct{}

	mu        sync.Mutex
	timings   Timings
	want      bool
	wantUntil time.Duration
	system    string
	lease     *coordinationv1.Lease
	seenAt    time.Duration
	renewedAt time.Duration
	holding   bool
	err       error
}

// NewKeeper is a keeper that does not want to hold the Lease yet.
func NewKeeper(options Options, timings Timings) *Keeper {
	return &Keeper{
		api: options.API, self: options.Self, pod: options.Pod, now: options.Now, log: options.Log, changed: options.Changed,
		timings: timings, kick: make(chan struct{}, 1),
	}
}

// WantBound is how long wanting lasts if it is not repeated: an agent whose loop hangs, say on a disk that does not answer,
// must not keep the Lease.
const WantBound = 30 * time.Second

// Hold says whether the agent wants to hold the Lease; to be repeated within WantBound. Wanting takes it as soon as it may be
// taken. Not wanting stops renewing it; the Lease is not given away.
func (k *Keeper) Hold(want bool) {
	k.mu.Lock()
	changed := k.want != want
	k.want, k.wantUntil = want, k.now()+WantBound
	k.mu.Unlock()
	if changed && want {
		k.poke()
	}
}

// SetSystemIdentifier has it written to the Lease with the next renewal.
func (k *Keeper) SetSystemIdentifier(system string) {
	k.mu.Lock()
	changed := k.system != system
	k.system = system
	k.mu.Unlock()
	if changed {
		k.poke()
	}
}

// SetTimings changes the timings.
func (k *Keeper) SetTimings(timings Timings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timings = timings
}

// Timings are the current timings.
func (k *Keeper) Timings() Timings {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.timings
}

func (k *Keeper) poke() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// View is the Lease as it was last seen.
func (k *Keeper) View() View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view()
}

func (k *Keeper) view() View {
	view := View{Err: k.err, Holding: k.holding}
	if k.lease == nil {
		return view
	}
	now := k.now()
	view.Known = true
	view.Holder = ptr.Deref(k.lease.Spec.HolderIdentity, "")
	view.HolderPod = k.lease.Annotations[naming.AnnotationHolderPod]
	view.SystemIdentifier = k.lease.Annotations[naming.AnnotationSystemIdentifier]
	duration := max(k.timings.Duration, time.Duration(ptr.Deref(k.lease.Spec.LeaseDurationSeconds, 0))*time.Second)
	view.Expired = now-k.seenAt > duration
	if k.holding {
		view.SinceRenewal = now - k.renewedAt
		view.Remaining = max(0, k.timings.Duration-view.SinceRenewal)
	}
	return view
}

// observe takes note of a Lease that was read; older ones than the last seen are ignored.
func (k *Keeper) observe(lease *coordinationv1.Lease) {
	k.mu.Lock()
	before := k.view()
	if k.lease != nil && !newer(lease, k.lease) {
		k.mu.Unlock()
		return
	}
	k.lease = lease
	k.seenAt = k.now()
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	pod := lease.Annotations[naming.AnnotationHolderPod]
	if k.holding && (holder != k.self || pod != k.pod) {
		k.holding = false
	}
	after := k.view()
	k.mu.Unlock()
	if before.Holder != after.Holder || before.Known != after.Known || before.Holding != after.Holding ||
		before.HolderPod != after.HolderPod || before.SystemIdentifier != after.SystemIdentifier {
		k.changed()
	}
}

// newer compares resource versions, which are increasing numbers (KEP-5504). A Lease that was made anew counts as newer.
func newer(a, b *coordinationv1.Lease) bool {
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	if errX != nil || errY != nil {
		return a.ResourceVersion != b.ResourceVersion
	}
	return x > y
}

// Run watches and renews until the context ends.
func (k *Keeper) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { k.watch(ctx) })
	group.Go(func() { k.renew(ctx) })
	group.Wait()
}

func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := k.get(ctx)
		if err == nil {
			k.observe(lease)
			err = k.api.Watch(ctx, lease.ResourceVersion, k.observe)
		}
		if err != nil && ctx.Err() == nil {
			k.log.Debug("Watching the lease again", "error", err)
		}
		pause(ctx, k.Timings().retry(), nil)
	}
}

func (k *Keeper) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, k.Timings().request())
	defer cancel()
	lease, err := k.api.Get(ctx)
	k.note(err)
	return lease, err
}

// note keeps why the last request failed; a conflict is no failure.
func (k *Keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil || !apierrors.IsConflict(err) {
		k.err = err
	}
}

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
