package election

import (
	"fmt"
	"maps"
	"time"
)

// course is a run in which only what is written there goes wrong, and which fails if a certain rule is left out. What random runs find
// only once in many thousands is laid out here by hand.
type course struct {
	what string
	mode SyncMode
	// members are three if that is 0; fresh: they have no data.
	members int
	fresh   bool
	do      func(w *world)
	// gap is how long at most no commit is acknowledged; 0: the end decides, at which there is a primary that all follow.
	gap time.Duration
	// kept: nothing that was acknowledged is lost, although replication is asynchronous.
	kept bool
	// halted: in the end nobody may be primary.
	halted bool
	until  time.Duration
}

const second = time.Second

// quiet is a world in which nothing goes wrong, with clocks that run alike.
func quiet(mode SyncMode, members int, fresh bool, off without) *world {
	w := newWorld(0, off)
	w.queue, w.instances, w.pods, w.config, w.blocks = nil, nil, nil, nil, nil
	w.mode, w.nextID, w.notes = mode, 0, nil
	w.api.lease = &record{version: 1}
	w.systems, w.bootstrap = 0, "db-1"
	for i := range members {
		w.config = append(w.config, fmt.Sprintf("db-%d", i+1))
	}
	for _, name := range w.config {
		w.addInstance(name)
	}
	for _, i := range w.instances {
		i.config = w.config
		i.pod.ppm = 0
	}
	if !fresh {
		w.ready()
	}
	w.every(100*time.Millisecond, 200*time.Millisecond, w.write)
	return w
}

// run runs the course and returns what went wrong.
func (c course) run(off without, trace bool) (string, *world) {
	w := quiet(c.mode, max(c.members, 1), c.fresh, off)
	if c.members == 0 {
		w = quiet(c.mode, 3, c.fresh, off)
	}
	w.trace = trace
	c.do(w)
	until := c.until
	if until == 0 {
		until = 50 * second
	}
	if failure := w.runUntil(until); failure != "" {
		return failure, w
	}
	serves := false
	for _, p := range w.pods {
		serves = serves || p.server.state == serverPrimary
	}
	switch {
	case c.kept && w.counts["lost in asynchronous mode"] > 0:
		return "acknowledged commits are lost that another standby had", w
	case c.halted && serves:
		return "there is a primary, which may lack commits", w
	case c.halted:
		return "", w
	case c.gap > 0 && max(w.longest, w.now-w.lastGood) > c.gap:
		return fmt.Sprintf("no commit was acknowledged for %s", max(w.longest, w.now-w.lastGood)), w
	case c.gap > 0:
		return "", w
	}
	return w.unwell(), w
}

func (w *world) pod(n int) *pod { return w.instances[n-1].pod }

// apart cuts two Pods, or a Pod and the API server (0), off from each other for a while.
func (w *world) part(from, until time.Duration, a, b int) {
	w.at(from, func() {
		x, y := w.nodeOf(a), w.nodeOf(b)
		w.blocks = append(w.blocks, block{x, y, until}, block{y, x, until})
	})
}

func (w *world) nodeOf(n int) int {
	if n == 0 {
		return nodeAPI
	}
	return w.pod(n).node
}

// lose loses an instance for the rest of the course.
func (w *world) lose(at time.Duration, n int) {
	w.at(at, func() {
		w.instances[n-1].gone = true
		w.pod(n).killAgent(time.Hour)
	})
}

// switching has somebody wish for another primary from 10 s on, again and again until it comes true.
func (w *world) switching(target string) {
	for at := 10 * second; at < 40*second; at += 4 * second {
		w.at(at, func() {
			if p := w.pod(1); p.server.state == serverPrimary && w.api.lease.timeline < 2 {
				p.request = Request{Kind: Switchover, Target: target}
				p.poke()
			}
		})
	}
}

