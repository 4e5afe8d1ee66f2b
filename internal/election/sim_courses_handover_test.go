package election

import "time"

// handOverCourses are those of a Lease that is handed over, and of an update whose answer is lost.
var handOverCourses = map[string]course{
	"broken-takes-nothing": {what: "The target of a proper hand-over is lost before it has begun. The old primary has everything, but does not start any more; of the others nothing reaches the API server for a while. If the broken one took the Lease, the end that it says would be void, and without that too few of the set are left for anybody to take over.",
		mode: SyncRequired, members: 4, gap: 15 * second, do: func(w *world) {
			one, three := w.instances[0], w.instances[2]
			w.switching("db-3")
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if w.api.lease.holder == "db-3" && !three.gone {
					three.gone = true
					w.pod(3).killAgent(time.Hour)
					one.brokenUntil = time.Hour
					for _, n := range []int{2, 4} {
						w.blocks = append(w.blocks, block{w.nodeOf(n), nodeAPI, w.now + 12*second})
					}
				}
				if one.brokenUntil > 0 { // its control file shows all
					one.volume.shown = len(one.volume.wal)
				}
			})
		}},
	"answer-of-hand-over-lost-in-time": {what: "The update that hands over is carried out, and its answer lost. The old primary undoes the switchover, since the target is no standby any more, while its last renewal would still count: the duration is long. It must not write by that.",
		mode: SyncNone, until: 60 * second, do: func(w *world) {
			for _, i := range w.instances {
				i.timings = simTimings[2]
			}
			w.switching("")
			w.every(500*time.Microsecond, 600*time.Microsecond, func() {
				if w.now > 10*second && w.api.lease.holder != "db-1" && len(w.blocks) == 0 {
					w.blocks = append(w.blocks, block{nodeAPI, w.nodeOf(1), w.now + 20*second})
				}
			})
		}},
	"crashed-says-no-end": {what: "The primary crashes and does not start any more. It hands over to the standby that has everything, and both are lost. The other lacks commits, but has more than the crashed one's control file showed.",
		mode: SyncRequired, halted: true, do: func(w *world) {
			one := w.instances[0]
			w.at(9500*time.Millisecond, func() { w.instances[2].stuckUntil = time.Hour })
			w.at(10*second, func() { one.brokenUntil = time.Hour; w.pod(1).crash("broken") })
			w.every(time.Millisecond, 2*time.Millisecond, func() {
				if one.brokenUntil > 0 {
					one.volume.shown = 1
				}
				if w.api.lease.holder == "db-2" && w.api.lease.pod == "" && w.pod(2).alive {
					w.pod(1).killAgent(time.Hour)
					w.pod(2).killAgent(time.Hour)
				}
			})
		}},
	"answer-of-set-lost": {what: "The update that publishes a narrower set, without db-2, is carried out, and its answer lost. When db-2 is back the primary must not use the wider one again: db-2 alone would confirm commits, and db-3, whom the Lease names, take over without them.",
		mode: SyncRequired, until: 60 * second, do: func(w *world) {
			w.at(10*second, func() { w.instances[1].stuckUntil = time.Hour })
			w.every(500*time.Microsecond, 600*time.Microsecond, func() {
				if s := w.api.lease.sync; w.now > 10*second && len(w.blocks) == 0 && s != nil && !s.has("db-2") {
					w.blocks = append(w.blocks, block{nodeAPI, w.nodeOf(1), time.Hour})
					w.instances[1].stuckUntil = 0
					w.at(w.now+2*second, func() { w.instances[2].stuckUntil = w.now + 2*second })
					w.lose(w.now+4*second, 1)
					w.lose(w.now+4*second, 2)
				}
			})
		}},
}
