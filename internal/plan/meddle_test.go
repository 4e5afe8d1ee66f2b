package plan_test

import (
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// meddle is what people and bad luck do.
func (w *world) meddle() {
	if w.calm() {
		w.settleDown()
		return
	}
	n := 1 + w.roll(9)
	switch w.roll(30) {
	case 0:
		w.replicas = 1 + w.roll(naming.MaxReplicas)
	case 1:
		if !w.onlyData(n) {
			w.deleteSet(n)
		}
	case 2:
		if s := w.sets[n]; s != nil && !w.onlyData(n) {
			s.deleting = true
		}
	case 3:
		if p := w.pods[n]; p != nil {
			p.deleting = true
		}
	case 4:
		if p := w.pods[n]; p != nil {
			p.outdated = true
		}
	case 5:
		w.bytes += given.GiB
	case 6:
		w.keep = !w.keep
	case 7:
		if w.status != "" {
			w.holder = 0 // somebody deletes the Lease
		}
	case 8:
		w.suspend = !w.suspend
	case 9:
		w.paused = !w.paused
	case 10:
		w.deleting = w.deleting || w.roll(4) == 0
	case 11, 12:
		w.spec, w.bad = w.spec+1, w.roll(4) == 0
	case 13:
		for _, p := range w.pods {
			p.pending = p.running
		}
	case 14:
		w.wish = naming.Instance("prod-db", n)
	case 15:
		w.wish = naming.SwitchoverBest
	case 16:
		if p := w.pods[n]; p != nil && p.placed {
			p.away, p.running, p.primary, p.standby = true, false, false, false
			w.volumes[n].away = w.roll(2) == 0
		}
	}
}

// onlyData says whether no other instance has data. Whoever deletes that one by hand, while others wait to be copied from it, must
// make it again by hand: its volume, which is kept, does not say that it alone has any.
func (w *world) onlyData(n int) bool {
	for other := range w.sets {
		if v := w.volumes[other]; other != n && v != nil && v.data != "" {
			return false
		}
	}
	return true
}

// settleDown ends what nothing but its end mends: people's experiments, and nodes that are out.
func (w *world) settleDown() {
	w.suspend, w.paused = false, false
	if w.bad {
		w.spec, w.bad = w.spec+1, false
	}
	for _, p := range w.pods {
		p.away = false
	}
	for _, v := range w.volumes {
		v.away = false
	}
}
