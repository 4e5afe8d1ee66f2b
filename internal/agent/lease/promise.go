package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgsteward/pgsteward/internal/election"
)

// Promise is that this agent does not become primary until a time of its own clock, unless that very holder hands it the Lease.
type Promise struct {
	Holder, Pod string
	Until       time.Duration
	// Remaining is how long that is yet, in a View.
	Remaining time.Duration
}

// Promise promises the holder not to become primary for that long, from now on; or it says why it does not.
func (k *Keeper) Promise(holder, pod string, duration time.Duration, takeOver bool) (why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	view := k.view()
	facts := election.Facts{
		Self: k.self, Pod: k.pod, Young: k.now()-k.startedAt < max(duration, k.timings.Duration),
		Lease: election.Lease{Known: view.Known, Holder: view.Holder, HolderPod: view.HolderPod},
	}
	if view.Promise != nil {
		facts.Promise = election.Promise{Holder: view.Promise.Holder, Pod: view.Promise.Pod, Remaining: view.Promise.Remaining}
	}
	switch {
	case duration <= 0 || duration > promiseBound:
		return fmt.Sprintf("a promise for %s is none that we give", duration)
	case holder == k.self:
		return "the question comes from myself"
	case k.entitled():
		return "I hold the lease myself"
	case k.attempting:
		return "I am taking the lease"
	}
	if why := election.MayPromise(facts, holder, pod, takeOver); why != "" {
		return why
	}
	k.promise = &Promise{Holder: holder, Pod: pod, Until: k.now() + duration}
	return ""
}

// entitled says whether this agent holds the Lease and its right has not run out. After that PostgreSQL has stopped, whether or not
// somebody else was seen to take it.
func (k *Keeper) entitled() bool { return k.holding && k.now()-k.renewedAt < k.timings.Duration }

// promiseBound is more than any duration of a Lease.
const promiseBound = 5 * time.Minute

// handedOver says whether the Lease was given to this agent by its holder, who has stopped: nobody's Pod is in it. A Lease that
// this agent took itself has its Pod in it.
func (k *Keeper) handedOver(r Record) bool { return r.Holder == k.self && r.HolderPod == "" }

// goOnByPromises has the promises of all members count as a renewal while the API server does not answer. It depends on nothing
// but the members; above all, it waits for no request to the API server.
func (k *Keeper) goOnByPromises(ctx context.Context) {
	if k.options.Ask == nil {
		return
	}
	for ctx.Err() == nil {
		pause(ctx, k.Timings().Renew/8, nil)
		if members, due := k.promisesDue(); due {
			k.askOnce(ctx, members)
		}
	}
}

// promisesDue says whom to ask, and whether it is time to.
func (k *Keeper) promisesDue() (members []string, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if !k.failsafe || !k.holding || !k.want || now >= k.wantUntil || k.lease == nil {
		return nil, false
	}
	if now-k.writtenAt < late(k.timings) || now-k.renewedAt < k.timings.Renew {
		return nil, false // the API server answers; or they were asked a moment ago
	}
	if k.deniedAt != nil {
		return nil, false // it answers, and says that this Pod is not the one any more
	}
	voters := k.voters()
	published := recordOf(k.lease).Members
	return voters, len(voters) > 0 && len(published) > 0 && now-k.renewedAt < k.timings.StopFast()
}

// voters are all members that may know of themselves that they are some: of the Lease that was seen, and of those that were
// written since without an answer.
func (k *Keeper) voters() []string {
	voters := slices.Clone(recordOf(k.lease).Members)
	for _, tried := range append(k.tried, k.publication.Members) {
		voters = append(voters, tried...)
	}
	slices.Sort(voters)
	voters = slices.Compact(voters)
	return slices.DeleteFunc(voters, func(name string) bool { return name == k.self })
}

// askOnce asks everybody once. The answers count only if the Lease is still held, as far as anybody knows, when they are there.
func (k *Keeper) askOnce(ctx context.Context, members []string) {
	timings := k.Timings()
	bounded, cancel := context.WithTimeout(ctx, min(time.Second, timings.Renew/2))
	defer cancel()
	asked := k.now()
	promised := k.options.Ask(bounded, members, timings.Duration)
	if ctx.Err() != nil {
		return
	}
	k.mu.Lock()
	now := k.now()
	ages := map[string]time.Duration{}
	for _, member := range promised {
		ages[member] = now - asked
	}
	if k.timings != timings { // a renewal was answered meanwhile, and by it the lease lasts for another time than was promised
		k.mu.Unlock()
		return
	}
	held := election.Held{Since: now - k.renewedAt, Members: k.voters()}
	since, missing := held.ByPromises(k.self, k.timings, ages)
	if len(missing) > 0 || !k.holding {
		k.mu.Unlock()
		k.log.Warn("The lease cannot be renewed, and not every member promises to wait", "missing", missing)
		return
	}
	first := !k.byPromises
	k.byPromises = true
	k.renewedAt = now - since
	until := k.renewedAt + timings.StopKill()
	k.mu.Unlock()
	if k.options.Renewed != nil {
		k.options.Renewed(until)
	}
	if first {
		k.log.Warn("Going on without the API server: all members promise not to become primary", "members", members)
	}
}
