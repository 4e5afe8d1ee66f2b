package election

import (
	"fmt"
	"slices"
	"time"
)

// fault is something that goes wrong, or is asked for.
type fault struct {
	name   string
	weight int
	do     func(*world)
}

var faults = []fault{
	{"PostgreSQL is killed", 8, func(w *world) { w.anyPod().crash("killed") }},
	{"an agent is killed", 8, func(w *world) { w.anyPod().killAgent(w.between(300*time.Millisecond, 3*time.Second)) }},
	{"a Pod is replaced", 5, func(w *world) {
		p := w.anyPod()
		p.end("deleted")
		w.replace(p, w.between(500*time.Millisecond, 8*time.Second))
	}},
	{"a Pod is replaced that cannot be reached and lives on", 6, (*world).cutOffAndReplace},
	{"an agent stands still", 8, func(w *world) { w.anyPod().pause(w.between(time.Second, 20*time.Second)) }},
	{"a machine is lost for a while", 5, func(w *world) { w.anyPod().killAgent(w.between(3*time.Second, 25*time.Second)) }},
	{"cut off from the API server", 6, func(w *world) { n := w.anyPod().node; w.cut(n, nodeAPI); w.cut(nodeAPI, n) }},
	{"cut off from all", 5, func(w *world) { n := w.anyPod().node; w.cut(n, -1); w.cut(-1, n) }},
	{"cannot send", 3, func(w *world) { w.cut(w.anyPod().node, -1) }},
	{"cannot receive", 3, func(w *world) { w.cut(-1, w.anyPod().node) }},
	{"one way to the API server only", 3, func(w *world) { w.cut(w.anyPod().node, nodeAPI) }},
	{"one way from the API server only", 3, func(w *world) { w.cut(nodeAPI, w.anyPod().node) }},
	{"two are apart", 5, func(w *world) { a, b := w.anyPod().node, w.anyPod().node; w.cut(a, b); w.cut(b, a) }},
	{"cut off from its peers", 4, (*world).cutFromPeers},
	{"the API server is out", 6, func(w *world) { w.api.downUntil = w.now + w.between(time.Second, 25*time.Second) }},
	{"messages are slow", 3, func(w *world) { w.slowUntil = w.now + w.between(time.Second, 20*time.Second) }},
	{"messages are lost", 3, func(w *world) { w.lossyUntil = w.now + w.between(time.Second, 20*time.Second) }},
	{"a disk is slow", 4, func(w *world) { w.anyPod().instance.slowUntil = w.now + w.between(time.Second, 20*time.Second) }},
	{"a server does not start", 3, func(w *world) {
		p := w.anyPod()
		p.instance.brokenUntil = w.now + w.between(3*time.Second, 20*time.Second)
		p.crash("broken")
	}},
	{"a server lives for moments only", 5, func(w *world) {
		p := w.anyPod()
		p.instance.flakyUntil = w.now + w.between(2*time.Second, 10*time.Second)
		p.crash("killed")
	}},
	{"a switchover is wished", 8, (*world).switchover},
	{"a Pod is told to end", 6, (*world).terminate},
	{"a member is added", 2, (*world).addMember},
	{"a member is removed", 2, (*world).removeMember},
	{"an instance is fenced by hand", 2, func(w *world) {
		i := w.anyPod().instance
		i.fencedFrom, i.fencedUntil = w.now, w.now+w.between(time.Second, 15*time.Second)
	}},
	{"the lease is deleted", 2, (*world).deleteLease},
	{"a volume is lost", 2, (*world).loseVolume},
	{"a volume has another system's data", 1, (*world).foreignVolume},
	{"an instance is lost for good", 1, (*world).loseInstance},
	{"an instance is forced to take over", 2, func(w *world) { w.force(w.anyPod().instance, w.between(time.Second, 15*time.Second)) }},
	{"the timings are changed", 3, (*world).changeTimings},
	{"the mode is changed", 1, func(w *world) { w.mode = SyncMode(w.random.Intn(3)) }},
}

// planFaults has some go wrong, often more than one at once.
func (w *world) planFaults() {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	one := func() {
		n := w.random.Intn(total)
		for _, f := range faults {
			if n -= f.weight; n < 0 {
				w.note("FAULT: %s", f.name)
				f.do(w)
				return
			}
		}
	}
	for range 2 + w.random.Intn(14) {
		moment := w.between(time.Second, simFaults-time.Second)
		for range 1 + w.random.Intn(3) {
			w.at(moment+w.between(0, 3*time.Second), func() {
				if w.now < simFaults {
					one()
				}
			})
		}
	}
}

