package election

import (
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/postgres"
)

// documentedRules are the names in the list of doc.go.
func documentedRules(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^//\s+\d+\. ([a-z-]+):`).FindAllStringSubmatch(string(content), -1) {
		names = append(names, match[1])
	}
	return names
}

// The simulation: instances decide on what they have seen, which may be old; messages are lost, Pods are killed and come back
// as other Pods, clocks run as they like. The lease is compare-and-swap. Time is counted in ticks.
const (
	leaseTicks = 8
	// stopTicks after its last renewal was sent, an instance has stopped writing.
	stopTicks = 7
	simTicks  = 400
	members   = 3
)

type simLease struct {
	version             int
	holder, pod, system string
}

type simInstance struct {
	name, pod string
	pods      int
	data      Data
	alive     bool
	writing   bool

	seen      *simLease
	seenAt    int
	renewedAt int
	holding   bool
	answers   map[string]simAnswer
	noHolder  int
}

type simAnswer struct {
	data Data
	at   int
}

type simulation struct {
	t         *testing.T
	seed      int64
	random    *rand.Rand
	now       int
	lease     simLease
	instances []*simInstance
	bootstrap string
	systems   int
	history   []string
	// oldPods are Pods that were cut off from everything but may still write: until when.
	oldPods []simOldPod
}

type simOldPod struct {
	instance string
	until    int
}

func newSimulation(t *testing.T, seed int64) *simulation {
	t.Helper()
	s := &simulation{t: t, seed: seed, random: rand.New(rand.NewSource(seed)), lease: simLease{version: 1}, bootstrap: "db-1"}
	for i := range members {
		s.instances = append(s.instances, &simInstance{
			name: fmt.Sprintf("db-%d", i+1), pod: "pod-0", data: Data{Kind: DataNone}, answers: map[string]simAnswer{}, noHolder: -1,
		})
	}
	return s
}

func (s *simulation) chance(percent int) bool { return s.random.Intn(100) < percent }

func (s *simulation) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf("%d: ", s.now)+fmt.Sprintf(format, args...))
}

func (s *simulation) fail(what string) {
	s.t.Helper()
	for _, line := range s.history[max(0, len(s.history)-40):] {
		s.t.Log(line)
	}
	require.FailNow(s.t, what, "seed %d, tick %d", s.seed, s.now)
}

func (s *simulation) run() {
	for s.now = 1; s.now <= simTicks; s.now++ {
		s.disturb()
		for _, i := range s.random.Perm(members) {
			if instance := s.instances[i]; instance.alive {
				s.observe(instance)
				s.step(instance)
			}
		}
		s.check()
	}
}

// disturb starts, kills and cuts off Pods, and once in a while deletes the lease: as a cluster that is made again does, or by hand
// while somebody writes.
func (s *simulation) disturb() {
	for _, instance := range s.instances {
		switch {
		case !instance.alive && s.chance(20):
			instance.pods++
			instance.pod = fmt.Sprintf("pod-%d", instance.pods)
			instance.alive, instance.seen, instance.holding, instance.answers, instance.noHolder = true, nil, false, map[string]simAnswer{}, -1
		case instance.alive && s.chance(2):
			s.note("%s is killed", instance.name)
			if instance.writing && s.chance(50) {
				// its node is cut off: it writes until its lease has run out, while another Pod may start
				s.oldPods = append(s.oldPods, simOldPod{instance.name, instance.renewedAt + stopTicks})
			}
			instance.alive, instance.writing = false, false
		}
	}
	if s.lease.system != "" && s.chance(1) && (s.nobodyWrites() || s.chance(50)) {
		s.note("the lease is made anew")
		s.lease = simLease{version: s.lease.version + 1}
		s.bootstrap = ""
	}
}

func (s *simulation) nobodyWrites() bool {
	for _, instance := range s.instances {
		if instance.alive {
			return false
		}
	}
	for _, old := range s.oldPods {
		if old.until >= s.now {
			return false
		}
	}
	return true
}

// observe brings news of lease and members, or not.
func (s *simulation) observe(instance *simInstance) {
	if s.chance(70) && (instance.seen == nil || instance.seen.version != s.lease.version) {
		lease := s.lease
		instance.seen, instance.seenAt = &lease, s.now
		if lease.holder != "" && (lease.holder != instance.name || lease.pod != instance.pod) {
			instance.holding = false
		}
	}
	for _, other := range s.instances {
		if other != instance && other.alive && s.chance(60) {
			instance.answers[other.name] = simAnswer{other.data, s.now}
		}
	}
	if instance.holding && s.now-instance.renewedAt >= stopTicks || !instance.holding {
		instance.writing = false // the guard, which does not depend on decisions
	}
}

