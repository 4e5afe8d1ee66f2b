package election

import (
	"fmt"
	"slices"
	"time"
)

// MayPromise says why this instance must not promise to the Pod of a holder that it will not campaign; empty: it may. A promise
// lasts for the duration of the Lease, by the clock of the one who gives it, from when it was asked for. takeOver says that the
// Pod does not go on, but seeks the promise in order to begin.
func MayPromise(f Facts, holder, pod string, takeOver bool) string {
	return mayPromise(f, holder, pod, takeOver, nil)
}

func mayPromise(f Facts, holder, pod string, takeOver bool, off without) string {
	p := f.Promise
	if takeOver && f.Young && !off["promise/forgotten"] {
		return "was started a moment ago, and may have forgotten what it promised to another Pod"
	}
	if !off["promise/one-pod"] && p.Remaining > 0 && (p.Holder != holder || p.Pod != pod) {
		return fmt.Sprintf("has promised to %s (Pod %s) for %s more", p.Holder, p.Pod, p.Remaining.Round(time.Millisecond))
	}
	if f.Lease.Holder != "" && f.Lease.Holder != holder {
		return f.Lease.Holder + " holds the lease"
	}
	if !takeOver && f.Lease.Holder == holder && f.Lease.HolderPod != "" && f.Lease.HolderPod != pod {
		return "another Pod of " + holder + " holds the lease"
	}
	return ""
}

// Held is what the Pod that may write knows about its right to.
type Held struct {
	// Since is the time since before the last renewal was sent, or since before the first question of the last round of
	// promises that counted.
	Since time.Duration
	// Members are those of the last update of the Lease that was answered, and of every one sent since that was not.
	Members []string
}

// ByPromises says whether a holder that cannot renew may go on because all members have promised not to campaign: since when its
// right then counts, or who is missing. promised has how long ago each was asked that promised.
func (h Held) ByPromises(self string, t Timings, promised map[string]time.Duration) (since time.Duration, missing []string) {
	return h.byPromises(self, t, promised, nil)
}

func (h Held) byPromises(self string, t Timings, promised map[string]time.Duration, off without) (time.Duration, []string) {
	var since time.Duration
	var missing []string
	others := 0
	for _, name := range h.Members {
		if name == self {
			continue
		}
		others++
		age, ok := promised[name]
		switch {
		case !ok && !off["failsafe/all"]:
			missing = append(missing, name)
		case ok:
			since = max(since, age)
		}
	}
	switch {
	case others == 0 && !off["failsafe/nobody"]:
		missing = append(missing, "any other member")
	case h.Since >= t.StopFast() && !off["failsafe/in-time"]:
		missing = append(missing, "the time: the lease has run out")
	case since >= h.Since && len(missing) == 0:
		return h.Since, nil // nothing is won
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return h.Since, slices.Compact(missing)
	}
	return since, nil
}
