package lease

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/agent/supervise"
	"github.com/pgsteward/pgsteward/internal/naming"
)

// store is one Lease with compare-and-swap.
type store struct {
	mu    sync.Mutex
	lease coordinationv1.Lease
	// err is the answer to every request, if set; lost has updates carried out although they fail.
	err     error
	lost    bool
	watches atomic.Int32
	// before is called before an update, without the lock.
	before func()
}

func (s *store) put(change func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(change)
}

func (s *store) putLocked(change func(*coordinationv1.Lease)) {
	change(&s.lease)
	version, _ := strconv.Atoi(s.lease.ResourceVersion)
	s.lease.ResourceVersion = strconv.Itoa(version + 1)
}

func (s *store) Get(context.Context) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy(), s.err
}

func (s *store) Update(_ context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !s.lost {
		return nil, s.err
	}
	if lease.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{}, "", errors.New("changed"))
	}
	s.putLocked(func(l *coordinationv1.Lease) { l.Spec, l.Annotations = *lease.Spec.DeepCopy(), lease.Annotations })
	return s.lease.DeepCopy(), s.err
}

func (s *store) Watch(ctx context.Context, _ string, _ func(*coordinationv1.Lease)) error {
	s.watches.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// fixture is a keeper whose clock stands still until it is moved.
type fixture struct {
	*Keeper
	store *store
	clock time.Duration
	news  int
}

func newFixture() *fixture {
	f := &fixture{store: &store{}, clock: time.Hour}
	f.store.put(func(*coordinationv1.Lease) {})
	f.Keeper = NewKeeper(Options{
		API: f.store, Self: "db-1", Pod: "pod-a", Now: func() time.Duration { return f.clock },
		Log: slog.New(slog.DiscardHandler), Changed: func() { f.news++ },
	}, Timings{Duration: 8 * time.Second, Renew: 2 * time.Second})
	return f
}

func (f *fixture) see(t *testing.T) {
	t.Helper()
	lease, err := f.store.Get(t.Context())
	require.NoError(t, err)
	f.observe(lease)
}

func TestKeeper_takes_and_renews(t *testing.T) {
	t.Parallel()
	f := newFixture()
	require.NoError(t, f.attempt(t.Context()))
	assert.False(t, f.View().Known, "it wants nothing and asks nothing")

	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	view := f.View()
	assert.True(t, view.Known && view.Holding)
	assert.Equal(t, "db-1", view.Holder)
	assert.Equal(t, 8*time.Second, view.Remaining)
	spec := f.store.lease.Spec
	assert.Equal(t, int32(8), *spec.LeaseDurationSeconds)
	assert.Equal(t, int32(1), *spec.LeaseTransitions)
	assert.NotNil(t, spec.AcquireTime)
	assert.Equal(t, "pod-a", f.store.lease.Annotations[naming.AnnotationHolderPod])

	f.clock += 3 * time.Second
	assert.Equal(t, 5*time.Second, f.View().Remaining)
	f.Publish(Publication{SystemIdentifier: "42"})
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, 8*time.Second, f.View().Remaining)
	assert.Equal(t, int32(1), *f.store.lease.Spec.LeaseTransitions)
	assert.Equal(t, "42", f.View().SystemIdentifier)
	assert.Equal(t, spec.AcquireTime, f.store.lease.Spec.AcquireTime)
}

func TestKeeper_counts_from_before_the_request(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.store.before = func() { f.clock += 1500 * time.Millisecond }
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, 6500*time.Millisecond, f.View().Remaining)
}

func TestKeeper_does_not_believe_in_a_lost_answer(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.clock += 2 * time.Second
	f.store.err, f.store.lost = errors.New("timeout"), true
	require.Error(t, f.attempt(t.Context()))
	assert.Equal(t, 6*time.Second, f.View().Remaining)
	require.Error(t, f.View().Err)
	f.store.err, f.store.lost = nil, false
	require.NoError(t, f.attempt(t.Context()), "the conflict with its own update is resolved")
	assert.Equal(t, 8*time.Second, f.View().Remaining)
	assert.NoError(t, f.View().Err)
}

func TestKeeper_never_takes_what_another_holds(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.store.put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("db-2") })
	f.see(t)
	for range 3 { // however long ago it was renewed
		f.clock += time.Minute
		f.Hold(true)
		require.NoError(t, f.attempt(t.Context()))
		assert.Equal(t, "db-2", *f.store.lease.Spec.HolderIdentity)
		assert.False(t, f.View().Holding)
	}
	assert.True(t, f.View().Expired)
}

func TestKeeper_Denied(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	try := func(err error) time.Duration {
		f.store.err = err
		_ = f.attempt(t.Context())
		f.clock += time.Second
		return f.View().Denied
	}
	denied := apierrors.NewUnauthorized("Unauthorized")
	assert.Zero(t, try(nil))
	assert.Equal(t, time.Second, try(denied))
	assert.Equal(t, 2*time.Second, try(denied))
	assert.Equal(t, 3*time.Second, try(errors.New("timeout")), "that says nothing about the token")
	assert.Equal(t, 4*time.Second, try(denied))
	assert.Zero(t, try(apierrors.NewNotFound(schema.GroupResource{}, "db-primary")), "the token was recognized")
	assert.Equal(t, time.Second, try(denied))
	assert.Zero(t, try(nil))
}

func TestKeeper_loses_a_race(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.store.before = func() {
		f.store.before = nil
		f.store.put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("db-2") })
	}
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-2", f.View().Holder)
	assert.False(t, f.View().Holding)
}

