package election

import (
	"container/heap"
	"fmt"
	"math/rand"
	"slices"
	"time"
)

// The simulation: a cluster in which everything that can go wrong does, decided upon by the functions of this package and
// nothing else. What is modelled is what the agent does around them: it watches and renews the Lease, guards what it holds, asks
// and promises, starts, stops, promotes and clones PostgreSQL, which replicates. Time is continuous: events at moments of true
// time, while each Pod has a clock of its own.

const (
	simFaults = 45 * time.Second // from then on nothing goes wrong any more
	simBound  = 60 * time.Second // within this time after it there is a primary, and everybody follows
	simLag    = 20               // bytes that a candidate may lack; a commit is one byte
)

// simTimings are the defaults, and what they may be changed to.
var simTimings = []Timings{
	{Duration: 8 * time.Second, Deadline: 5 * time.Second, Renew: 2 * time.Second},
	{Duration: 5 * time.Second, Deadline: 3 * time.Second, Renew: time.Second},
	{Duration: 14 * time.Second, Deadline: 10 * time.Second, Renew: 3 * time.Second},
}

// event is something that happens at a moment of true time.
type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// violation ends a run.
type violation struct{ what string }

type world struct {
	seed   int64
	random *rand.Rand
	off    without
	trace  bool
	notes  []string

	now    time.Duration
	queue  events
	seq    int
	nextID int

	api       *api
	instances []*instance
	pods      []*pod // every Pod that may still do something, zombies too
	config    []string
	timings   Timings
	mode      SyncMode
	number    int
	bootstrap string
	systems   int
	// forced is whom somebody forces to take over.
	forced  string
	byForce bool // such a one has taken the Lease, and nobody has served since

	// weather
	blocks                []block
	late                  map[[2]int]time.Duration // what a way takes longer
	slowUntil, lossyUntil time.Duration
	volumeLost            bool
	idle                  bool // nobody writes
	added                 int

	acked    []commit
	counts   map[string]int
	lastGood time.Duration // when a primary served last
	gapSince time.Duration
	longest  time.Duration
}

// commit is one that was acknowledged to a client.
type commit struct {
	position, id int
	// promised: it must never be lost.
	promised bool
	by       string
}

// instance is a StatefulSet of one Pod, and its volume.
type instance struct {
	name        string
	volume      *volume
	pod         *pod
	removed     bool
	fencedFrom  time.Duration
	fencedUntil time.Duration
	brokenUntil time.Duration
	slowUntil   time.Duration
	flakyUntil  time.Duration
	// stuckUntil: it answers, but receives no WAL.
	stuckUntil time.Duration
	// gone: it is lost for good, with its volume.
	gone    bool
	config  []string
	timings Timings
}

func newWorld(seed int64, off without) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewSource(seed)), off: off, counts: map[string]int{}, number: 1,
	}
	w.timings = simTimings[0]
	w.api = &api{w: w, lease: &record{version: 1}}
	members := 3
	if seed%2 == 1 {
		members = 5
	}
	w.mode = []SyncMode{SyncNone, SyncRequired, SyncPreferred, SyncRequired}[w.random.Intn(4)]
	if members == 5 && w.chance(50) {
		w.number = 2
	}
	for i := range members {
		w.config = append(w.config, fmt.Sprintf("db-%d", i+1))
	}
	w.bootstrap = "db-1"
	for _, name := range w.config {
		w.addInstance(name)
	}
	if w.chance(80) {
		w.ready()
	}
	w.every(100*time.Millisecond, 300*time.Millisecond, w.write)
	return w
}

func (w *world) addInstance(name string) {
	i := &instance{name: name, volume: &volume{kind: DataNone}, config: w.config, timings: w.timings}
	w.instances = append(w.instances, i)
	w.newPod(i)
}

// ready lets the run begin with a cluster that has its data already.
func (w *world) ready() {
	w.systems = 1
	w.bootstrap = ""
	first := w.instances[0]
	w.api.lease = &record{
		version: 2, holder: first.name, pod: first.pod.uid, system: system, members: w.config, timeline: 1,
		position: position{1, 1}, duration: w.timings.Duration,
	}
	for _, i := range w.instances {
		i.volume = &volume{kind: DataStandby, wal: []int{0}, segments: []segment{{1, 0}}}
	}
	first.volume.kind = DataPrimary
}

func (w *world) chance(percent int) bool { return w.random.Intn(100) < percent }

func (w *world) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(w.random.Int63n(int64(most-least)))
}

func (w *world) at(moment time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, &event{max(moment, w.now), w.seq, do})
}

func (w *world) after(wait time.Duration, do func()) { w.at(w.now+wait, do) }

// every does something again and again, with pauses between least and most.
func (w *world) every(least, most time.Duration, do func()) {
	var again func()
	again = func() {
		do()
		w.after(w.between(least, most), again)
	}
	w.after(w.between(0, most), again)
}