// join adds a member that all know but those.
func (w *world) join(at time.Duration, name string, ignorant ...int) {
	w.at(at, func() {
		w.config = append(append([]string{}, w.config...), name)
		for n, i := range w.instances {
			i.config = w.config
			for _, not := range ignorant {
				if not == n+1 {
					i.config = w.config[:len(w.config)-1]
				}
			}
		}
		w.addInstance(name)
		w.instances[len(w.instances)-1].pod.ppm = 0
	})
}

// courses are all there are, by name.
var courses = func() map[string]course {
	all := map[string]course{}
	for _, some := range []map[string]course{someCourses, anewCourses, handOverCourses} {
		maps.Copy(all, some)
	}
	return all
}()

var someCourses = map[string]course{
	"server-does-not-start": {what: "The primary's server does not start any more. It hands over.", mode: SyncNone, gap: 12 * second,
		do: func(w *world) {
			w.at(10*second, func() { w.instances[0].brokenUntil = time.Hour; w.pod(1).crash("broken") })
		}},
	"volume-lost": {what: "The primary's volume is lost. It hands over at once.", mode: SyncNone, gap: 2 * second,
		do: func(w *world) {
			w.at(10*second, func() { w.pod(1).crash("lost"); w.instances[0].volume = &volume{kind: DataNone} })
		}},
	"primary-gone": {what: "The primary's machine is gone for good.", mode: SyncRequired, gap: 12 * second,
		do: func(w *world) { w.lose(10*second, 1) }},
	"late-bootstrap": {what: "In a new cluster the instance that is to make the system reaches the API server last.", mode: SyncNone, fresh: true,
		do: func(w *world) { w.part(0, 20*second, 1, 0) }},
	"unread-standby": {what: "The Lease is deleted and the primary's volume lost; the standby that has most has just started and shows less.",
		mode: SyncRequired, do: func(w *world) {
			w.part(8500*time.Millisecond, 11*second, 1, 2)
			w.at(10*second, func() {
				w.pod(1).crash("lost")
				w.instances[0].volume = &volume{kind: DataNone}
				w.pod(1).restart()
				w.deleteLease()
			})
			for at := 16 * second; at < 22*second; at += 300 * time.Millisecond {
				w.at(at, func() {
					if w.api.lease.holder == "" {
						w.pod(3).crash("killed")
						w.pod(3).restartAt = 0
						w.instances[2].volume.shown = len(w.instances[1].volume.wal) - 1
					}
				})
			}
		}},
	"unknown-member": {what: "A member is added that the primary, cut off from the API server and going on by promises, does not know.",
		mode: SyncNone, do: func(w *world) {
			w.part(10*second, 45*second, 1, 0)
			w.join(10*second, "db-4", 1)
		}, until: 44 * second, gap: 3 * second},
	"answer-lost": {what: "The update that names a new member is carried out, and its answer lost; the primary goes on by promises, but not without that member's.",
		mode: SyncNone, until: 44 * second, gap: 30 * second, do: func(w *world) {
			w.at(10*second, func() { w.blocks = append(w.blocks, block{nodeAPI, w.nodeOf(1), 45 * second}) })
			w.join(10*second, "db-4")
			w.part(16*second, 45*second, 1, 0)
			w.part(17*second, 45*second, 1, 4)
		}},
	"candidate-broken": {what: "The primary is lost, and the standby that has most does not start.", mode: SyncNone, gap: 11 * second,
		do: func(w *world) {
			w.at(10500*time.Millisecond, func() { w.instances[2].stuckUntil = 12 * second })
			w.at(11900*time.Millisecond, func() { w.instances[1].brokenUntil = time.Hour; w.pod(2).crash("broken") })
			w.lose(12*second, 1)
		}},
	"asks-first": {what: "The primary is lost, and the standby that sees it first lacks what the other has.", mode: SyncNone, gap: 12 * second, kept: true,
		do: func(w *world) {
			w.pod(2).ppm = 10000
			w.at(11*second, func() { w.instances[1].stuckUntil = 13 * second })
			w.at(11800*time.Millisecond, func() { w.idle = true })
			w.at(12100*time.Millisecond, func() { w.idle = false; w.pod(1).killAgent(time.Hour); w.instances[0].gone = true })
		}},
	"asked-too-early": {what: "A primary that is cut off from the API server acknowledges commits by one standby after that was asked by the other; then both are lost.",
		mode: SyncRequired, members: 4, halted: true, until: 40 * second, do: func(w *world) {
			w.lose(5*second, 4) // so nobody goes on by promises
			w.at(9500*time.Millisecond, func() { w.idle = true })
			w.part(10*second, time.Hour, 1, 0)
			w.every(20*time.Millisecond, 21*time.Millisecond, func() {
				p := w.pod(1)
				switch since := p.since(); {
				case w.now < 10*second || !p.alive:
				case since > 4900*time.Millisecond:
					w.pod(3).killAgent(time.Hour)
					p.killAgent(time.Hour)
				case since > 4600*time.Millisecond && w.idle:
					w.idle = false
					w.part(w.now, time.Hour, 1, 2)
					w.part(w.now, time.Hour, 2, 3)
				}
			})
		}},
	"asked-before-the-promise-ended": {what: "The same after the primary went on by promises, the last of which ends later than the lease.",
		mode: SyncRequired, halted: true, until: 60 * second, do: func(w *world) {
			w.part(10*second, time.Hour, 1, 0)
			w.at(29*second, func() { w.idle = true })
			w.part(30*second, time.Hour, 1, 2)
			w.every(20*time.Millisecond, 21*time.Millisecond, func() {
				p := w.pod(1)
				switch since := p.since(); {
				case w.now < 30*second || !p.alive:
				case since > 4900*time.Millisecond:
					w.pod(3).killAgent(time.Hour)
					p.killAgent(time.Hour)
				case since > 4300*time.Millisecond && w.idle:
					w.idle = false
					w.part(w.now, time.Hour, 2, 3)
				}
			})
		}},
	"forced-back": {what: "Two that followed a later timeline are lost, and the old primary is forced to take over. When one of the two is back, it must not.",
		mode: SyncRequired, members: 5, until: 100 * second, gap: 40 * second, do: func(w *world) {
			w.at(10*second, func() {
				w.pod(1).killAgent(20 * second)
				w.instances[3].stuckUntil, w.instances[4].stuckUntil = 40*second, 40*second
			})
			w.at(28*second, func() { w.pod(2).killAgent(time.Hour); w.pod(3).killAgent(42 * second); w.instances[1].gone = true })
			w.at(38*second, func() { w.forced = "db-1" })
			w.lose(69*second, 1)
		}},
	"forgotten-promise": {what: "The primary's Pod is cut off from the API server and replaced; it goes on by promises. A member is restarted again and again.",
		mode: SyncNone, do: func(w *world) {
			w.part(10*second, time.Hour, 1, 0)
			w.at(10*second, func() { w.replace(w.pod(1), 2*second) })
			for at := 19 * second; at < 40*second; at += 3 * second {
				w.at(at, func() { w.pod(2).killAgent(300 * time.Millisecond) })
			}
		}, until: 45 * second, gap: 30 * second},
	"alone": {what: "A cluster of one instance, whose Pod is cut off and replaced while it lives on.", mode: SyncNone, members: 1,
		do: func(w *world) {
			w.part(10*second, 45*second, 1, 0)
			w.at(10*second, func() { w.replace(w.pod(1), 2*second) })
		}, gap: 30 * second, until: 44 * second},
	"fenced-and-lost": {what: "The primary is fenced, and its Pod is lost. Nobody takes over: a person has stopped the writes.",
		mode: SyncNone, halted: true, do: func(w *world) {
			w.at(10*second, func() {
				w.instances[0].fencedFrom, w.instances[0].fencedUntil = w.now, time.Hour
				w.pod(1).poke()
			})
			w.at(12*second, func() { w.pod(1).killAgent(time.Hour) })
		}},
	"fenced-while-replaced": {what: "The primary's Pod is cut off from the API server and replaced while it lives on, and the instance is fenced for two seconds when the Lease has run out. The new Pod stops, but does not take the Lease.",
		mode: SyncNone, until: 60 * second, gap: 10 * second, do: func(w *world) {
			w.part(10*second, 40*second, 1, 0)
			w.at(10*second, func() { w.replace(w.pod(1), 2*second) })
			w.at(22*second, func() {
				w.instances[0].fencedFrom, w.instances[0].fencedUntil = w.now, w.now+2*second
				for _, p := range w.pods {
					p.poke()
				}
			})
		}},
	"taken-anew": {what: "The Lease is deleted while the primary's Pod is replaced. It takes the new one, and is lost with the standby that has most.",
		mode: SyncRequired, halted: true, until: 50 * second, do: func(w *world) {
			w.at(9*second, func() { w.instances[1].stuckUntil = time.Hour })
			w.at(9700*time.Millisecond, func() { w.idle = true })
			w.at(10*second, func() {
				w.pod(1).killAgent(500 * time.Millisecond)
				w.deleteLease()
			})
			w.every(20*time.Millisecond, 21*time.Millisecond, func() {
				switch {
				case w.now < 11*second || !w.pod(1).alive:
				case w.pod(1).server.state == serverPrimary && w.api.lease.position.timeline > 0:
					w.pod(1).killAgent(time.Hour)
					w.pod(3).killAgent(time.Hour)
				case w.api.lease.holder == "db-1":
					w.instances[2].stuckUntil = time.Hour
				}
			})
		}},
	"answer-of-hand-over-lost": {what: "The update that hands over is carried out, and its answer lost: the old primary must not go on.", mode: SyncNone,
		do: func(w *world) {
			w.switching("")
			w.every(500*time.Microsecond, 600*time.Microsecond, func() {
				if w.now > 10*second && w.api.lease.holder != "db-1" && len(w.blocks) == 0 {
					w.blocks = append(w.blocks, block{nodeAPI, w.nodeOf(1), w.now + 12*second})
				}
			})
		}},
	"target-lost": {what: "The target of a proper hand-over is lost before it has begun. The old primary takes over again, or the other standby.",
		mode: SyncRequired, do: func(w *world) {
			w.switching("db-2")
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if w.api.lease.holder == "db-2" && w.api.lease.pod == "" {
					w.instances[1].gone = true
					w.pod(2).killAgent(time.Hour)
				}
			})
		}},
	"target-lost-later": {what: "The target of a proper hand-over is lost when it has just begun to write.",
		mode: SyncRequired, do: func(w *world) {
			w.switching("db-2")
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if w.pod(2).server.state == serverPrimary && w.now > 10*second {
					w.instances[1].gone = true
					w.pod(2).killAgent(time.Hour)
				}
			})
		}},
	"number-raised": {what: "The same, while more standbys are to confirm than before.",
		mode: SyncRequired, members: 5, halted: true, do: func(w *world) {
			w.at(9*second, func() {
				for _, n := range []int{2, 3, 4} {
					w.instances[n].stuckUntil = time.Hour
				}
			})
			w.at(9800*time.Millisecond, func() { w.number = 2 })
			w.switching("db-2")
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if w.pod(2).server.state == serverPrimary && w.now > 10*second && w.pod(1).alive {
					for _, n := range []int{1, 2} {
						w.pod(n).killAgent(time.Hour)
					}
				}
			})
		}},
	"timings-raised": {what: "The lease's duration is raised while the primary is cut off from the API server.",
		mode: SyncNone, members: 4, gap: 30 * second, do: func(w *world) {
			w.lose(5*second, 4)
			w.part(10*second, time.Hour, 1, 0)
			w.at(10100*time.Millisecond, func() {
				for _, i := range w.instances[:1] {
					i.timings = simTimings[2]
				}
			})
			w.at(40*second, func() { w.instances[0].gone = true; w.pod(1).killAgent(time.Hour) })
		}},
}