func TestKeeper_sees_that_it_was_taken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*coordinationv1.Lease){
		"by another instance":             func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("db-2") },
		"by another Pod of this instance": func(l *coordinationv1.Lease) { l.Annotations[naming.AnnotationHolderPod] = "pod-b" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.Hold(true)
			require.NoError(t, f.attempt(t.Context()))
			old := f.store.lease.DeepCopy()
			before := f.news
			f.store.put(change)
			f.see(t)
			assert.False(t, f.View().Holding)
			assert.Zero(t, f.View().Remaining)
			assert.Greater(t, f.news, before)
			f.observe(old)
			assert.False(t, f.View().Holding, "old news changes nothing")
			assert.Equal(t, supervise.Immediate, stopMode(f.View(), f.Timings()))
		})
	}
}

func TestKeeper_takes_back_what_was_made_anew(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.Publish(Publication{SystemIdentifier: "42"})
	require.NoError(t, f.attempt(t.Context()))
	f.clock += time.Second
	f.store.err = apierrors.NewNotFound(schema.GroupResource{}, "db-primary")
	require.Error(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding, "it was deleted")
	f.store.err = nil
	f.store.put(func(l *coordinationv1.Lease) { l.Spec, l.Annotations = coordinationv1.LeaseSpec{}, nil })
	for len(f.kick) > 0 {
		<-f.kick
	}
	f.see(t)
	view := f.View()
	assert.True(t, view.Holding)
	assert.Empty(t, view.Holder)
	assert.Equal(t, 7*time.Second, view.Remaining, "counted from the last renewal")
	assert.Equal(t, supervise.Mode(0), stopMode(view, f.Timings()))
	assert.Len(t, f.kick, 1, "it is taken back at once")
	f.clock += 5 * time.Second
	assert.Equal(t, supervise.Fast, stopMode(f.View(), f.Timings()), "not for longer than it was renewed for")

	require.NoError(t, f.attempt(t.Context()))
	view = f.View()
	assert.Equal(t, "db-1", view.Holder)
	assert.Equal(t, "42", view.SystemIdentifier)
	assert.Equal(t, 8*time.Second, view.Remaining)
}

func TestKeeper_waits_for_another_Pod_of_its_own(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.store.put(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = ptr.To("db-1")
		l.Annotations = map[string]string{naming.AnnotationHolderPod: "pod-old"}
	})
	f.see(t)
	f.clock += 8 * time.Second
	require.NoError(t, f.attempt(t.Context()))
	assert.False(t, f.View().Holding)
	f.clock += time.Millisecond
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding)
}

func TestKeeper_Stopped(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	require.NoError(t, f.Stopped(t.Context()))
	assert.Equal(t, "db-1", *f.store.lease.Spec.HolderIdentity)
	assert.NotContains(t, f.store.lease.Annotations, naming.AnnotationHolderPod)

	f.store.put(func(l *coordinationv1.Lease) { l.Annotations = map[string]string{naming.AnnotationHolderPod: "pod-b"} })
	require.NoError(t, f.Stopped(t.Context()))
	assert.Equal(t, "pod-b", f.store.lease.Annotations[naming.AnnotationHolderPod], "another Pod's claim is not ours to remove")
}

func TestKeeper_stops_renewing_for_an_agent_that_hangs(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.clock += WantBound - time.Millisecond
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding)
	version := f.store.lease.ResourceVersion
	f.clock += time.Millisecond
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, version, f.store.lease.ResourceVersion)
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	assert.NotEqual(t, version, f.store.lease.ResourceVersion)
}

func TestKeeper_Stopped_while_renewing(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.store.before = func() {
		f.store.before = nil
		require.NoError(t, f.Stopped(t.Context()))
	}
	require.NoError(t, f.attempt(t.Context()))
	assert.NotContains(t, f.store.lease.Annotations, naming.AnnotationHolderPod, "a renewal on its way does not claim it again")
}

func TestKeeper_Run(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Keeper = NewKeeper(Options{
		API: f.store, Self: "db-1", Pod: "pod-a", Now: Boottime, Log: slog.New(slog.DiscardHandler), Changed: func() {},
	}, Timings{Duration: 400 * time.Millisecond, Renew: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	f.Hold(true)
	require.Eventually(t, func() bool { return f.View().Holding }, 10*time.Second, time.Millisecond)
	first := f.View()
	require.Eventually(t, func() bool {
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		version, _ := strconv.Atoi(f.store.lease.ResourceVersion)
		return version > 4
	}, 10*time.Second, time.Millisecond, "it renews: %v", first)
	cancel()
	<-done
}

func TestKeeper_does_not_trust_a_silent_watch(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.SetTimings(Timings{Duration: 20 * time.Millisecond, Renew: 4 * time.Millisecond}, false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.watch(ctx) }()
	require.Eventually(t, func() bool { return f.store.watches.Load() >= 3 }, 10*time.Second, time.Millisecond)
	cancel()
	<-done
}

func TestStopMode(t *testing.T) {
	t.Parallel()
	timings := Timings{Duration: 8 * time.Second, Renew: 2 * time.Second}
	for since, want := range map[time.Duration]supervise.Mode{
		0: 0, 5 * time.Second: 0, 6 * time.Second: supervise.Fast, 7 * time.Second: supervise.Immediate,
		7500 * time.Millisecond: supervise.Kill, time.Hour: supervise.Kill,
	} {
		assert.Equal(t, want, stopMode(View{Holding: true, SinceRenewal: since}, timings), since)
	}
	assert.Equal(t, supervise.Immediate, stopMode(View{}, timings))
	assert.Less(t, timings.StopKill()+2*guardInterval, timings.Duration)
}
