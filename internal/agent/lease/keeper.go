package lease

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// Denied is how long the API server has denied this Pod's token, without recognizing it once in between.
	Denied time.Duration
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
	// deniedAt is when the first request was denied after the last one that was not; nil if none was.
	deniedAt *time.Duration
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
	now := k.now()
	if k.deniedAt != nil {
		view.Denied = now - *k.deniedAt
	}
	if k.lease == nil {
		return view
	}
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
	// Nobody is no other hands: the Lease was deleted and made anew. Whoever else would take it must know this instance's
	// position first, which is the furthest; so this one goes on until its renewal runs out, and takes it back at once.
	forgotten := k.holding && holder == ""
	if k.holding && !forgotten && (holder != k.self || pod != k.pod) {
		k.holding = false
	}
	after := k.view()
	k.mu.Unlock()
	if forgotten {
		k.poke()
	}
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

// watch watches again and again. A watch that is silent for twice the duration may be dead, since a holder renews more often.
func (k *Keeper) watch(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := k.get(ctx)
		if err == nil {
			k.observe(lease)
			watching, cancel := context.WithCancel(ctx)
			silence := time.AfterFunc(2*k.Timings().Duration, cancel)
			err = k.api.Watch(watching, lease.ResourceVersion, func(lease *coordinationv1.Lease) {
				silence.Reset(2 * k.Timings().Duration)
				k.observe(lease)
			})
			silence.Stop()
			cancel()
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
	switch {
	case err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		k.deniedAt = nil // it knows who asks; any other failure says nothing about that
	case apierrors.IsUnauthorized(err) && k.deniedAt == nil:
		k.deniedAt = ptr.To(k.now())
	}
}
