package election

import "time"

// Timings of a Lease. An agent counts what it holds from before it sent the request, others from when they see the change, each on
// its own clock. Whoever holds is stopped for certain by StopKill, which is a sixteenth of the duration before anybody else may
// take over: that allows for DriftBound on both clocks, and for the time in which a killed process ends.
type Timings struct {
	// Duration is how long the Lease is valid after a renewal, Renew how often it is renewed, and Deadline when a holder whose
	// renewals fail begins to stop; zero: three quarters of the duration.
	Duration time.Duration
	Deadline time.Duration
	Renew    time.Duration
}

// DriftBound is how much a clock may be too fast or too slow, as a fraction: one in a hundred, where a quartz that is not broken
// is better than one in ten thousand.
const DriftBound = 0.01

// StopFast is how long after the last renewal a fast shutdown begins.
func (t Timings) StopFast() time.Duration {
	if t.Deadline > 0 {
		return min(t.Deadline, t.Duration*12/16)
	}
	return t.Duration * 12 / 16
}

// StopImmediate is how long after the last renewal an immediate shutdown follows.
func (t Timings) StopImmediate() time.Duration { return t.Duration * 14 / 16 }

// StopKill is how long after the last renewal everything is ended by force.
func (t Timings) StopKill() time.Duration { return t.Duration * 15 / 16 }

// Counting is by which timings a holder counts what it holds that goes by these: the wanted ones, unless they are longer than what
// others know. Longer ones count only from when an update that carried them was answered.
func (t Timings) Counting(wanted Timings) Timings { return t.counting(wanted, nil) }

func (t Timings) counting(wanted Timings, off without) Timings {
	if wanted.Duration <= t.Duration || off["timings/answered"] {
		return wanted
	}
	return t
}

// Stopping is how a server that may write must be stopped by now.
type Stopping int

// The ways to stop, from none to the hardest.
const (
	GoOn Stopping = iota
	StopFast
	StopImmediate
	StopKill
)

// MustStop says how a server that may write must be stopped, so long after the last renewal, or if the lease is not held.
func (t Timings) MustStop(holding bool, sinceRenewal time.Duration) Stopping {
	switch {
	case sinceRenewal >= t.StopKill():
		return StopKill
	case !holding:
		return StopImmediate // in other hands: every moment counts
	case sinceRenewal >= t.StopImmediate():
		return StopImmediate
	case sinceRenewal >= t.StopFast():
		return StopFast
	}
	return GoOn
}
