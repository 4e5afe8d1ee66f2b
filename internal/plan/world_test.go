package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
	"github.com/pgsteward/pgsteward/internal/testing/given"
)

// dice takes choices from a list; when it is used up the world is calm: nothing unusual happens any more, and nothing is slow.
type dice struct{ choices []byte }

func (d *dice) calm() bool { return len(d.choices) == 0 }

// roll is a number below n; 0 when all is calm.
func (d *dice) roll(n int) int {
	if d.calm() {
		return 0
	}
	c := int(d.choices[0])
	d.choices = d.choices[1:]
	return c * n / 256
}

// mishap happens once in n times, and never when all is calm.
func (d *dice) mishap(n int) bool { return !d.calm() && d.roll(n) == n-1 }

// delayed is half of all cases, and none when all is calm.
func (d *dice) delayed() bool { return !d.calm() && d.roll(2) == 1 }

// expired is after how many steps without a renewal the Lease has run out.
const expired = 4

// world is a small model of what a cluster lives in: the API server's objects, the StatefulSet controller and kubelets, and the
// agents, who elect by the Lease. What it holds is the truth; plan sees what facts() lets through.
type world struct {
	*dice
	replicas int
	keep     bool
	suspend  bool
	paused   bool
	deleting bool
	released bool
	bytes    int64
	step     int
	spec     int    // how often what the spec wants of Pods was changed
	bad      bool   // what it wants now does not run
	wish     string // for another primary
	// last is the switchover in the status.
	last *v1.SwitchoverStatus

	status string // the system identifier in the status
	holder int    // by the Lease
	idle   int    // for how many steps the holder has not renewed it
	config struct {
		bootstrap int
		stopped   bool
	}

	sets    map[int]*set
	pods    map[int]*pod
	volumes map[int]*volume
	uids    int
	systems int // how many PostgreSQL systems were ever made
}

type set struct{ deleting bool }

type pod struct {
	uid      int
	placed   bool // it has a node, and keeps its volume from going
	running  bool
	broken   bool // its container does not start
	outdated bool
	spec     int  // that it was made of
	bad      bool // that it cannot run with
	pending  bool // a parameter waits for a restart
	away     bool // its node is out
	deleting bool
	primary  bool
	standby  bool
}

type volume struct {
	bytes    int64
	bound    bool
	away     bool // it is bound to a node that is out
	deleting bool
	data     string // the system whose data it has: the truth, that only a running agent knows
	noted    string // the system in its annotation
}

func newWorld(choices []byte) *world {
	w := &world{
		dice: &dice{choices}, replicas: 3, bytes: given.GiB,
		sets: map[int]*set{}, pods: map[int]*pod{}, volumes: map[int]*volume{},
	}
	w.replicas = 1 + w.roll(5)
	w.keep = w.roll(2) == 0
	return w
}

// serving says whether the holder is a running primary.
func (w *world) serving() bool {
	p := w.pods[w.holder]
	return p != nil && p.running && p.primary && !p.deleting
}

// facts are what an operator observes: all objects, and the reports of the agents, of which some are lost.
func (w *world) facts() facts.Cluster {
	f := given.Cluster("prod-db").Replicas(w.replicas).Storage("", w.bytes).Facts()
	f.Now = f.Now.Add(time.Duration(w.step) * passes)
	f.Wish, f.Switchover = w.wish, w.last.DeepCopy()
	f.KeepVolumes, f.Deleting, f.SystemIdentifier = w.keep, w.deleting, w.status
	f.Suspend, f.Paused, f.DeletedAt = w.suspend, w.paused, f.Now
	if w.holder != 0 {
		f.Holder = naming.Instance(f.Name, w.holder)
	}
	for _, n := range slices.Sorted(maps.Keys(w.volumes)) {
		v := w.volumes[n]
		f.Volumes = append(f.Volumes, facts.Volume{
			Instance: naming.Instance(f.Name, n), Ordinal: n, Bound: v.bound, Deleting: v.deleting, Bytes: v.bytes, SystemIdentifier: v.noted,
			Node: w.nodeState(v.away),
		})
		if f.SystemIdentifier == "" {
			f.SystemIdentifier = v.noted
		}
	}
	for _, n := range slices.Sorted(maps.Keys(w.sets)) {
		i := facts.Instance{Name: naming.Instance(f.Name, n), Ordinal: n, Deleting: w.sets[n].deleting}
		if p := w.pods[n]; p != nil {
			i.Pod = w.podFacts(n, p)
			if p.running && !w.mishap(6) {
				i.Report = facts.Know(w.report(n, p))
			}
		}
		f.Instances = append(f.Instances, i)
	}
	for _, n := range slices.Sorted(maps.Keys(w.pods)) {
		if w.sets[n] == nil {
			f.OrphanPods = append(f.OrphanPods, naming.Pod(naming.Instance(f.Name, n)))
		}
	}
	if !w.keep {
		for _, v := range f.Volumes {
			f.Leftovers = append(f.Leftovers, "persistentvolumeclaim/"+naming.DataVolume(v.Instance))
		}
	}
	return f
}

