package election

import (
	"fmt"
	"slices"
	"time"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// pod is one Pod of an instance: its agent and its PostgreSQL.
type pod struct {
	w        *world
	instance *instance
	uid      string
	node     int
	// ppm is by how much its clock is too fast.
	ppm   int64
	alive bool
	// epoch is the agent's incarnation: what was asked by an earlier one is answered to nobody.
	epoch       int
	pausedUntil time.Duration
	server      server
	memory
}

// memory is what an agent forgets when it is restarted.
type memory struct {
	view   *record
	seenAt time.Duration
	// timings are those by which is counted, wanted1 those of the configuration.
	timings, wanted1 Timings
	// handed is what a holder has said that has stopped and cannot write the Lease.
	handed  handed
	endedAt time.Duration

	holding   bool
	renewedAt time.Duration
	// published was in the last update that was answered, pending in those sent since.
	published *record
	pending   []*record
	want      bool
	// wantFor is the holder and Pod of the record for which it was decided.
	wantFor    [2]string
	timeline   int64
	publish    **SyncSet
	publishFor int           // the run of the server that it is about; 0: any
	inFlight   time.Duration // until when an update is waited for
	campaigned int           // the version at which it was

	promise      Promise // Remaining is a moment here
	promised     map[string]time.Duration
	answers      map[string]answer
	askingSince  time.Duration
	askedAt      time.Duration
	request      Request // Stopped is a moment here
	downSince    time.Duration
	failures     int
	busyUntil    time.Duration // cloning or rewinding
	roundPlanned bool
	noHolder     time.Duration
	restartAt    time.Duration
	refused      bool
	startedAt    time.Duration
	againAt      time.Duration
	last         Decision
}

// handed is that the Lease may be taken from its holder, at that version.
type handed struct {
	holder, pod string
	version     int
}

// answer is what a member said.
type answer struct {
	member   Member
	upstream Upstream
	asked    time.Duration
}

func (w *world) newPod(i *instance) *pod {
	w.nextID++
	p := &pod{
		w: w, instance: i, uid: fmt.Sprintf("%s/%d", i.name, w.nextID), node: w.nextID, alive: true,
		ppm: w.random.Int63n(20001) - 10000,
	}
	i.pod = p
	w.pods = append(w.pods, p)
	p.restart()
	return p
}

// restart begins an agent that knows nothing.
func (p *pod) restart() {
	p.epoch++
	p.memory = memory{
		startedAt: p.clock(), endedAt: p.clock(), timings: p.instance.timings, wanted1: p.instance.timings,
		promised: map[string]time.Duration{}, answers: map[string]answer{}, askingSince: -1, downSince: -1, noHolder: -1,
	}
	epoch := p.epoch
	var round, renew, watch func()
	loop := func(most time.Duration, do func()) {
		p.w.after(p.w.between(0, most), func() {
			if p.alive && p.epoch == epoch {
				p.receive(do)
			}
		})
	}
	round = func() { p.round(); loop(1200*time.Millisecond, round) }
	renew = func() { p.renew(); loop(700*time.Millisecond, renew) }
	watch = func() {
		p.w.call(p, func() func() { lease := p.w.api.lease; return func() { p.see(lease) } })
		loop(4*time.Second, watch)
	}
	loop(100*time.Millisecond, watch)
	loop(300*time.Millisecond, round)
	loop(300*time.Millisecond, renew)
}

// clock is the Pod's own time.
func (p *pod) clock() time.Duration {
	return p.w.now + p.w.now*time.Duration(p.ppm)/1_000_000 + time.Hour
}

// until is how much true time passes until the Pod's clock shows the moment.
func (p *pod) until(moment time.Duration) time.Duration {
	return (moment - p.clock()) * 1_000_000 / time.Duration(1_000_000+p.ppm)
}

// receive has something happen in the agent: when it goes on, if it stands still.
func (p *pod) receive(do func()) {
	if !p.alive {
		return
	}
	if p.w.now < p.pausedUntil {
		epoch := p.epoch
		p.w.at(p.pausedUntil, func() {
			if p.epoch == epoch {
				p.receive(do)
			}
		})
		return
	}
	do()
}

// poke has a round begin at once.
func (p *pod) poke() {
	if p.roundPlanned || !p.alive {
		return
	}
	p.roundPlanned = true
	epoch := p.epoch
	p.w.after(p.w.between(time.Millisecond, 15*time.Millisecond), func() {
		if p.epoch == epoch {
			p.receive(func() { p.roundPlanned = false; p.round() })
		}
	})
}

// see takes note of a Lease that was read or watched.
func (p *pod) see(lease *record) {
	if p.view != nil && lease.version <= p.view.version {
		return
	}
	before := p.view
	p.view, p.seenAt = lease, p.clock()
	if p.holding && lease.holder != "" && (lease.holder != p.instance.name || lease.pod != p.uid) {
		p.holding, p.timings = false, p.wanted1
		p.guard(false)
	}
	if lease.holder == p.instance.name && (before == nil || before.holder != lease.holder) {
		if p.failures = 0; p.downSince >= 0 {
			p.downSince = p.clock()
		}
	}
	if before == nil || before.holder != lease.holder || before.pod != lease.pod {
		p.poke()
	}
}

func (p *pod) since() time.Duration { return p.clock() - p.renewedAt }

func (p *pod) fresh() bool { return p.holding && p.since() < p.timings.StopFast() }

// setTimings takes over the timings of the configuration.
func (p *pod) setTimings(wanted Timings) {
	if p.wanted1 == wanted {
		return
	}
	p.wanted1 = wanted
	if !p.holding {
		p.timings = wanted
		return
	}
	p.timings = p.timings.counting(wanted, p.w.off)
	p.held(p.renewedAt)
}

// guard stops a server that may write and must not. The watchdog only kills, but never stands still.
func (p *pod) guard(watchdog bool) {
	if !p.server.mayWrite || !watchdog && p.w.now < p.pausedUntil {
		return
	}
	must := p.timings.MustStop(p.holding, p.since())
	switch {
	case must == GoOn || watchdog && must != StopKill:
	case must == StopFast:
		p.stopFast()
	default:
		p.later(p.w.between(time.Millisecond, 200*time.Millisecond), func() { p.crash("fenced") })
	}
}

// held takes note of a right to write that counts from the moment.
func (p *pod) held(from time.Duration) {
	p.holding, p.renewedAt = true, from
	kill := p.timings.StopKill()
	for _, after := range []time.Duration{p.timings.StopFast(), p.timings.StopImmediate(), kill} {
		if after == kill && p.w.off["guard/kill"] {
			continue
		}
		p.w.after(max(0, p.until(from+after))+time.Millisecond, func() {
			p.guard(after == kill && !p.w.off["guard/watchdog"])
		})
	}
}

// facts are what the agent knows.
func (p *pod) facts() Facts {
	now, w := p.clock(), p.w
	f := Facts{
		Self: p.instance.name, Pod: p.uid, Data: p.data(), Bootstrap: w.bootstrap,
		Policy: Policy{MaximumLag: simLag, CrashBound: 3 * time.Second, CrashFailures: 2, SyncMode: w.mode, SyncNumber: w.number},
		Fenced: w.now < p.instance.fencedUntil, Forced: p.forced(),
		Server: Server{
			Running: p.server.state != serverDown, Writable: p.server.mayWrite && p.server.state == serverPrimary, Failures: p.failures,
			Stopping: p.server.state == serverStopping,
		},
		Promise: p.promiseNow(),
	}
	if w.systems > 0 {
		f.SystemIdentifier = system
	}
	f.Server.Unable = p.unable(f.Data)
	if p.downSince < 0 && p.fresh() && f.Data.Kind == DataNone && p.view != nil && p.view.holder == p.instance.name && p.w.systems > 0 {
		p.downSince = now
	}
	if p.downSince >= 0 {
		f.Server.Down = now - p.downSince
	}
	if p.server.state == serverDown {
		f.Server.Ended = now - p.endedAt
	}
	if p.request.Kind != NoRequest {
		f.Request = Request{Kind: p.request.Kind, Target: p.request.Target}
		if p.request.Stopped > 0 && p.server.state == serverDown {
			f.Request.Stopped = now - p.request.Stopped
		}
	}
	if l := p.view; l != nil {
		gone := now - p.seenAt - max(p.timings.Duration, l.duration)
		expired := gone > 0
		if p.promise.Holder != "" && !p.w.off["expired-for/promise"] {
			gone = min(gone, now-p.promise.Remaining)
		}
		f.Lease = Lease{
			Known: true, Holder: l.holder, HolderPod: l.pod, SystemIdentifier: l.system, Expired: expired, ExpiredFor: max(0, gone),
			Held: p.fresh(), Members: l.members, Position: l.position.real(), TimelineStart: postgres.LSN(l.timelineStart),
			Timeline: l.timeline, Sync: l.sync, End: l.end,
		}
		if h := p.handed; h.holder != "" && h.holder == l.holder && h.pod == l.pod && (h.version == l.version || w.off["hand-over/version"]) {
			if given := p.promiseNow(); given.Remaining <= 0 || given.Holder == h.holder && given.Pod == h.pod {
				f.Lease.Holder, f.Lease.HolderPod = p.instance.name, ""
			}
		}
		if holder := w.instance(l.holder); holder != nil {
			f.HolderFenced = w.now < holder.fencedUntil
		}
		if l.holder != "" {
			p.noHolder = -1
		} else if p.noHolder < 0 {
			p.noHolder = now
		}
		if p.noHolder >= 0 {
			f.Waited = now - p.noHolder
		}
	}
	for _, name := range p.instance.config {
		if name != p.instance.name {
			f.Members = append(f.Members, p.member(name, now))
		}
	}
	return f
}

// forced says whether somebody forces it. Who does, has seen to it that no other Pod of the instance lives.
func (p *pod) forced() bool {
	return p.w.forced == p.instance.name && !slices.ContainsFunc(p.w.pods, func(other *pod) bool {
		return other != p && other.instance == p.instance && other.alive
	})
}

func (p *pod) promiseNow() Promise {
	return Promise{Holder: p.promise.Holder, Pod: p.promise.Pod, Remaining: max(0, p.promise.Remaining-p.clock())}
}

func (p *pod) unable(d Data) string {
	if d.Kind == DataStandby && p.failures >= 2 {
		return "its PostgreSQL does not start"
	}
	return ""
}

func (p *pod) member(name string, now time.Duration) Member {
	m := Member{Name: name}
	a, ok := p.answers[name]
	if ok && now-a.asked < AnswerFresh {
		m = a.member
		m.Age = now - a.asked
	}
	if p.askingSince >= 0 {
		m.Silent = now - max(p.askingSince, a.asked)
	}
	if at, ok := p.promised[name]; ok {
		m.Promised = now-at < p.timings.StopKill()
	}
	return m
}

// data is what the agent says to have: exact only while a standby runs.
func (p *pod) data() Data {
	v := p.instance.volume
	if !v.kind.HasData() || p.w.now < p.busyUntil {
		return Data{Kind: DataNone}
	}
	d := Data{Kind: v.kind, SystemIdentifier: system, Position: v.position().real(), Newest: v.newest, Clean: v.clean}
	if v.foreign {
		d.SystemIdentifier = "42"
	}
	switch p.server.state {
	case serverDown, serverStarting:
		d.Position.LSN = postgres.LSN(min(v.shown, len(v.wal)))
		if v.clean {
			d.Position.LSN = postgres.LSN(len(v.wal) - 1) // where the shutdown checkpoint begins
		}
	case serverStandby:
		if d.Exact = p.server.exact; !d.Exact {
			d.Position.LSN = postgres.LSN(min(v.shown, len(v.wal)))
		}
	case serverPrimary, serverStopping:
	}
	return d
}

// status is what the agent answers to another.
func (p *pod) status() answer {
	v := p.instance.volume
	d := p.data()
	return answer{
		member: Member{
			Name: p.instance.name, Data: d, Streaming: p.server.source != nil, Primary: p.server.state == serverPrimary, Fenced: p.w.now < p.instance.fencedUntil, Unable: p.unable(d),
		},
		upstream: Upstream{Primary: p.server.state == serverPrimary, Timeline: v.position().timeline, Ends: v.ends()},
	}
}

// askAll asks the members for their status, and for a promise if that is sought.
func (p *pod) askAll(names []string, status, promise bool) {
	now, takeOver, duration := p.clock(), !p.holding, p.timings.Duration
	if now-p.askedAt < 200*time.Millisecond {
		return
	}
	p.askedAt = now
	for _, name := range names {
		if name == p.instance.name {
			continue
		}
		if status {
			p.w.ask(p, name, func(other *pod) func() {
				said := other.status()
				return func() {
					said.asked = now
					if now > p.answers[name].asked {
						p.answers[name] = said
						p.poke()
					}
				}
			})
		}
		if promise {
			p.w.ask(p, name, func(other *pod) func() {
				if !other.giveTo(p.instance.name, p.uid, duration, takeOver) {
					return func() {}
				}
				return func() {
					p.promised[name] = max(p.promised[name], now)
					p.goOn()
					p.poke()
				}
			})
		}
	}
}

// giveTo promises to the Pod of a holder, or not.
func (p *pod) giveTo(holder, uid string, duration time.Duration, takeOver bool) bool {
	f := Facts{Self: p.instance.name, Promise: p.promiseNow(), Young: p.clock()-p.startedAt < max(duration, p.timings.Duration)}
	if p.view != nil {
		f.Lease.Holder = p.view.holder
	}
	if mayPromise(f, holder, uid, takeOver, p.w.off) != "" {
		return false
	}
	if !p.w.off["promise/kept"] {
		p.promise = Promise{Holder: holder, Pod: uid, Remaining: p.clock() + duration}
	}
	return true
}

// goOn counts promises as a renewal, if they do.
func (p *pod) goOn() {
	if !p.holding || p.published == nil {
		return
	}
	h := Held{Since: p.since(), Members: slices.Clone(p.published.members)}
	for _, r := range p.pending {
		if !p.w.off["failsafe/pending"] {
			h.Members = append(h.Members, r.members...)
		}
	}
	ages := map[string]time.Duration{}
	for name, at := range p.promised {
		ages[name] = p.clock() - at
	}
	since, missing := h.byPromises(p.instance.name, p.timings, ages, p.w.off)
	if len(missing) == 0 && since < h.Since {
		p.w.counts["went on by promises"]++
		p.held(p.clock() - since)
	}
}
