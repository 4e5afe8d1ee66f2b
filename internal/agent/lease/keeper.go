package lease

import (
	"context"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

// API reads and writes one Lease.
type API interface {
	Get(ctx context.Context) (*coordinationv1.Lease, error)
	// Update is compare-and-swap on the resource version.
	Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// Watch calls receive for every change after the resource version, until it breaks.
	Watch(ctx context.Context, resourceVersion string, receive func(*coordinationv1.Lease)) error
}

// View is the Lease as it was last seen, and what this agent has of it.
type View struct {
	// Known says whether it was seen at all.
	Known bool
	Record
	// Expired says whether its duration has passed since the last change that was seen.
	Expired bool
	// SinceChange is how long ago that was, and ExpiredFor for how long it has run out.
	SinceChange time.Duration
	ExpiredFor  time.Duration
	// Remaining is how long this agent holds it yet; 0 if it does not.
	Remaining time.Duration
	// SinceRenewal is the time since before the last renewal by this agent was sent; meaningful while Holding.
	SinceRenewal time.Duration
	// Holding says whether this agent has renewed it and it was seen in nobody else's hands since; it may have run out.
	Holding bool
	// Failsafe says that the last renewal was by the promises of all members, since the API server did not answer.
	Failsafe bool
	// Syncs are the synchronous sets that may be in the Lease, published by this agent: of the last update that was answered, and of
	// every one sent since, which may still be carried out.
	Syncs []string
	// Promise is the one that this agent has given and that has not run out; nil if there is none.
	Promise *Promise
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
	// Changed is called when holder or system have changed, the Lease was won or lost, or it has run out.
	Changed func()
	// Renewed is called after each renewal with the time until which it lets this agent's server write at most; nil: nobody.
	Renewed func(until time.Duration)
	// Ask asks the members for their promises; it returns those who gave it. nil: nobody is asked.
	Ask func(ctx context.Context, members []string, duration time.Duration) (promised []string)
}

// Keeper watches and renews the Lease for one instance.
type Keeper struct {
	options Options
	api     API
	self    string
	pod     string
	now     Clock
	log     *slog.Logger
	kick    chan struct{}
	// writing is held by whoever writes the Lease, so that a renewal and a hand-over do not get into each other's way.
	writing sync.Mutex

	mu sync.Mutex
	// timings are those by which is counted, wanted those of the configuration, which are written with the next renewal.
	timings   Timings
	wanted    Timings
	failsafe  bool
	want      bool
	wantUntil time.Duration
	claim     Claim
	// kept is what this holder wrote last: a Lease that is made anew gets it back.
	kept map[string]string
	// attempting says that a request is on its way that would make this agent the holder.
	attempting  bool
	publication Publication
	// tried are the members of all publications since the last that is known to have been carried out.
	tried [][]string
	// triedSyncs are the synchronous sets likewise.
	triedSyncs []string
	lease      *coordinationv1.Lease
	seenAt     time.Duration
	expiry     *time.Timer
	renewedAt  time.Duration
	// writtenAt is when the last renewal through the API server was sent; byPromises says that there was one without it since.
	writtenAt  time.Duration
	byPromises bool
	holding    bool
	promise    *Promise
	// startedAt is when this keeper began: what was promised before is forgotten.
	startedAt time.Duration
	err       error
	// deniedAt is when the first request was denied after the last one that was not; nil if none was.
	deniedAt *time.Duration
}

// NewKeeper is a keeper that does not want to hold the Lease yet.
func NewKeeper(options Options, timings Timings) *Keeper {
	return &Keeper{
		options: options, api: options.API, self: options.Self, pod: options.Pod, now: options.Now, log: options.Log,
		timings: timings, wanted: timings, kick: make(chan struct{}, 1), startedAt: options.Now(),
	}
}

// WantBound is how long wanting lasts if it is not repeated: an agent whose loop hangs, say on a disk that does not answer,
// must not keep the Lease.
const WantBound = 30 * time.Second

// Hold says whether the agent wants to hold the Lease; to be repeated within WantBound. Wanting takes it as soon as it may be
// taken without taking it from another instance. Not wanting stops renewing it; the Lease is not given away.
func (k *Keeper) Hold(want bool) { k.setWant(want, Claim{}) }

// Claim is what was decided about a Lease: to take it, or to go on renewing it.
type Claim struct {
	// Seen is the record for which it was decided: the Lease is taken only if holder and Pod still are those, or oneself.
	Seen Record
	// Campaign takes it also from another holder, whose Lease has run out, if it still is the very version that was seen.
	Campaign bool
	// HandedOver takes it from a holder that has said that it has stopped, if it still is that version.
	HandedOver bool
	// Timeline is to be promoted to, and is written in the same update; 0: none. So is Sync, if it is not nil.
	Timeline int64
	Sync     *Sync
}

// Take is Hold by such a decision.
func (k *Keeper) Take(claim Claim) { k.setWant(true, claim) }

func (k *Keeper) setWant(want bool, claim Claim) {
	k.mu.Lock()
	changed := k.want != want || claim.Timeline > 0 && k.claim.Timeline != claim.Timeline ||
		(claim.Campaign || claim.HandedOver) && (!k.claim.Campaign && !k.claim.HandedOver || k.claim.Seen.Version != claim.Seen.Version)
	k.want, k.wantUntil, k.claim = want, k.now()+WantBound, claim
	k.mu.Unlock()
	if changed && want {
		k.poke()
	}
}

// Publish has this written to the Lease with the next renewal: at once, if more than the position is new.
func (k *Keeper) Publish(publication Publication) {
	k.mu.Lock()
	before := k.publication
	if publication.SystemIdentifier == "" {
		publication.SystemIdentifier = before.SystemIdentifier
	}
	if publication.LiveVersion == "" {
		publication.LiveVersion = before.LiveVersion
	}
	k.publication = publication
	k.mu.Unlock()
	before.Position = publication.Position
	if !reflect.DeepEqual(before, publication) {
		k.poke()
	}
}

// SetSystemIdentifier has it written to the Lease with the next renewal, which comes at once if it is new.
func (k *Keeper) SetSystemIdentifier(system string) {
	k.mu.Lock()
	publication := k.publication
	k.mu.Unlock()
	publication.SystemIdentifier = system
	k.Publish(publication)
}

// Renew renews the Lease at once, if it is wanted.
func (k *Keeper) Renew() { k.poke() }

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
	view := View{Err: k.err, Holding: k.holding, Failsafe: k.holding && k.byPromises}
	now := k.now()
	if k.deniedAt != nil {
		view.Denied = now - *k.deniedAt
	}
	if k.promise != nil && now < k.promise.Until {
		view.Promise = ptr.To(*k.promise)
		view.Promise.Remaining = k.promise.Until - now
	}
	if k.lease == nil {
		return view
	}
	view.Known, view.Record = true, recordOf(k.lease)
	view.Syncs = []string{view.Sync}
	for _, tried := range k.triedSyncs {
		if tried != view.Sync {
			view.Syncs = append(view.Syncs, tried)
		}
	}
	view.SinceChange = now - k.seenAt
	view.Expired = view.SinceChange > k.duration()
	view.ExpiredFor = max(0, view.SinceChange-k.duration())
	if k.promise != nil { // its holder may have written for as long, so what members said before may be too little
		view.ExpiredFor = max(0, min(view.ExpiredFor, now-k.promise.Until))
	}
	if k.holding {
		view.SinceRenewal = now - k.renewedAt
		view.Remaining = max(0, k.timings.Duration-view.SinceRenewal)
	}
	return view
}