// nodeState is of a node that has been out for long enough, or of one that is well.
func (w *world) nodeState(away bool) facts.Known[facts.NodeState] {
	state := facts.NodeState{Name: "node"}
	if away {
		state.NotReadySince = given.Now.Add(-time.Hour)
	}
	return facts.Know(state)
}

func (w *world) podFacts(n int, p *pod) *facts.Pod {
	known := &facts.Pod{
		Name: naming.Pod(naming.Instance("prod-db", n)), UID: fmt.Sprint(p.uid), Current: !p.outdated && p.spec == w.spec, Deleting: p.deleting,
		Outdated: p.spec != w.spec,
		Ready:    p.serves(),
	}
	if p.placed {
		known.Node, known.NodeState = "node", w.nodeState(p.away)
	}
	if p.broken || p.bad {
		known.Problem = &facts.Problem{Reason: "ContainerFailed", Message: "it does not start"}
	}
	return known
}

func (w *world) report(n int, p *pod) agentapi.Status {
	s := agentapi.Status{ConfigGeneration: 1, State: agentapi.StateWaiting, AgentDigest: given.AgentDigest}
	if p.pending {
		s.PendingRestart = []string{"shared_buffers"}
	}
	if !w.mishap(10) { // it has looked at its volume
		s.DataKnown, s.HasData = true, w.volumes[n] != nil && w.volumes[n].data != ""
	}
	switch {
	case p.primary:
		s.State, s.Role, s.Ready = agentapi.StateRunning, agentapi.RolePrimary, true
	case p.standby:
		s.State, s.Role, s.Ready = agentapi.StateRunning, agentapi.RoleStandby, true
		lag := int64(0)
		if w.mishap(8) {
			lag = 1 << 30
		}
		s.Streaming, s.LagBytes = !w.mishap(8), &lag
	}
	return s
}

// carryOut does what the operator does with a decision. It may end in the middle.
func (w *world) carryOut(f facts.Cluster, d plan.Decision) {
	if d.Frozen {
		return
	}
	if !f.Deleting {
		w.config.stopped = d.Stopped
		w.config.bootstrap, _ = naming.Ordinal(f.Name, d.Bootstrap)
		for _, m := range d.Members {
			if w.mishap(20) {
				return
			}
			w.apply(m.Ordinal, f)
		}
	}
	if w.mishap(20) {
		return
	}
	d = w.act(f, d)
	if w.mishap(20) {
		return
	}
	w.status = f.SystemIdentifier
	if d.Switchover != nil {
		w.last = d.Switchover
	}
	if d.Granted && !w.mishap(20) {
		w.wish = ""
	}
}

func (w *world) apply(n int, f facts.Cluster) {
	v := w.volumes[n]
	if v == nil {
		v = &volume{bytes: f.Storage.Bytes}
		w.volumes[n] = v
	}
	if f.SystemIdentifier != "" {
		v.noted = f.SystemIdentifier
	}
	if w.sets[n] == nil {
		w.sets[n] = &set{}
	}
}

// act carries out the decision's action, and returns the decision with what was answered.
func (w *world) act(f facts.Cluster, d plan.Decision) plan.Decision {
	ordinal := func(instance string) int { n, _ := naming.Ordinal(f.Name, instance); return n }
	switch a := d.Action.(type) {
	case plan.None, plan.MakeFinalBackup, plan.SwitchVersion: // the last two: see harmless
	case plan.Switchover:
		return w.handOver(f, d, ordinal(a.From), ordinal(a.To))
	case plan.RestartServer:
		if p := w.pods[ordinal(a.Instance)]; p != nil && fmt.Sprint(p.uid) == a.PodUID {
			if w.mishap(4) {
				return d.Declined("SwitchoverRefused", "not now", f.Now)
			}
			p.pending, p.primary, p.standby = false, false, false
		}
	case plan.ForgetPod:
		if p := w.pods[ordinal(a.Instance)]; p != nil && fmt.Sprint(p.uid) == a.PodUID {
			delete(w.pods, ordinal(a.Instance))
		}
	case plan.ReplaceInstance:
		if v := w.volumes[ordinal(a.Instance)]; v != nil {
			v.deleting = true
		}
		if p := w.pods[ordinal(a.Instance)]; p != nil && fmt.Sprint(p.uid) == a.PodUID && !w.mishap(20) {
			delete(w.pods, ordinal(a.Instance))
		}
	case plan.RemoveInstance:
		if v := w.volumes[ordinal(a.Instance)]; v != nil && a.DeleteVolume {
			v.deleting = true
		}
		if w.mishap(20) {
			return d
		}
		w.deleteSet(ordinal(a.Instance))
	case plan.RestartInstance:
		if p := w.pods[ordinal(a.Instance)]; p != nil && fmt.Sprint(p.uid) == a.PodUID {
			p.deleting = true
		}
	case plan.ReplaceVolume:
		if v := w.volumes[ordinal(a.Instance)]; v != nil {
			v.deleting = true
		}
	case plan.RemoveInstances:
		for n := range maps.Clone(w.sets) {
			w.deleteSet(n)
		}
	case plan.RemoveRest:
		for _, v := range w.volumes {
			v.deleting = v.deleting || a.DeleteVolumes
		}
	case plan.Release:
		w.released = true
	}
	return d
}

