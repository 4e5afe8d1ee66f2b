package election

import (
	"slices"
	"time"
)

// round is one round of the agent: facts, decision, action.
func (p *pod) round() {
	w := p.w
	if p.server.state == serverPrimary || p.server.state == serverStandby { // it is seen to be there
		p.downSince, p.failures = -1, 0
	}
	if p.view != nil && p.view.holder == p.instance.name && !p.fresh() { // it is not to serve
		p.downSince, p.failures = -1, 0
	}
	p.setTimings(p.instance.timings)
	if p.request.Kind == Switchover && (p.view == nil || p.view.holder != p.instance.name) {
		p.request = Request{}
	}
	if p.request.Stopped == 0 && p.request.Kind != NoRequest && p.server.state == serverDown {
		p.request.Stopped = p.clock() - 1
	}
	f := p.facts()
	d := decide(f, w.off)
	w.counts[d.Rule]++
	if w.trace && (d.Rule != p.last.Rule || d.Target != p.last.Target || d.Upstream != p.last.Upstream) {
		w.note("%s: %s %s%s: %s: %s", p.uid, d.Action, d.Target, d.Upstream, d.Rule, d.Reason)
	}
	p.last = d
	p.gather(f, d)
	if p.handed.holder != "" && !w.off["hand-over/version"] && (p.view == nil || p.view.version != p.handed.version) {
		p.handed = handed{}
	}
	if p.request.Kind == Termination && d.Action == RunPrimary && p.server.state == serverPrimary && f.Lease.Holder == f.Self {
		w.fail("%s goes on, although its Pod is told to end", p.uid)
	}
	p.want = false
	if !w.off["guard/decision"] && p.server.mayWrite && d.Action != RunPrimary && d.Action != Stop && d.Action != HandOver && d.Action != Release {
		p.crash("runs read-write without the lease")
	}
	switch d.Action {
	case RunPrimary:
		p.runPrimary(d)
	case Bootstrap:
		p.wanted(d)
		p.initdb()
	case Campaign:
		p.campaign(d)
	case RunStandby:
		p.runStandby(d.Upstream)
	case CloneFrom:
		p.clone(d.Upstream, false)
	case Stop: // a lease that is held is kept, not taken
		if f.Lease.Holder == p.instance.name && (p.view.pod == p.uid || w.off["stop/mine"]) {
			p.wanted(d)
		}
		p.stopFast()
	case HandOver:
		p.handOver(d)
	case Release:
		p.release2()
	case Refuse, Wait:
	}
}

// again has a round begin after a while, if none is planned for then.
func (p *pod) again(wait time.Duration) {
	if p.againAt > p.w.now {
		return
	}
	p.againAt = p.w.now + wait
	epoch := p.epoch
	p.w.after(wait, func() {
		if p.epoch == epoch {
			p.poke()
		}
	})
}

