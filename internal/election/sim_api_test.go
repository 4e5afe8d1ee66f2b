package election

import (
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// position is a timeline and how many entries of WAL there are.
type position struct {
	timeline int64
	length   int
}

func (p position) real() postgres.Position {
	return postgres.Position{Timeline: p.timeline, LSN: postgres.LSN(p.length)}
}

// record is the Lease as it is stored. It is not changed once it is stored.
type record struct {
	version             int
	holder, pod, system string
	members             []string
	position            position
	timelineStart       int
	timeline            int64
	sync                *SyncSet
	end                 *End
	duration            time.Duration
}

// api is the API server: one Lease, compare-and-swap, and watches.
type api struct {
	w         *world
	lease     *record
	downUntil time.Duration
}

func (a *api) down() bool { return a.w.now < a.downUntil }

// update stores the record if the Lease is still at the version, and tells whoever watches.
func (a *api) update(base int, next record) (*record, bool) {
	if a.lease.version != base {
		return a.lease, false
	}
	next.version = base + 1
	a.store(&next)
	return &next, true
}

func (a *api) store(next *record) {
	before := a.lease
	a.lease = next
	if before.holder != next.holder || before.pod != next.pod {
		a.w.note("lease: %s %s timeline %d (was %s %s)", next.holder, next.pod, next.timeline, before.holder, before.pod)
	}
	if !same(before.sync, next.sync) {
		a.w.note("lease: sync %v (was %v)", next.sync, before.sync)
	}
	if next.sync == nil && next.holder != "" && a.w.mode == SyncNone {
		for i := range a.w.acked {
			a.w.acked[i].promised = false // nobody wants it any more
		}
	}
	for _, p := range a.w.pods {
		a.w.send(nodeAPI, p.node, p, func() { p.see(next) })
	}
}

// nodeAPI is the node of the API server in blocks.
const nodeAPI = 0

// block keeps messages of one direction from arriving; -1 is every node.
type block struct {
	from, to int
	until    time.Duration
}

func (w *world) blocked(from, to int) bool {
	for _, b := range w.blocks {
		if w.now < b.until && (b.from == from || b.from == -1 && from != to) && (b.to == to || b.to == -1 && from != to) {
			return true
		}
	}
	return false
}

// delay is how long a message takes.
func (w *world) delay() time.Duration {
	switch {
	case w.now < w.slowUntil && w.chance(30):
		return w.between(0, 6*time.Second)
	case w.chance(2):
		return w.between(0, 500*time.Millisecond)
	}
	return w.between(time.Millisecond, 20*time.Millisecond)
}

// send has a message arrive later, or never. Who receives it may have been replaced, or stands still, by then.
func (w *world) send(from, to int, receiver *pod, do func()) {
	if w.blocked(from, to) || w.now < w.lossyUntil && w.chance(30) {
		return
	}
	w.after(w.delay()+w.late[[2]int{from, to}], func() {
		if w.blocked(from, to) {
			return
		}
		if receiver != nil {
			receiver.receive(do)
			return
		}
		do()
	})
}

// call asks the API server something on behalf of a Pod; answer is called with what ask returned, if both messages arrive.
func (w *world) call(p *pod, ask func() func()) {
	epoch := p.epoch
	w.send(p.node, nodeAPI, nil, func() {
		if w.api.down() {
			return
		}
		answer := ask()
		w.send(nodeAPI, p.node, p, func() {
			if p.epoch == epoch {
				answer()
			}
		})
	})
}

// ask asks another instance's Pod something; a Pod is found by the name of its instance, so never one that was replaced.
func (w *world) ask(p *pod, name string, ask func(*pod) func()) {
	other := w.instance(name)
	if other == nil || other.pod == nil {
		return
	}
	epoch, receiver := p.epoch, other.pod
	w.send(p.node, receiver.node, receiver, func() {
		if !receiver.alive {
			return
		}
		answer := ask(receiver)
		w.send(receiver.node, p.node, p, func() {
			if p.epoch == epoch {
				answer()
			}
		})
	})
}
