package lease

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
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