// duration is how long the Lease that was seen is valid after a change: as its holder or we believe, whichever is longer.
func (k *Keeper) duration() time.Duration {
	recorded := time.Duration(ptr.Deref(k.lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return max(k.timings.Duration, recorded)
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
	record := recordOf(lease)
	// Nobody is no other hands: the Lease was deleted and made anew. Whoever else would take it must know this instance's
	// position first, which is the furthest; so this one goes on until its renewal runs out, and takes it back at once.
	forgotten := k.holding && record.Holder == ""
	if k.holding && !forgotten && (record.Holder != k.self || record.HolderPod != k.pod) {
		k.lose()
	}
	if k.expiry == nil {
		k.expiry = time.AfterFunc(k.duration()+expiryGrace, k.options.Changed)
	}
	k.expiry.Reset(k.duration() + expiryGrace)
	after := k.view()
	k.mu.Unlock()
	if forgotten {
		k.poke()
	}
	if before.Known != after.Known || before.Holding != after.Holding || differ(before.Record, after.Record) {
		k.options.Changed()
	}
}

// expiryGrace makes sure that the Lease has run out when its expiry is looked at.
const expiryGrace = 10 * time.Millisecond

// differ says whether more is new than version and position.
func differ(a, b Record) bool {
	a.Version, a.Position = b.Version, b.Position
	return !reflect.DeepEqual(a, b)
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
	group.Go(func() { k.goOnByPromises(ctx) })
	group.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.expiry != nil {
		k.expiry.Stop()
	}
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
		pause(ctx, retry(k.Timings()), nil)
	}
}

func (k *Keeper) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, request(k.Timings()))
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