// handOver asks the primary for a switchover: it declines, or agrees and does nothing, or another one is primary.
func (w *world) handOver(f facts.Cluster, d plan.Decision, from, to int) plan.Decision {
	switch {
	case w.mishap(6):
		return d.Unanswered()
	case w.holder != from || !w.serving() || w.mishap(4):
		return d.Declined("SwitchoverRefused", "not now", f.Now)
	case w.mishap(4):
		return d
	}
	if to == 0 {
		for n, p := range w.pods {
			if p.standby && p.serves() && (to == 0 || n < to) {
				to = n
			}
		}
	}
	if p := w.pods[to]; p != nil && p.standby && p.serves() {
		w.holder, w.idle = to, 0
		w.pods[from].primary, p.standby = false, false
	}
	return d
}

// deleteSet deletes a StatefulSet in the background: its Pod follows.
func (w *world) deleteSet(n int) {
	delete(w.sets, n)
	if p := w.pods[n]; p != nil {
		p.deleting = true
	}
}

func (p *pod) serves() bool { return p.running && (p.primary || p.standby) && !p.deleting }

// passes is how long it takes from one pass to the next.
const passes = 10 * time.Second

// live lets Kubernetes and the agents take one step.
func (w *world) live() {
	w.step++
	for _, n := range slices.Sorted(maps.Keys(w.sets)) {
		w.controlSet(n)
	}
	for _, n := range slices.Sorted(maps.Keys(w.pods)) {
		w.runPod(n)
	}
	for _, n := range slices.Sorted(maps.Keys(w.volumes)) {
		if w.volumes[n].deleting && (w.pods[n] == nil || !w.pods[n].placed) {
			delete(w.volumes, n)
		}
	}
	if w.idle = min(w.idle+1, expired); w.serving() {
		w.idle = 0
	}
}

func (w *world) controlSet(n int) {
	s, p := w.sets[n], w.pods[n]
	switch {
	case s.deleting && p == nil:
		delete(w.sets, n)
	case s.deleting || w.config.stopped:
		if p != nil {
			p.deleting = true
		}
	case p == nil && !w.delayed():
		w.uids++
		w.pods[n] = &pod{uid: w.uids, spec: w.spec, bad: w.bad}
	}
}

func (w *world) runPod(n int) {
	p, v := w.pods[n], w.volumes[n]
	switch {
	case p.away: // until its node is back
	case p.deleting:
		if !w.delayed() {
			if w.holder == n && w.roll(2) == 0 {
				w.holder = 0 // released in order
			}
			delete(w.pods, n)
		}
	case w.mishap(40):
		p.running, p.primary, p.standby = false, false, false
		p.broken = w.roll(2) == 0
	case p.broken:
		if !p.outdated && !w.delayed() {
			p.broken = false
		}
	case p.bad: // for good
	case v == nil || v.away || v.deleting && !p.placed || w.delayed(): // it waits
	case !p.running:
		v.bound, p.placed, p.running = true, true, true
	default:
		w.runAgent(n, p, v)
	}
}

func (w *world) runAgent(n int, p *pod, v *volume) {
	free := w.holder == 0 || w.idle == expired
	switch {
	case v.data == "" && w.config.bootstrap == n && w.holder == 0:
		w.systems++
		v.data, v.noted = given.System, given.System
		w.holder, p.primary = n, true
	case v.data == "":
		if w.serving() {
			v.data = given.System
		}
	case w.holder == n:
		p.primary, p.standby = true, false
	case free:
		w.holder, w.idle = n, 0
		for _, other := range w.pods {
			other.primary = false // it has stopped before its lease ran out
		}
		p.primary, p.standby = true, false
	default:
		p.primary, p.standby = false, w.serving()
	}
}

// String is the world on one line, for the log of a failed run.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "replicas %d, holder %d (idle %d), keep %v, deleting %v, status %q:", w.replicas, w.holder, w.idle, w.keep, w.deleting, w.status)
	for n := 1; n <= naming.MaxOrdinal; n++ {
		s, p, v := w.sets[n], w.pods[n], w.volumes[n]
		if s != nil || p != nil || v != nil {
			fmt.Fprintf(&b, " [%d", n)
			if s != nil {
				fmt.Fprintf(&b, " set%+v", *s)
			}
			if p != nil {
				fmt.Fprintf(&b, " pod%+v", *p)
			}
			if v != nil {
				fmt.Fprintf(&b, " volume%+v", *v)
			}
			b.WriteString("]")
		}
	}
	return b.String()
}