func (w *world) note(format string, args ...any) {
	if w.trace {
		w.notes = append(w.notes, fmt.Sprintf("%9.3f  ", w.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	panic(violation{fmt.Sprintf("%.3f: ", w.now.Seconds()) + fmt.Sprintf(format, args...)})
}

// run runs the whole and returns what was violated, or nothing.
func (w *world) run() (failure string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			failure = p.what
			w.note("VIOLATION: %s", failure)
			w.end()
		default:
			if len(w.off) == 0 {
				panic(p)
			}
			failure = fmt.Sprint("the agent cannot act on it: ", p)
		}
	}()
	w.planFaults()
	w.at(simFaults, w.heal)
	steady := 0
	for w.queue.Len() > 0 {
		next, _ := heap.Pop(&w.queue).(*event)
		w.now = next.at
		if w.now >= simFaults+simBound {
			w.end()
			return w.unwell()
		}
		next.do()
		if w.now > simFaults+time.Second && w.seq%64 == 0 {
			if w.unwell() != "" {
				steady = 0
			} else if steady++; steady > 8 {
				break
			}
		}
	}
	return ""
}

// end notes what everybody thinks at the end.
func (w *world) end() {
	for _, p := range w.pods {
		v := p.instance.volume
		w.note("%s alive %v server %d writes %v; data kind %d at %v, clean %v; view %+v; sync %v; decision %+v", p.uid, p.alive, p.server.state,
			p.server.mayWrite, v.kind, v.position(), v.clean, p.view, w.api.lease.sync, p.last)
		if p.alive {
			w.note("%s members %+v, promise %+v", p.uid, p.facts().Members, p.facts().Promise)
		}
	}
}

// runUntil runs what is planned, and returns what was violated.
func (w *world) runUntil(end time.Duration) (failure string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			failure = p.what
		default:
			if len(w.off) == 0 {
				panic(p)
			}
			failure = fmt.Sprint("the agent cannot act on it: ", p)
		}
	}()
	for w.queue.Len() > 0 && w.now < end {
		next, _ := heap.Pop(&w.queue).(*event)
		w.now = next.at
		next.do()
	}
	return ""
}

// unwell says what is wrong with a cluster that nothing is done to any more; empty: nothing.
func (w *world) unwell() string {
	var primary *pod
	for _, p := range w.pods {
		if p.server.state == serverPrimary {
			primary = p
		}
	}
	if primary == nil {
		return "there is no primary after the bound"
	}
	standbys := 0
	for _, i := range w.instances {
		if i.removed || i.gone || i == primary.instance {
			continue
		}
		standbys++
		if i.pod.server.state != serverStandby || i.pod.server.source != primary {
			return fmt.Sprintf("%s does not follow %s after the bound", i.name, primary.instance.name)
		}
	}
	waits := w.mode == SyncRequired && standbys < w.number // as it must
	if w.now-w.lastGood > 5*time.Second && !waits {
		return "no commit is acknowledged after the bound"
	}
	return ""
}

// write lets clients commit on whatever takes it.
func (w *world) write() {
	if w.idle {
		return
	}
	for _, p := range w.pods {
		if p.server.state == serverPrimary {
			p.commit()
		}
	}
}

// acknowledge is that a client has got an answer.
func (w *world) acknowledge(p *pod, position, id int) {
	w.acked = append(w.acked, commit{position: position, id: id, promised: w.api.lease.sync != nil, by: p.uid})
	if w.gapSince > 0 || w.lastGood > 0 {
		w.longest = max(w.longest, w.now-w.lastGood)
	}
	w.lastGood = w.now
}

// checkWriter is called when p begins to be able to write.
func (w *world) checkWriter(p *pod) {
	for _, other := range w.pods {
		if other != p && other.server.mayWrite {
			w.fail("two may write: %s and %s", p.uid, other.uid)
		}
	}
}

// checkHistory is called when p serves: every commit that was promised is there.
func (w *world) checkHistory(p *pod) {
	kept := w.acked[:0]
	lost := 0
	for _, c := range w.acked {
		switch {
		case p.instance.volume.has(c.position, c.id):
			kept = append(kept, c)
		case c.promised && !w.byForce:
			w.fail("%s is primary without commit %d at %d, which %s acknowledged in synchronous mode", p.uid, c.id, c.position, c.by)
		default:
			lost++
		}
	}
	w.acked, w.byForce = kept, false
	if lost > 0 {
		w.counts["lost in asynchronous mode"] += lost
		w.note("%d acknowledged commits are lost with %s", lost, p.uid)
	}
}

func (w *world) instance(name string) *instance {
	for _, i := range w.instances {
		if i.name == name && !i.removed {
			return i
		}
	}
	return nil
}

func without1(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}