// heal ends everything that is wrong.
func (w *world) heal() {
	w.note("everything is well again")
	w.blocks, w.slowUntil, w.lossyUntil, w.api.downUntil = nil, 0, 0, 0
	for _, i := range w.instances {
		i.fencedUntil, i.brokenUntil, i.slowUntil, i.flakyUntil = 0, 0, 0, 0
		i.config, i.timings = w.config, w.timings
		if i.volume.foreign {
			i.pod.crash("its volume is emptied")
			i.volume = &volume{kind: DataNone}
		}
	}
	w.after(simPatience, w.forceBest)
	for _, p := range slices.Clone(w.pods) {
		if p.instance.gone {
			continue
		}
		if p.instance.pod != p {
			p.end("its machine is back, and has heard that it was replaced")
			continue
		}
		p.pausedUntil = min(p.pausedUntil, w.now)
		if !p.alive {
			w.after(w.between(0, time.Second), p.reviveFrom(p.epoch))
		}
	}
}

func (w *world) anyPod() *pod {
	var live []*instance
	for _, i := range w.instances {
		if !i.removed && !i.gone {
			live = append(live, i)
		}
	}
	if w.chance(40) { // what happens to the primary matters most
		for _, i := range live {
			if i.pod.server.mayWrite {
				return i.pod
			}
		}
	}
	return live[w.random.Intn(len(live))].pod
}

func (w *world) cut(from, to int) {
	w.blocks = append(w.blocks, block{from, to, w.now + w.between(time.Second, 25*time.Second)})
}

func (w *world) cutFromPeers() {
	p := w.anyPod()
	until := w.now + w.between(time.Second, 25*time.Second)
	for _, other := range w.pods {
		if other != p {
			w.blocks = append(w.blocks, block{p.node, other.node, until}, block{other.node, p.node, until})
		}
	}
}

// end ends a Pod for good.
func (p *pod) end(why string) {
	p.crash(why)
	p.alive = false
	p.epoch++
	p.w.pods = slices.DeleteFunc(p.w.pods, func(other *pod) bool { return other == p && p.instance.pod != p })
}

func (p *pod) killAgent(down time.Duration) {
	p.crash("its container ends")
	p.alive = false
	p.epoch++
	p.w.after(down, p.reviveFrom(p.epoch))
}

func (p *pod) reviveFrom(epoch int) func() {
	return func() {
		if !p.alive && p.epoch == epoch && p.instance.pod == p && !p.instance.removed && !p.instance.gone {
			p.alive = true
			p.restart()
		}
	}
}

// replace makes another Pod for the instance after a while.
func (w *world) replace(old *pod, after time.Duration) {
	i := old.instance
	w.after(after, func() {
		if i.pod != old || i.removed || i.gone {
			return
		}
		w.newPod(i)
		if w.now >= simFaults {
			old.end("its machine is back, and has heard that it was replaced")
		}
		w.pods = slices.DeleteFunc(w.pods, func(p *pod) bool { return p == old && !old.alive })
	})
}

// cutOffAndReplace cuts a Pod off from the API server, and perhaps from some others; then there is another one of the same
// instance, while it lives on.
func (w *world) cutOffAndReplace() {
	p := w.anyPod()
	until := w.now + w.between(10*time.Second, 40*time.Second)
	w.blocks = append(w.blocks, block{p.node, nodeAPI, until}, block{nodeAPI, p.node, until})
	if w.chance(30) {
		w.blocks = append(w.blocks, block{p.node, -1, until}, block{-1, p.node, until})
	}
	if p.server.state == serverStandby { // its volume is in use, so another could do nothing
		p.crash("its machine is lost")
		p.alive = false
		p.epoch++
	}
	w.replace(p, w.between(time.Second, 10*time.Second))
	w.at(until, func() {
		if p.instance.pod != p {
			p.end("its machine is back, and has heard that it was replaced")
		} else if !p.alive {
			p.reviveFrom(p.epoch)()
		}
	})
}

func (p *pod) pause(d time.Duration) { p.pausedUntil = max(p.pausedUntil, p.w.now+d) }

func (w *world) switchover() {
	for _, i := range w.instances {
		if p := i.pod; !i.removed && p.alive && p.server.state == serverPrimary {
			p.request = Request{Kind: Switchover}
			if w.chance(50) {
				p.request.Target = w.anyPod().instance.name
			}
			p.poke()
			w.after(10*time.Second, func() {
				if p.request.Kind == Switchover && p.request.Stopped == 0 {
					p.request = Request{}
				}
			})
		}
	}
}

// terminate is SIGTERM: a Pod that is the primary hands over; after a while it is gone, and there is another.
func (w *world) terminate() {
	p := w.anyPod()
	if !p.alive {
		return
	}
	p.request = Request{Kind: Termination}
	p.poke()
	w.after(w.between(2*time.Second, 15*time.Second), func() {
		if p.instance.pod == p && p.alive {
			p.end("terminated")
			w.replace(p, w.between(500*time.Millisecond, 3*time.Second))
		}
	})
}

