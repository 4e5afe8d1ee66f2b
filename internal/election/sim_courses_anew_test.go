package election

import "time"

// anewCourses are those in which somebody deletes the Lease, so that it is made anew and has forgotten everything.
var anewCourses = map[string]course{
	"lease-deleted": {what: "The Lease is deleted while all is well. The primary takes it back and goes on: nobody waits for anything.",
		mode: SyncRequired, gap: second, do: func(w *world) { w.at(10*second, w.deleteLease) }},
	"deleted-before-the-promotion": {what: "db-2 promoted to timeline 2, db-4 followed it, and both are lost. db-3 was given timeline 3, and the Lease is deleted before it has promoted. db-4 comes back: what it has of timeline 2 must not be taken for db-3's.",
		mode: SyncNone, members: 5, until: 60 * second, do: func(w *world) {
			w.at(10*second, func() {
				w.instances[2].stuckUntil, w.instances[4].stuckUntil = 30*second, 30*second
				for _, n := range []int{3, 4, 5} {
					w.pod(n).pause(9 * second) // so that db-2 takes over
				}
			})
			w.lose(10*second, 1)
			onTwo, deleted := false, false
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				switch two, three, four := w.pod(2), w.pod(3), w.pod(4); {
				case !onTwo && four.server.source == two && four.instance.volume.position().timeline == 2 && w.api.lease.position.timeline == 2:
					onTwo = true
					w.lose(w.now, 2)
					four.killAgent(20 * second)
					w.pod(5).pause(20 * second) // so that db-3 takes over
				case onTwo && !deleted && three.holding:
					deleted = true
					three.crash("killed")
					w.deleteLease()
				}
			})
		}},
	"forced-anew": {what: "db-2 promoted to timeline 2, and db-4 followed it. Both are lost, the Lease is deleted, and db-3 is forced to take over: nobody is left to say what timelines were given. Then db-4 is back.",
		mode: SyncNone, members: 4, until: 60 * second, do: func(w *world) {
			w.at(10*second, func() {
				w.instances[2].stuckUntil = 40 * second
				w.pod(3).pause(9 * second) // so that db-2 takes over
				w.pod(4).pause(9 * second)
			})
			w.lose(10*second, 1)
			w.lose(22*second, 2)
			w.at(22*second, func() {
				w.pod(4).killAgent(18 * second)
				w.deleteLease()
				w.forced = "db-3"
			})
		}},
	"forced-beside-a-writer": {what: "Of two members the primary is cut off from the API server, the Lease is deleted, and the other is forced. It had promised to the primary, which goes on, and then they cannot reach each other any more.",
		mode: SyncNone, members: 2, until: 60 * second, do: func(w *world) {
			w.instances[0].slowUntil = 40 * second // it takes long to stop
			w.part(10*second, 40*second, 1, 0)
			w.at(12*second, w.deleteLease)
			w.at(15*second, func() { w.forced = "db-2" })
			apart := false
			w.every(10*time.Millisecond, 11*time.Millisecond, func() {
				if w.now > 20*second && !apart && w.pod(1).since() < 100*time.Millisecond { // the promise was given just now
					apart = true
					w.part(w.now, 40*second, 1, 2)
				}
			})
		}},
	"empty-again": {what: "The primary is lost with its volume while no standby can take over. Its new Pod, which is empty, must not keep the first that can from doing so.",
		mode: SyncNone, until: 60 * second, do: func(w *world) {
			w.at(10*second, func() {
				w.pod(2).killAgent(20 * second)
				w.pod(3).killAgent(20 * second)
				one := w.pod(1)
				one.instance.volume = &volume{kind: DataNone}
				one.end("lost with its volume")
				w.replace(one, 2*second)
			})
		}},
	"answers-late": {what: "The answers of the API server take almost as long as the primary waits for them; then it is cut off, and takes long to stop. It may count a renewal only from when it was sent.",
		mode: SyncNone, until: 60 * second, do: func(w *world) {
			w.at(10*second, func() { w.late = map[[2]int]time.Duration{{nodeAPI, w.nodeOf(1)}: 1955 * time.Millisecond} })
			w.instances[0].slowUntil = 40 * second
			var seen *record
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if one := w.pod(1); w.now > 11*second && w.blocks == nil && one.published != seen {
					if seen != nil { // an answer came just now
						for _, other := range []int{0, 2, 3} {
							w.part(w.now, 40*second, 1, other)
						}
					}
					seen = one.published
				}
			})
		}},
}
