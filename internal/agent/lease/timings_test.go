package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeeper_timings: a holder counts on a longer duration only when the API server has answered an update with it, on a shorter one
// at once.
func TestKeeper_timings(t *testing.T) {
	t.Parallel()
	f := newFixture()
	short, long := f.Timings(), Timings{Duration: 60 * time.Second, Deadline: 40 * time.Second, Renew: 10 * time.Second}
	var until time.Duration
	f.options.Renewed = func(u time.Duration) { until = u }
	f.Hold(true)
	require.NoError(t, f.attempt(t.Context()))
	held := f.clock

	f.store.err = errors.New("connection refused")
	f.SetTimings(long, true)
	require.Error(t, f.attempt(t.Context()))
	assert.Equal(t, short, f.Timings(), "nobody else knows of the longer one")
	assert.Equal(t, 8*time.Second, f.View().Remaining)
	assert.Equal(t, held+short.StopKill(), until)

	f.store.lost = true // it is carried out, and the answer is lost
	require.Error(t, f.attempt(t.Context()))
	assert.Equal(t, int32(60), *f.store.lease.Spec.LeaseDurationSeconds)
	f.store.err, f.store.lost = nil, false
	f.see(t)
	assert.Equal(t, short, f.Timings())

	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, long, f.Timings())
	assert.Equal(t, f.clock+long.StopKill(), until)

	f.SetTimings(short, true)
	assert.Equal(t, short, f.Timings())
	assert.Equal(t, f.clock+short.StopKill(), until, "the watchdog knows before anybody else does")
	f.SetTimings(long, true)
	assert.Equal(t, short, f.Timings(), "the shorter one may have been written")
	require.NoError(t, f.attempt(t.Context()))
	assert.Equal(t, long, f.Timings())

	f.SetTimings(short, true)
	f.SetTimings(long, true)
	f.heldBy(t, "db-2", "pod-b")
	f.see(t)
	assert.Equal(t, long, f.Timings(), "who does not hold it waits for the longer one")
}