// loseInstance loses the instance with its machine and its volume, for good.
func (w *world) loseInstance() {
	i := w.anyPod().instance
	others := slices.ContainsFunc(w.instances, func(o *instance) bool { return o != i && !o.removed && o.volume.kind.HasData() })
	if w.volumeLost || !others {
		return
	}
	w.volumeLost = true
	i.gone = true
	for _, same := range slices.Clone(w.pods) {
		if same.instance == i {
			same.end("its machine is lost for good")
		}
	}
	i.volume = &volume{kind: DataNone}
}

// simPatience is how long after everything is well a user waits for a primary.
const simPatience = 25 * time.Second

// forceBest is what a user does when an instance is gone, or the primary's volume has lost its data, and there is no primary: what is
// missing cannot be known any more, and the status says so.
func (w *world) forceBest() {
	var best *instance
	gone := false
	for _, i := range w.instances {
		if i.removed || i.gone {
			gone = gone || i.gone
			continue
		}
		if i.pod.server.state == serverPrimary {
			return
		}
		if i.volume.kind.HasData() && (best == nil || i.volume.position().timeline > best.volume.position().timeline ||
			i.volume.position().timeline == best.volume.position().timeline && len(i.volume.wal) > len(best.volume.wal)) {
			best = i
		}
	}
	if holder := w.instance(w.api.lease.holder); holder != nil && (!holder.volume.kind.HasData() || holder.volume.foreign) {
		gone = true
	}
	if gone && best != nil {
		if !slices.Contains(w.api.lease.members, best.name) {
			w.deleteLease() // no force helps an instance that the Lease does not know
		}
		w.force(best, time.Hour)
	}
}

func (w *world) force(i *instance, least time.Duration) {
	w.note("forced: %s", i.name)
	w.counts["forced"]++
	w.forced = i.name
	w.after(least, func() { w.forced = "" })
}

func (w *world) changeTimings() {
	w.timings = simTimings[w.random.Intn(len(simTimings))]
	for _, i := range w.instances {
		w.after(w.between(0, 5*time.Second), func() { i.timings = w.timings })
	}
}

// configure has the agents learn of the members, each when it does.
func (w *world) configure(names []string) {
	w.config = names
	for _, i := range w.instances {
		w.after(w.between(0, 5*time.Second), func() { i.config = w.config })
	}
}

func (w *world) addMember() {
	if len(w.config) >= 6 {
		return
	}
	w.added++
	name := fmt.Sprintf("db-%d", 5+w.added)
	w.configure(append(slices.Clone(w.config), name))
	w.after(w.between(0, 3*time.Second), func() { w.addInstance(name) })
}

// removeMember removes a standby, never one that may be needed for what was promised.
func (w *world) removeMember() {
	if len(w.config) < 4 {
		return
	}
	i := w.instance(w.config[len(w.config)-1])
	if i == nil || i.pod.server.mayWrite || w.api.lease.holder == i.name || w.api.lease.sync != nil && w.api.lease.sync.has(i.name) {
		return
	}
	if primary := w.instance(w.api.lease.holder); primary == nil || primary.pod.server.state != serverPrimary {
		return // the operator keeps it: it may have the newest data
	}
	w.configure(w.config[:len(w.config)-1])
	w.after(w.between(0, 10*time.Second), func() {
		if w.api.lease.holder != i.name && !i.pod.server.mayWrite {
			i.removed = true
			i.pod.end("removed")
		} else { // it has become the primary since, so the operator keeps it
			w.configure(append(slices.Clone(w.config), i.name))
		}
	})
}

func (w *world) deleteLease() {
	if w.systems == 0 {
		return
	}
	w.api.store(&record{version: w.api.lease.version + 1})
}

// foreignVolume gives a standby data that is not this cluster's, and is further than all.
func (w *world) foreignVolume() {
	p := w.anyPod()
	if w.volumeLost || p.server.mayWrite || w.api.lease.holder == "" || w.api.lease.holder == p.instance.name || w.systems == 0 {
		return
	}
	w.volumeLost = true
	p.crash("its volume is another")
	p.instance.volume = &volume{kind: DataPrimary, foreign: true, segments: []segment{{9, 0}}, wal: make([]int, 1000), shown: 1000}
}

func (w *world) loseVolume() {
	p, lease := w.anyPod(), w.api.lease
	others := slices.ContainsFunc(w.instances, func(i *instance) bool {
		return i != p.instance && !i.removed && i.volume.kind.HasData() && len(i.volume.wal) > len(p.instance.volume.wal)-simLag/2
	})
	mine := lease.holder == "" || lease.holder == p.instance.name
	if mine && lease.sync == nil && lease.position.timeline == 0 {
		return
	}
	if w.volumeLost || !others || mine && lease.sync != nil && (lease.sync.Number == 0 || lease.sync.has(p.instance.name)) {
		return // nothing else has what is lost with it
	}
	w.volumeLost = true
	for _, same := range w.pods {
		if same.instance == p.instance {
			same.crash("its volume is lost")
		}
	}
	p.instance.volume = &volume{kind: DataNone}
}
