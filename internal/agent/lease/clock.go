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
	// Deadline is how long after the last renewal a fast shutdown begins; 0 is three quarters of the duration.
	Deadline time.Duration
}

// Defaults of the timings.
const (
	DefaultDuration = 8 * time.Second
	DefaultDeadline = 5 * time.Second
	DefaultRenew    = 2 * time.Second
)

// StopFast is how long after the last renewal a fast shutdown begins.
func (t Timings) StopFast() time.Duration {
	if t.Deadline > 0 {
		return t.Deadline
	}
	return t.Duration * 3 / 4
}

// StopImmediate is how long after the last renewal an immediate shutdown follows.
func (t Timings) StopImmediate() time.Duration { return t.between(4) }

// StopKill is how long after the last renewal everything is ended by force.
func (t Timings) StopKill() time.Duration { return t.between(6) }

// StopAlone is how long after the last renewal the watchdog ends everything by force, if the agent has not.
func (t Timings) StopAlone() time.Duration { return t.between(7) }

// between is that many eighths of the way from StopFast to the end.
func (t Timings) between(eighths time.Duration) time.Duration {
	return t.StopFast() + (t.Duration-t.StopFast())*eighths/8
}

// Late is how long after the last change that was seen a renewal counts as late.
func (t Timings) Late() time.Duration { return t.Renew * 3 / 2 }

// request bounds one request: a lost answer must leave time for more attempts before StopFast.
func (t Timings) request() time.Duration { return t.Renew }

// retry is the pause after a request that failed.
func (t Timings) retry() time.Duration { return t.Renew / 4 }
