package lease

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

func TestKeeper_WasHandedOver(t *testing.T) {
	t.Parallel()
	timeout := errors.New("timeout")
	for name, c := range map[string]struct {
		lost   bool
		holder string
		want   bool
	}{
		"its answer was lost":                      {lost: true, want: true},
		"and the target's generation has moved on": {lost: true, holder: "db-4", want: true},
		"it did not come to pass":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.Hold(true)
			require.NoError(t, f.attempt(t.Context()))
			f.store.err, f.store.lost = timeout, c.lost
			require.ErrorIs(t, f.HandOverTo(t.Context(), "db-3", Generation{Version: "17", SystemIdentifier: "42"}), timeout)
			if c.holder != "" {
				f.store.put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To(c.holder) })
			}
			version, asked := f.store.lease.ResourceVersion, 0
			f.store.lost = false
			f.store.before = func() {
				if asked++; asked == 2 {
					f.store.mu.Lock()
					defer f.store.mu.Unlock()
					f.store.err = nil
				}
			}
			was, err := f.WasHandedOver(t.Context(), "17")
			require.NoError(t, err)
			assert.Equal(t, c.want, was)
			assert.False(t, f.View().Holding, "it has to be taken anew")
			assert.Equal(t, !c.want, version != f.store.lease.ResourceVersion, "an update that is on its way still comes too late")
		})
	}
}

func TestKeeper_WasHandedOver_unknown(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	f.store.err = errors.New("timeout")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.WasHandedOver(ctx, "17")
	require.Error(t, err)
}

// TestKeeper_Confirm: only what the API server has written down just now says that the Lease could be handed over.
func TestKeeper_Confirm(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.options.Ask = func(_ context.Context, members []string, _ time.Duration) []string { return members }
	f.SetTimings(f.Timings(), true)
	require.ErrorIs(t, f.Confirm(t.Context()), errNotRenewed, "it is not wanted")
	f.Hold(true)
	f.Publish(Publication{Members: []string{"db-1", "db-2"}})
	require.NoError(t, f.Confirm(t.Context()))
	version := f.store.lease.ResourceVersion
	require.NoError(t, f.Confirm(t.Context()))
	assert.NotEqual(t, version, f.store.lease.ResourceVersion, "each time anew")

	timeout := errors.New("timeout")
	f.store.err = timeout
	f.clock += 3 * time.Second
	f.Hold(true)
	f.askOnce(t.Context(), []string{"db-2"})
	require.True(t, f.View().Failsafe)
	require.ErrorIs(t, f.Confirm(t.Context()), timeout)
	f.store.err = nil
	require.NoError(t, f.Confirm(t.Context()))
	assert.False(t, f.View().Failsafe)

	f.store.put(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("db-2") })
	require.ErrorIs(t, f.Confirm(t.Context()), errNotRenewed)
}

// TestKeeper_HandOverTo: the Lease says who the next generation is, and nothing of the last; nor how far its primary has come, which it says itself.
func TestKeeper_HandOverTo(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hold(true)
	f.Publish(Publication{
		SystemIdentifier: "41", LiveVersion: "16", Members: []string{"db-1", "db-2"}, Position: postgres.Position{Timeline: 7, LSN: 900},
		TimelineStart: 800, Sync: &Sync{Set: "ANY 1 (db-2)", Mode: "Required"},
	})
	require.NoError(t, f.attempt(t.Context()))
	next := Generation{Version: "17", SystemIdentifier: "42", Members: []string{"db-3", "db-4"}}
	require.NoError(t, f.HandOverTo(t.Context(), "db-3", next))
	got := recordOf(&f.store.lease)
	assert.Equal(t, Record{
		Holder: "db-3", SystemIdentifier: "42", LiveVersion: "17", Members: next.Members, Version: got.Version,
	}, got)
}
