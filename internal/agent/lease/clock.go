package lease

import (
	"time"

	"golang.org/x/sys/unix"
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
type Timings struct {
	// Duration is how long the Lease is valid after a renewal; Renew is how often it is renewed.
	Duration time.Duration
	Renew    time.Duration
}

// Defaults of the timings.
const (
	DefaultDuration = 8 * time.Second
	DefaultRenew    = 2 * time.Second
)

// StopFast is how long after the last renewal a fast shutdown begins.
func (t Timings) StopFast() time.Duration { return t.Duration * 12 / 16 }

// StopImmediate is how long after the last renewal an immediate shutdown follows.
func (t Timings) StopImmediate() time.Duration { return t.Duration * 14 / 16 }

// StopKill is how long after the last renewal everything is ended by force.
func (t Timings) StopKill() time.Duration { return t.Duration * 15 / 16 }

// request bounds one request: a lost answer must leave time for more attempts before StopFast.
func (t Timings) request() time.Duration { return t.Renew }

// retry is the pause after a request that failed.
func (t Timings) retry() time.Duration { return t.Renew / 4 }