func (s *simulation) facts(instance *simInstance) Facts {
	f := Facts{Self: instance.name, Pod: instance.pod, Data: instance.data, Bootstrap: s.bootstrap}
	if instance.seen != nil {
		f.Lease = Lease{
			Known: true, Holder: instance.seen.holder, HolderPod: instance.seen.pod, SystemIdentifier: instance.seen.system,
			Expired: s.now-instance.seenAt > leaseTicks, Held: s.fresh(instance),
		}
	}
	for _, other := range s.instances {
		if other == instance {
			continue
		}
		member := Member{Name: other.name}
		if answer, ok := instance.answers[other.name]; ok && s.now-answer.at < 5 {
			member.Data, member.Promised = answer.data, true // nobody goes on by promises here
		}
		f.Members = append(f.Members, member)
	}
	return f
}

func (s *simulation) step(instance *simInstance) {
	decision := Decide(s.facts(instance))
	switch decision.Action {
	case RunPrimary:
		if s.renew(instance) {
			s.write(instance)
		}
	case Bootstrap:
		if s.renew(instance) && s.chance(70) {
			s.initdb(instance)
		}
	case Campaign:
		s.renew(instance)
	case RunStandby, CloneFrom:
		instance.writing = false
		s.follow(instance, decision.Upstream)
	case Wait, Refuse:
		instance.writing = false
	}
}

// renew is compare-and-swap on what was seen; the request or its answer may be lost.
func (s *simulation) renew(instance *simInstance) bool {
	seen := instance.seen
	fresh := s.fresh(instance)
	if s.chance(20) || seen.version != s.lease.version {
		return fresh
	}
	if seen.holder != "" && seen.holder != instance.name {
		return false
	}
	if seen.holder != instance.name {
		s.note("%s takes the lease", instance.name)
	}
	system := seen.system
	if instance.data.Kind.HasData() {
		system = instance.data.SystemIdentifier
	}
	s.lease = simLease{version: seen.version + 1, holder: instance.name, pod: instance.pod, system: system}
	if s.chance(10) {
		return fresh // the answer is lost
	}
	lease := s.lease
	instance.seen, instance.seenAt, instance.holding, instance.renewedAt = &lease, s.now, true, s.now
	return true
}

// fresh says whether the instance has renewed the lease so recently that it may write.
func (s *simulation) fresh(instance *simInstance) bool {
	return instance.holding && s.now-instance.renewedAt < stopTicks
}

func (s *simulation) write(instance *simInstance) {
	if instance.data.Kind == DataStandby {
		instance.data.Kind = DataPrimary
		instance.data.Position.Timeline++
		s.note("%s is promoted", instance.name)
	}
	instance.writing = true
	instance.data.Position.LSN += postgres.LSN(s.random.Intn(10))
}

func (s *simulation) initdb(instance *simInstance) {
	for _, other := range s.instances {
		if other.data.Kind.HasData() {
			s.fail(instance.name + " makes a new system although " + other.name + " has data")
		}
	}
	s.systems++
	s.note("%s makes system %d", instance.name, s.systems)
	instance.data = Data{Kind: DataPrimary, SystemIdentifier: fmt.Sprint(s.systems), Position: postgres.Position{Timeline: 1, LSN: 1}}
}

func (s *simulation) follow(instance *simInstance, upstream string) {
	for _, other := range s.instances {
		if other.name == upstream && other.alive && other.writing && s.chance(60) {
			instance.data = other.data
			instance.data.Kind = DataStandby
		}
	}
}

func (s *simulation) check() {
	var writers []string
	for _, instance := range s.instances {
		if instance.alive && instance.writing {
			writers = append(writers, instance.name+" "+instance.pod)
		}
	}
	for _, old := range s.oldPods {
		if old.until > s.now {
			writers = append(writers, old.instance+" (cut off)")
		}
	}
	if len(writers) > 1 {
		s.fail(fmt.Sprint("more than one writes: ", writers))
	}
	if s.systems > 1 {
		s.fail("a second system was made")
	}
}

// TestSimulation runs many clusters; a seed that fails is printed and can be run alone.
func TestSimulation(t *testing.T) {
	t.Parallel()
	wrote := 0
	for seed := range int64(2000) {
		s := newSimulation(t, seed)
		s.run()
		if s.systems == 1 {
			wrote++
		}
	}
	require.Greater(t, wrote, 1900, "most clusters come to life, or the simulation shows nothing")
}