// gather asks the members, if what they say matters, or is about to.
func (p *pod) gather(f Facts, d Decision) {
	late := p.view == nil || p.clock()-p.seenAt > 2*p.timings.Renew
	failing := p.holding && p.since() > p.timings.Renew+500*time.Millisecond && (p.fresh() || p.w.off["failsafe/in-time"]) &&
		p.server.mayWrite
	matters := d.Ask || d.Seek || p.request.Kind != NoRequest || f.Server.Down > 0
	if !matters && !late && !failing {
		p.askingSince = -1
		return
	}
	if p.askingSince < 0 {
		p.askingSince = p.clock()
	}
	names := slices.Clone(p.instance.config)
	if failing && p.published != nil {
		for _, r := range append(p.pending, p.published) {
			for _, name := range r.members {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	p.askAll(names, true, d.Seek || failing)
	if failing {
		p.goOn()
	}
	p.again(250 * time.Millisecond)
}

// wanted is that the decision wants the lease held. It counts only for the holder and Pod that it was made from.
func (p *pod) wanted(d Decision) {
	p.want, p.wantFor, p.timeline = true, [2]string{p.view.holder, p.view.pod}, d.Timeline
	if p.view.holder != p.instance.name || p.view.pod != p.uid {
		if p.publish = nil; d.Sync != nil {
			p.publish, p.publishFor = &d.Sync, 0
		}
	}
	if !p.fresh() || p.view.timeline < d.Timeline {
		p.renew()
	}
}

// renew is one attempt to renew the lease.
func (p *pod) renew() {
	now := p.clock()
	if !p.want || p.view == nil || now < p.inFlight ||
		p.fresh() && p.since() < p.timings.Renew && p.publish == nil && p.view.timeline >= p.timeline && p.timings == p.wanted1 {
		return
	}
	l := p.view
	if p.handed.holder != "" && p.handed.holder != l.holder {
		return
	}
	mine := l.holder == p.instance.name && l.pod == p.uid
	if !mine && p.wantFor != [2]string{l.holder, l.pod} {
		return
	}
	next := *l
	if l.holder == "" && p.holding && p.published != nil { // it was made anew, and must not forget
		next.sync = p.published.sync
		if !p.w.off["holder-forgotten/timeline"] {
			next.timeline = max(next.timeline, p.published.timeline)
		}
		for _, r := range p.pending {
			if next.sync != nil && r.sync != nil {
				both := union(*next.sync, *r.sync)
				next.sync = &both
			} else {
				next.sync = nil
			}
		}
	}
	next.holder, next.pod = p.instance.name, p.uid
	p.update(next, nil)
}

// update sends an update of the Lease that makes or keeps this Pod its holder.
func (p *pod) update(next record, won func()) {
	base, v := p.view.version, p.instance.volume
	sent := p.clock()
	next.members = p.instance.config
	if p.data().Kind.HasData() {
		next.system = system
	}
	if p.server.state == serverPrimary { // until then the last one's counts
		next.position = v.position()
		next.timelineStart = v.segments[len(v.segments)-1].start
	}
	next.timeline = max(next.timeline, p.timeline)
	next.end, next.duration = nil, p.wanted1.Duration
	carried := p.wanted1
	if p.publish != nil {
		next.sync = *p.publish
	}
	p.pending = append(p.pending, &next)
	deadline := sent + p.timings.Renew
	p.inFlight = deadline
	forced := p.forced()
	p.w.call(p, func() func() {
		before := p.w.api.lease.holder
		current, ok := p.w.api.update(base, next)
		p.w.byForce = p.w.byForce || ok && forced && before != p.instance.name
		replied := sent
		return func() {
			if p.clock() > deadline {
				return // the request was given up
			}
			p.inFlight = 0
			p.see(current)
			if !ok {
				p.poke()
				return
			}
			if p.w.off["renewal/counts-from-sent"] {
				replied = p.clock()
			}
			if p.view.holder != p.instance.name || p.view.pod != p.uid {
				return // it was taken since
			}
			p.published, p.pending, p.publish, p.handed = current, nil, nil, handed{}
			p.timings = carried.counting(p.wanted1, p.w.off)
			p.held(max(replied, p.renewedAt))
			if won != nil {
				won()
			}
			p.poke()
		}
	})
}

func (p *pod) campaign(d Decision) {
	if p.campaigned == p.view.version && p.clock() < p.inFlight || p.clock() < p.inFlight {
		return
	}
	p.campaigned = p.view.version
	p.w.counts["campaigns"]++
	p.w.note("%s campaigns: %s", p.uid, d.Reason)
	next := *p.view
	next.holder, next.pod = p.instance.name, p.uid
	forced := p.forced()
	p.timeline, p.publish = d.Timeline, nil
	if d.Sync != nil {
		p.publish, p.publishFor = &d.Sync, 0
	}
	behind := 0
	if p.view.position.timeline == p.instance.volume.position().timeline && p.view.sync == nil && p.view.holder != "" && p.instance.volume.kind == DataStandby {
		behind = p.view.position.length - len(p.instance.volume.wal)
	}
	p.update(next, func() {
		p.w.note("%s has won", p.uid)
		p.downSince, p.failures = p.clock(), 0
		if behind > simLag && !forced {
			p.w.fail("%s took over lacking %d of what the primary had published", p.uid, behind)
		}
	})
}

// runPrimary runs PostgreSQL read-write, while the lease is fresh.
func (p *pod) runPrimary(d Decision) {
	p.request.clear()
	p.wanted(d)
	if p.downSince < 0 && p.server.state != serverPrimary && p.fresh() {
		p.downSince = p.clock()
	}
	confirmed := p.view.holder == p.instance.name && p.view.pod == p.uid && p.view.timeline >= d.Timeline
	if !p.fresh() || !confirmed {
		return
	}
	first := InitialSync(p.w.mode, p.w.number, p.mayBePublished(), p.instance.name, without1(p.instance.config, p.instance.name))
	if p.w.off["sync/initial"] {
		first = nil
	}
	switch s := &p.server; s.state {
	case serverDown:
		if p.clock() >= p.restartAt {
			p.start(d.Timeline == 0, first)
		}
	case serverStandby:
		if d.Timeline > 0 && !s.promoting {
			p.promote(d.Timeline, first)
		}
	case serverPrimary:
		if p.publishFor != 0 && p.publishFor != s.epoch { // that was about another run of the server
			p.publish = nil
		}
		p.stepSync()
	case serverStarting, serverStopping:
	}
}

func (r *Request) clear() {
	if r.Kind == Switchover && r.Stopped > 0 {
		*r = Request{} // undone
	}
}

// stepSync takes the next step of the synchronous set.
func (p *pod) stepSync() {
	w, s := p.w, &p.server
	others := without1(p.instance.config, p.instance.name)
	var healthy []string
	for _, name := range others {
		if at, ok := s.heard[name]; ok && w.now-at < 3*time.Second && len(p.instance.volume.wal)-s.flushed[name] < simLag {
			healthy = append(healthy, name)
		}
	}
	state := SyncState{
		Self: p.instance.name, InUse: s.sync, Settled: p.confirmed(s.adopted), Wanted: WantedSync(w.mode, w.number, healthy, others),
	}
	state.Published = p.mayBePublished()
	step := nextSync(state, w.off)
	switch {
	case step.DoUse:
		w.note("%s uses %v (%s)", p.uid, step.Use, step.Reason)
		s.sync, s.adopted = step.Use, len(p.instance.volume.wal)
		p.release()
	case step.DoPublish:
		p.publish, p.publishFor = &step.Publish, s.epoch
		p.renew()
	}
}

// mayBePublished are the sets that may be in the Lease: that of the last update that was answered, those sent since, and the one that
// is to be sent.
func (p *pod) mayBePublished() (sets []*SyncSet) {
	if p.published != nil {
		sets = append(sets, p.published.sync)
	}
	if p.publish != nil && p.publishFor != 0 && !p.w.off["sync/pending"] {
		sets = append(sets, *p.publish)
	}
	for _, r := range p.pending {
		if !slices.ContainsFunc(sets, func(o *SyncSet) bool { return same(o, r.sync) }) && !p.w.off["sync/pending"] {
			sets = append(sets, r.sync)
		}
	}
	return sets
}

// handOver makes another the holder. From when it is sent on this Pod holds nothing, whether or not it is answered.
func (p *pod) handOver(d Decision) {
	target := d.Target
	if p.view.holder != p.instance.name || p.view.pod != p.uid {
		return
	}
	if p.clock() < p.inFlight || p.server.state != serverDown && !p.w.off["successor/stopped"] {
		return
	}
	base := p.view.version
	next := *p.view
	next.holder, next.pod, next.end = target, "", nil
	at := p.instance.volume.position()
	if !d.Clean {
		at.length = min(p.instance.volume.shown, at.length)
	}
	if d.Clean || at.real().Compare(next.position.real()) > 0 {
		next.position = at
	}
	if d.Clean || p.w.off["hand-over/end"] {
		next.end = &End{By: p.instance.name, Position: p.data().Position}
	}
	p.w.note("%s hands over to %s", p.uid, target)
	p.w.counts["hand-overs"]++
	if !p.w.off["hand-over/holds-nothing"] {
		p.holding = false
	}
	clean, has := p.last.Rule == "hand-over" && p.instance.volume.clean, len(p.instance.volume.wal)
	if to := p.w.instance(target); to != nil && p.view.sync == nil && p.view.position.timeline == to.volume.position().timeline &&
		p.view.position.length-len(to.volume.wal) > simLag {
		p.w.fail("%s hands over to %s, which lacks too much of what was published", p.uid, target)
	}
	deadline := p.clock() + p.timings.Renew
	p.inFlight = deadline
	if p.request.Kind == Termination && p.w.chance(30) { // it cannot write the Lease: the target is to take it
		p.w.ask(p, target, func(other *pod) func() {
			if other.view != nil && other.view.version == base || p.w.off["hand-over/version"] {
				other.handed = handed{holder: p.instance.name, pod: p.uid, version: base}
				other.poke()
			}
			return func() {}
		})
		return
	}
	p.w.call(p, func() func() {
		current, ok := p.w.api.update(base, next)
		if to := p.w.instance(target); ok && clean && to != nil && to.volume.kind.HasData() && len(to.volume.wal) < has {
			p.w.fail("%s has handed over to %s, which has not received everything", p.uid, target)
		}
		return func() {
			if p.clock() > deadline {
				return // the request was given up
			}
			p.inFlight = 0
			p.see(current)
			if ok {
				p.request = Request{}
			}
			p.poke()
		}
	})
}

// release2 says in the Lease that nobody writes; then the Pod ends.
func (p *pod) release2() {
	if p.clock() < p.inFlight || p.server.state != serverDown {
		return
	}
	base, next := p.view.version, *p.view
	next.pod = ""
	p.holding = false
	p.inFlight = p.clock() + p.timings.Renew
	p.w.call(p, func() func() {
		current, _ := p.w.api.update(base, next)
		return func() { p.see(current) }
	})
}

// initdb makes a new system, once the lease is held.
func (p *pod) initdb() {
	if !p.fresh() || p.w.now < p.busyUntil {
		return
	}
	p.busyUntil = p.w.now + p.w.between(100*time.Millisecond, 2*time.Second)
	epoch := p.epoch
	p.w.at(p.busyUntil, func() {
		if p.epoch != epoch || !p.alive {
			return
		}
		if p.w.systems++; p.w.systems > 1 {
			p.w.fail("%s makes a second system", p.uid)
		}
		p.w.bootstrap = ""
		p.instance.volume = &volume{kind: DataPrimary, wal: []int{0}, segments: []segment{{1, 0}}, clean: true, shown: 1}
		p.poke()
	})
}

// runStandby follows the upstream: as it is, rewound, or copied.
func (p *pod) runStandby(upstream string) {
	s := &p.server
	if upstream != "" {
		s.upstream = upstream
	}
	switch s.state {
	case serverStandby:
		if s.diverged > 3 && p.w.now >= p.busyUntil {
			p.refused = true
			p.stopFast()
			s.upstream = upstream
		}
	case serverDown:
		if p.clock() < p.restartAt {
			return
		}
		if upstream == "" {
			p.start(false, nil)
			return
		}
		p.askAll([]string{upstream}, true, false)
		a, ok := p.answers[upstream]
		if p.w.now < p.busyUntil {
			return
		}
		if !ok || p.clock()-a.asked > AnswerFresh {
			a = answer{}
		}
		p.again(250 * time.Millisecond)
		a.upstream.Refused = p.refused
		way := comeBack(p.data(), a.upstream, p.w.seed%4 != 3, p.w.off)
		switch way {
		case Follow:
			p.start(false, nil)
			p.server.upstream = upstream
		case Rewind:
			p.clone(upstream, true)
		case Reclone:
			p.clone(upstream, false)
		case WaitForUpstream:
		}
	case serverStarting, serverPrimary, serverStopping:
	}
}

// clone copies the upstream, or rewinds to it. Meanwhile there is no data, and if it fails there is none either.
func (p *pod) clone(upstream string, rewind bool) {
	w, up := p.w, p.w.instance(upstream)
	if p.server.state != serverDown {
		p.stopFast()
		return
	}
	if w.now < p.busyUntil || up == nil || up.pod.server.state != serverPrimary || w.apart(p, up.pod) {
		return
	}
	for _, other := range w.pods {
		if other.instance == p.instance && other.server.state != serverDown {
			return // the volume is in use
		}
	}
	took := w.between(500*time.Millisecond, 5*time.Second)
	w.note("%s copies from %s, rewinding %v", p.uid, up.pod.uid, rewind)
	if rewind {
		took /= 3
	}
	source, sourceEpoch, epoch := up.pod, up.pod.server.epoch, p.epoch
	p.busyUntil = w.now + took
	p.instance.volume = &volume{kind: DataNone}
	w.at(p.busyUntil, func() {
		if p.epoch != epoch || source.server.epoch != sourceEpoch || source.server.state != serverPrimary || w.apart(p, source) {
			return
		}
		from := source.instance.volume
		v := &volume{kind: DataStandby, newest: from.newest}
		v.take(from, len(from.wal))
		v.shown = len(v.wal)
		p.instance.volume = v
		p.failures, p.downSince, p.refused = 0, -1, false
		p.poke()
	})
}
