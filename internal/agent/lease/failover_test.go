package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// heldBy gives the Lease to another holder, with two members.
func (f *fixture) heldBy(t *testing.T, holder, pod string) {
	t.Helper()
	f.store.put(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = &holder
		l.Annotations = map[string]string{naming.AnnotationHolderPod: pod, naming.AnnotationMembers: "db-1,db-2", naming.AnnotationTimeline: "3"}
	})
	f.see(t)
}

func TestKeeper_campaigns(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.heldBy(t, "db-2", "pod-b")
	claim := Claim{Seen: f.View().Record, Campaign: true, Timeline: 4}
	f.Take(claim)
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-2", *f.store.lease.Spec.HolderIdentity, "it has not run out")

	f.clock += 8*time.Second + time.Millisecond
	assert.True(t, f.View().Expired)
	assert.Equal(t, time.Millisecond, f.View().ExpiredFor)
	f.store.put(func(*coordinationv1.Lease) {}) // renewed, and not seen
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-2", *f.store.lease.Spec.HolderIdentity, "it is not what it was when that was decided")
	assert.False(t, f.View().Expired, "the renewal is seen now")

	f.clock += 8*time.Second + time.Millisecond
	f.Take(Claim{Seen: f.View().Record, Campaign: true, Timeline: 4})
	require.NoError(t, f.attempt(t.Context()))
	view := f.View()
	assert.Equal(t, "db-1", view.Holder)
	assert.Equal(t, "pod-a", view.HolderPod)
	assert.Equal(t, int64(4), view.Timeline)
	assert.True(t, view.Holding)
}

func TestKeeper_takes_only_what_was_decided_about(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.heldBy(t, "db-1", "")
	f.Take(Claim{Seen: f.View().Record})
	f.heldBy(t, "db-1", "pod-b")
	f.clock += time.Minute
	f.Take(Claim{Seen: Record{Holder: "db-1", Version: "1"}})
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "pod-b", f.View().HolderPod)
}

func TestKeeper_hands_over(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Publish(Publication{SystemIdentifier: "42", Members: []string{"db-1", "db-2"}, Position: postgres.Position{Timeline: 2, LSN: 0x10}})
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, []string{"db-1", "db-2"}, f.View().Members)
	require.NoError(t, f.HandOver(t.Context(), "db-2", postgres.Position{Timeline: 2, LSN: 0x5000148}, true))
	view := f.View()
	assert.Equal(t, "db-2", view.Holder)
	assert.Empty(t, view.HolderPod)
	assert.Equal(t, postgres.Position{Timeline: 2, LSN: 0x5000148}, view.Position)
	assert.Equal(t, &election.End{By: "db-1", Position: view.Position}, view.End)
	assert.False(t, view.Holding)
	require.ErrorIs(t, f.HandOver(t.Context(), "db-3", postgres.Position{}, false), ErrHeldByOther)

	f = newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.store.err = errors.New("timeout")
	require.Error(t, f.HandOver(t.Context(), "db-2", postgres.Position{}, false))
	assert.False(t, f.View().Holding, "it may have been carried out")
	f.store.err = nil
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding, "it was not")
}

// TestKeeper_hands_over_after_a_crash: the files of a server that crashed show less than it wrote and had published.
func TestKeeper_hands_over_after_a_crash(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ shown, want postgres.Position }{
		"the last checkpoint is before": {postgres.Position{Timeline: 2, LSN: 0x1000000}, postgres.Position{Timeline: 2, LSN: 0x5000148}},
		"it is on an older timeline":    {postgres.Position{Timeline: 1, LSN: 0x9000000}, postgres.Position{Timeline: 2, LSN: 0x5000148}},
		"nothing can be read":           {postgres.Position{}, postgres.Position{Timeline: 2, LSN: 0x5000148}},
		"it is after":                   {postgres.Position{Timeline: 2, LSN: 0x6000000}, postgres.Position{Timeline: 2, LSN: 0x6000000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.Publish(Publication{SystemIdentifier: "42", Members: []string{"db-1", "db-2"}, Position: postgres.Position{Timeline: 2, LSN: 0x5000148}})
			f.Hold(true)
			require.NoError(t, f.attempt(t.Context()))
			require.NoError(t, f.HandOver(t.Context(), "db-2", c.shown, false))
			assert.Equal(t, c.want, f.View().Position)
		})
	}
}

