package lease

// SetTimings changes the timings, and whether the promises of all members count as a renewal. While the Lease is held a longer
// duration counts only from when an update with it was answered: until then others may take over after the shorter one.
func (k *Keeper) SetTimings(timings Timings, failsafe bool) {
	k.mu.Lock()
	k.wanted, k.failsafe = timings, failsafe
	before := k.timings
	if k.timings = timings; k.holding {
		k.timings = before.Counting(timings)
	}
	until, shorter := k.renewedAt+k.timings.StopKill(), k.holding && k.timings.StopKill() < before.StopKill()
	pending := k.timings != timings
	k.mu.Unlock()
	if shorter && k.options.Renewed != nil {
		k.options.Renewed(until) // before anybody is told the shorter one
	}
	if pending {
		k.poke()
	}
}

// Timings are those by which is counted.
func (k *Keeper) Timings() Timings {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.timings
}

// lose is that this agent does not hold the Lease any more.
func (k *Keeper) lose() { k.holding, k.timings = false, k.wanted }
