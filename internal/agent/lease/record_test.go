package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/election"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// TestKeeper_end: where a holder ended is known until somebody renews the Lease, be it an agent that knows nothing of it.
func TestKeeper_end(t *testing.T) {
	t.Parallel()
	handOver := func(clean bool) *fixture {
		f := newFixture()
		f.Hold(true)
		require.NoError(t, f.attempt(t.Context()))
		require.NoError(t, f.HandOver(t.Context(), "db-2", postgres.Position{Timeline: 3, LSN: 0x5000148}, clean))
		return f
	}
	f := handOver(true)
	assert.Equal(t, &election.End{By: "db-1", Position: postgres.Position{Timeline: 3, LSN: 0x5000148}}, f.View().End)
	f.store.put(func(l *coordinationv1.Lease) { l.Annotations[naming.AnnotationHolderPod] = "pod-b" })
	f.see(t)
	assert.NotNil(t, f.View().End)
	f.store.put(func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(time.Second)))
	})
	f.see(t)
	assert.Nil(t, f.View().End, "db-2 may have written since")

	assert.Nil(t, handOver(false).View().End, "it crashed, and may have more")

	f = handOver(true)
	f.store.put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("db-1") })
	f.see(t)
	f.Take(Claim{Seen: f.View().Record})
	require.NoError(t, f.attempt(t.Context()))
	assert.NotContains(t, f.store.lease.Annotations, naming.AnnotationEnd)
	require.NoError(t, f.HandOver(t.Context(), "db-2", postgres.Position{Timeline: 3, LSN: 0x6000000}, false))
	assert.NotContains(t, f.store.lease.Annotations, naming.AnnotationEnd)
}

// TestKeeper_takes_back_the_timeline: who takes back a Lease that was made anew writes the highest timeline that it knows to be given.
func TestKeeper_takes_back_the_timeline(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.store.put(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity, l.Annotations = ptr.To("db-1"), map[string]string{naming.AnnotationTimeline: "5"}
	})
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.store.put(func(l *coordinationv1.Lease) { l.Spec, l.Annotations = coordinationv1.LeaseSpec{}, nil })
	f.see(t)
	require.True(t, f.View().Holding)
	assert.Zero(t, f.View().Timeline)
	f.Take(Claim{Seen: f.View().Record, Timeline: 4})
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, int64(5), f.View().Timeline, "5 was given before")
	f.Take(Claim{Seen: f.View().Record, Timeline: 6})
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, int64(6), f.View().Timeline)
}

// TestKeeper_publishes_a_first_set: it takes the place of that in the version for which it was decided, and of no other.
func TestKeeper_publishes_a_first_set(t *testing.T) {
	t.Parallel()
	f := newFixture()
	give := func() {
		f.store.put(func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Annotations = ptr.To("db-1"), map[string]string{naming.AnnotationSync: "ANY 1 (db-1,db-3)"}
		})
	}
	give()
	f.see(t)
	claim := Claim{Seen: f.View().Record, Sync: &Sync{Set: "ANY 1 (db-2,db-3)", Mode: "required"}}
	give()
	f.Take(claim)
	require.NoError(t, f.attempt(t.Context()))
	assert.False(t, f.View().Holding)
	claim.Seen = f.View().Record
	f.Take(claim)
	require.NoError(t, f.attempt(t.Context()))
	assert.True(t, f.View().Holding)
	assert.Equal(t, "ANY 1 (db-2,db-3)", f.View().Sync)
}
