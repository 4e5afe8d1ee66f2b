package lease

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pgsteward/pgsteward/internal/election"
)

// Clock is the time since some moment in the past. It never goes back.
type Clock func() time.Duration

// Boottime is the time since the machine was started, including the time it slept: a machine that was suspended must not
// believe that its lease is still valid.
func Boottime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // cannot fail on Linux
	}
	return time.Duration(now.Nano())
}

// Timings of a Lease.
type Timings = election.Timings

// Defaults of the timings.
const (
	DefaultDuration = 8 * time.Second
	DefaultDeadline = 5 * time.Second
	DefaultRenew    = 2 * time.Second
)

// late is how long after the last renewal that was written the next one counts as late.
func late(t Timings) time.Duration { return t.Renew * 3 / 2 }

// request bounds one request: a lost answer must leave time for more attempts before StopFast.
func request(t Timings) time.Duration { return t.Renew }

// retry is the pause after a request that failed.
func retry(t Timings) time.Duration { return t.Renew / 4 }