// TestKeeper_promises_when_its_right_has_run_out: the Lease was deleted while this agent was cut off, so that it saw nobody take it.
func TestKeeper_promises_when_its_right_has_run_out(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.clock += 7 * time.Second
	f.store.put(func(l *coordinationv1.Lease) { l.Spec, l.Annotations = coordinationv1.LeaseSpec{}, nil })
	f.see(t)
	assert.Equal(t, "I hold the lease myself", f.Promise("db-2", "pod-b", time.Second, true))
	f.clock += 9 * time.Second // longer than it may have forgotten a promise, too
	require.Empty(t, f.Promise("db-2", "pod-b", time.Second, true))
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	assert.Nil(t, f.store.lease.Spec.HolderIdentity, "it has promised to wait")
	f.clock += time.Second
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-1", *f.store.lease.Spec.HolderIdentity)
}

func TestKeeper_is_handed_the_lease_by_its_holder(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.heldBy(t, "db-2", "pod-b")
	require.Empty(t, f.Promise("db-2", "pod-b", time.Second, false))
	claim := Claim{Seen: f.View().Record, HandedOver: true}
	f.store.put(func(*coordinationv1.Lease) {}) // the holder renewed it after all
	f.Take(claim)
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-2", f.View().Holder)

	f.Take(Claim{Seen: f.View().Record, HandedOver: true})
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding, "the promise was to that very holder")
}

func TestKeeper_promises(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.heldBy(t, "db-2", "pod-b")
	assert.Contains(t, f.Promise("db-3", "pod-c", time.Second, false), "db-2 holds the lease")
	assert.Contains(t, f.Promise("db-1", "pod-a", time.Second, false), "myself")
	assert.NotEmpty(t, f.Promise("db-2", "pod-b", time.Hour, false))
	require.Empty(t, f.Promise("db-2", "pod-b", 20*time.Second, false))
	assert.NotEmpty(t, f.Promise("db-2", "pod-new", 20*time.Second, false), "to one Pod at a time")

	f.clock += 9 * time.Second // the lease has run out, the promise has not
	f.Take(Claim{Seen: f.View().Record, Campaign: true})
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, "db-2", f.View().Holder)
	assert.Equal(t, 11*time.Second, f.View().Promise.Remaining)
	// An update that was sent before the promise may be carried out after it.
	f.heldBy(t, "db-1", "pod-a")
	f.Take(Claim{Seen: f.View().Record})
	require.NoError(t, f.attempt(t.Context()))
	assert.False(t, f.View().Holding, "and does not make it the primary")
	// The holder may hand over nevertheless.
	f.heldBy(t, "db-1", "")
	f.Take(Claim{Seen: f.View().Record})
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding)
	assert.NotEmpty(t, f.Promise("db-2", "pod-b", time.Second, false), "who holds it promises nothing")
}

func TestKeeper_goes_on_by_promises(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.SetTimings(f.Timings(), true)
	var until time.Duration
	promising := []string{"db-2", "db-3"}
	var asked []string
	f.options.Renewed = func(u time.Duration) { until = u }
	f.options.Ask = func(_ context.Context, members []string, _ time.Duration) []string {
		asked = members
		f.clock += 100 * time.Millisecond
		return promising
	}
	f.Publish(Publication{Members: []string{"db-1", "db-2"}})
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	_, due := f.promisesDue()
	assert.False(t, due, "the API server has just answered")

	f.store.err = errors.New("connection refused")
	f.Publish(Publication{Members: []string{"db-1", "db-2", "db-3"}})
	f.clock += 3 * time.Second
	require.Error(t, f.attempt(t.Context()))
	members, due := f.promisesDue()
	require.True(t, due)
	assert.Equal(t, []string{"db-2", "db-3"}, members, "also who may have been published without an answer")
	sent := f.clock
	f.askOnce(t.Context(), members)
	assert.Equal(t, members, asked)
	assert.True(t, f.View().Failsafe)
	assert.Equal(t, 100*time.Millisecond, f.View().SinceRenewal, "counted from before they were asked")
	assert.Equal(t, sent+f.Timings().StopKill(), until)

	promising = []string{"db-2"}
	f.clock += 3 * time.Second
	members, due = f.promisesDue()
	require.True(t, due)
	f.askOnce(t.Context(), members)
	assert.Greater(t, f.View().SinceRenewal, 3*time.Second, "one is missing")
	f.clock += 3 * time.Second
	_, due = f.promisesDue()
	assert.False(t, due, "it is too late")

	f.store.err = nil
	require.NoError(t, f.attempt(t.Context()))
	assert.False(t, f.View().Failsafe)
}

func TestKeeper_Promise_after_a_restart(t *testing.T) {
	t.Parallel()
	f := newFixture()
	assert.Contains(t, f.Promise("db-2", "pod-new", 8*time.Second, true), "may have forgotten",
		"the agent before this one may have promised to another Pod, which goes on by that")
	require.Empty(t, f.Promise("db-2", "pod-b", 8*time.Second, false), "who goes on has asked before")
	f.clock += 8 * time.Second
	require.Empty(t, f.Promise("db-2", "pod-new", 8*time.Second, true))
}
