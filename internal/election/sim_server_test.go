package election

import (
	"slices"
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// volume is a data directory: its WAL, as the numbers of its entries, and on which timeline each was written.
type volume struct {
	kind     DataKind
	wal      []int
	segments []segment
	newest   int64
	clean    bool
	// foreign: it is of another PostgreSQL system.
	foreign bool
	// shown is how much of the WAL the control file shows while no server runs.
	shown int
}

type segment struct {
	timeline int64
	start    int
}

func (v *volume) has(position, id int) bool { return position < len(v.wal) && v.wal[position] == id }

func (v *volume) position() position {
	if len(v.segments) == 0 {
		return position{}
	}
	return position{v.segments[len(v.segments)-1].timeline, len(v.wal)}
}

// append writes an entry; a timeline that is not 0 begins with it.
func (v *volume) append(w *world, timeline int64) (position, id int) {
	w.nextID++
	if timeline != 0 {
		v.segments = append(slices.Clone(v.segments), segment{timeline, len(v.wal)})
		v.newest = max(v.newest, timeline)
	}
	v.wal = append(v.wal, w.nextID)
	return len(v.wal) - 1, w.nextID
}

// ends says where each earlier timeline was left.
func (v *volume) ends() map[int64]postgres.LSN {
	ends := map[int64]postgres.LSN{}
	for i := 1; i < len(v.segments); i++ {
		ends[v.segments[i-1].timeline] = postgres.LSN(v.segments[i].start)
	}
	return ends
}

// take copies WAL of another volume up to a length.
func (v *volume) take(from *volume, length int) {
	own := min(len(v.wal), length)
	v.wal = append(v.wal[:own], from.wal[own:length]...)
	if len(v.segments) > 0 && v.position().timeline == from.position().timeline {
		return
	}
	v.segments = nil
	for _, s := range from.segments {
		if s.start < length {
			v.segments = append(v.segments, s)
			v.newest = max(v.newest, s.timeline)
		}
	}
}

// canFollow is PostgreSQL's own test: is the end of what is here part of the history there, going by the numbers?
func (v *volume) canFollow(from *volume) bool {
	own, there := v.position(), from.position()
	if own.timeline == there.timeline {
		return own.length <= there.length
	}
	end, ok := from.ends()[own.timeline]
	return ok && postgres.LSN(own.length) <= end
}

type serverState int

const (
	serverDown serverState = iota
	serverStarting
	serverStandby
	serverPrimary
	serverStopping
)

// server is a Pod's PostgreSQL.
type server struct {
	state serverState
	// mayWrite from before it is told to promote, or is started read-write, until its last process has ended.
	mayWrite  bool
	epoch     int
	promoting bool
	// standby
	upstream string
	source   *pod // whom it streams from
	exact    bool
	diverged int
	// primary
	sync    *SyncSet
	adopted int // what was written when sync came into force
	waiting []commit
	flushed map[string]int
	heard   map[string]time.Duration
}

func (s *server) sends() bool { return s.state == serverPrimary || s.state == serverStopping }

// start starts PostgreSQL, read-write or as a standby.
func (p *pod) start(writable bool, sync *SyncSet) {
	w, v := p.w, p.instance.volume
	for _, other := range w.pods {
		if other != p && other.instance == p.instance && other.server.state != serverDown && !writable {
			return // the volume is in use; who starts read-write is not kept from it, so that the protocol has to
		}
	}
	s := server{state: serverStarting, epoch: p.server.epoch + 1, mayWrite: writable, sync: sync}
	s.flushed, s.heard = map[string]int{}, map[string]time.Duration{}
	p.server = s
	w.note("%s starts PostgreSQL, writable %v", p.uid, writable)
	v.kind, v.clean = DataStandby, false
	if writable {
		v.kind = DataPrimary
		w.checkWriter(p)
	}
	took := w.between(50*time.Millisecond, time.Second)
	if w.chance(10) {
		took = w.between(time.Second, 6*time.Second)
	}
	if w.now < p.instance.brokenUntil {
		p.later(took, func() { p.crash("does not start") })
		return
	}
	p.later(took, func() {
		if writable {
			p.serve()
			return
		}
		p.server.state = serverStandby
		p.later(w.between(0, 2*time.Second), func() { p.server.exact = true })
		p.later(w.between(0, 100*time.Millisecond), p.stream)
		p.poke()
	})
}

// later does something with the server unless it has ended by then.
func (p *pod) later(wait time.Duration, do func()) {
	epoch := p.server.epoch
	p.w.after(wait, func() {
		if p.server.epoch == epoch && p.server.state != serverDown {
			do()
		}
	})
}

func (p *pod) serve() {
	s, v := &p.server, p.instance.volume
	s.state, s.promoting, s.source = serverPrimary, false, nil
	v.kind = DataPrimary
	s.adopted = len(v.wal)
	p.w.note("%s serves on timeline %d from %d, sync %v", p.uid, v.position().timeline, len(v.wal), s.sync)
	p.w.checkWriter(p)
	p.w.checkHistory(p)
	if i := p.instance; v.foreign || p.w.now < i.fencedUntil && p.w.now > i.fencedFrom+5*time.Second {
		p.w.fail("%s serves, but is fenced or has foreign data", p.uid)
	}
	if p.w.forced == p.instance.name {
		p.w.forced = ""
	}
	// The agent sees it a while later, clients at once.
	p.later(p.w.between(0, 30*time.Millisecond), p.w.write)
	p.later(p.w.between(0, 250*time.Millisecond), p.poke)
	if p.w.now < p.instance.flakyUntil {
		p.later(p.w.between(time.Millisecond, 200*time.Millisecond), func() { p.crash("lives for a moment only") })
	}
}

// promote promotes to the timeline.
func (p *pod) promote(timeline int64, sync *SyncSet) {
	s, v := &p.server, p.instance.volume
	s.mayWrite, s.promoting, s.sync = true, true, sync
	p.w.checkWriter(p)
	if p.w.chance(10) { // the history file is there before anything else
		v.newest = max(v.newest, timeline)
	}
	p.later(p.w.between(20*time.Millisecond, 400*time.Millisecond), func() {
		v.append(p.w, timeline)
		p.serve()
	})
}

// crash ends the server at once.
func (p *pod) crash(why string) {
	s, v := &p.server, p.instance.volume
	if s.state == serverDown {
		return
	}
	p.w.note("%s: PostgreSQL ends: %s", p.uid, why)
	v.shown = max(0, len(v.wal)-p.w.random.Intn(10))
	v.clean = false
	*s = server{epoch: s.epoch + 1}
	p.endedAt = p.clock()
	if p.failures++; p.failures > 1 {
		p.restartAt = p.clock() + time.Second
	}
	if p.downSince < 0 {
		p.downSince = p.clock()
	}
	p.poke()
}

// stopFast shuts the server down properly: whoever streams receives everything.
func (p *pod) stopFast() {
	s, v := &p.server, p.instance.volume
	if s.state == serverDown || s.state == serverStopping {
		return
	}
	primary := s.state == serverPrimary
	s.state = serverStopping
	took := p.w.between(20*time.Millisecond, 300*time.Millisecond)
	if p.w.now < p.instance.slowUntil {
		took = p.w.between(time.Second, 20*time.Second)
	}
	p.later(took, func() {
		if primary {
			v.append(p.w, 0)
			for _, other := range p.w.pods {
				if other.server.source == p && p.w.chance(80) && p.w.now >= other.instance.stuckUntil {
					other.pull(len(v.wal))
				}
			}
		}
		p.w.note("%s: PostgreSQL has stopped", p.uid)
		v.clean = primary
		v.shown = len(v.wal)
		if !primary {
			v.shown = max(0, len(v.wal)-p.w.random.Intn(10))
		}
		*s = server{epoch: s.epoch + 1}
		p.endedAt = p.clock()
		p.poke()
	})
}

// stream is the walreceiver: it connects, and fetches from time to time.
func (p *pod) stream() {
	s, w := &p.server, p.w
	pause := w.between(20*time.Millisecond, 150*time.Millisecond)
	defer func() {
		p.later(pause, p.stream)
	}()
	if s.state != serverStandby || w.now < p.instance.stuckUntil {
		return
	}
	// A primary that is being shut down goes on sending until all have its last record.
	if s.source != nil && (!s.source.server.sends() || s.source.instance.name != s.upstream || w.apart(p, s.source)) {
		s.source = nil
	}
	if s.source == nil {
		pause = w.between(100*time.Millisecond, 600*time.Millisecond)
		up := w.instance(s.upstream)
		if up == nil || up == p.instance || up.pod.server.state != serverPrimary || w.apart(p, up.pod) {
			return
		}
		if p.instance.volume.foreign || !p.instance.volume.canFollow(up.volume) {
			s.diverged++
			p.poke()
			return
		}
		s.source = up.pod
	}
	if w.now < p.instance.slowUntil {
		pause = w.between(200*time.Millisecond, 2*time.Second)
	}
	there := len(s.source.instance.volume.wal)
	if own := len(p.instance.volume.wal); w.chance(20) && there > own {
		there = own + w.random.Intn(there-own)
	}
	p.pull(there)
}

func (w *world) apart(a, b *pod) bool { return w.blocked(a.node, b.node) || w.blocked(b.node, a.node) }

// pull receives and flushes up to a length, and says so.
func (p *pod) pull(length int) {
	s, v := &p.server, p.instance.volume
	source := s.source
	from := source.instance.volume
	if length > len(v.wal) || from.position().timeline != v.position().timeline && length >= len(v.wal) {
		for i, id := range v.wal {
			if from.wal[i] != id {
				p.w.fail("%s streams from %s, but has another entry %d", p.uid, source.uid, i)
			}
		}
		v.take(from, length)
	}
	s.exact, s.diverged = true, 0
	flushed, epoch := len(v.wal), source.server.epoch
	p.w.after(p.w.between(time.Millisecond, 30*time.Millisecond), func() {
		if source.server.epoch == epoch && source.server.state == serverPrimary && !p.w.blocked(p.node, source.node) {
			source.server.flushed[p.instance.name] = max(flushed, source.server.flushed[p.instance.name])
			source.server.heard[p.instance.name] = p.w.now
			source.release()
		}
	})
}

// commit writes one and acknowledges it at once, or when the set has it.
func (p *pod) commit() {
	at, id := p.instance.volume.append(p.w, 0)
	p.server.waiting = append(p.server.waiting, commit{position: at, id: id})
	p.release()
}

// release acknowledges what enough have.
func (p *pod) release() {
	s := &p.server
	for len(s.waiting) > 0 && p.confirmed(s.waiting[0].position+1) {
		c := s.waiting[0]
		s.waiting = s.waiting[1:]
		p.w.acknowledge(p, c.position, c.id)
	}
}

func (p *pod) confirmed(length int) bool {
	if p.server.sync == nil {
		return true
	}
	have := 0
	for _, name := range p.server.sync.Names {
		if p.server.flushed[name] >= length {
			have++
		}
	}
	return have >= p.server.sync.Number
}
