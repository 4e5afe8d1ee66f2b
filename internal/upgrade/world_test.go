package upgrade_test

import (
	"fmt"
	"math/rand"
	"slices"
	"time"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/testing/given"
	"github.com/pgsteward/pgsteward/internal/upgrade"
)

// server is an instance of the model: what its Pod runs, and what its agent has come to.
type server struct {
	pod, template string
	// ready says that it does what it shall in its generation; starts is when a new Pod is.
	ready  bool
	starts int
	// id and stage are those of its marker.
	id    string
	stage agentapi.SeedStage
	gone  bool
}

// world is a cluster whose agents do what the configuration says, one thing in each tick.
type world struct {
	random *rand.Rand
	now    time.Time
	spec   string
	live   string
	// replicas is what the spec wants.
	replicas int
	primary  int
	servers  []*server
	wanted   facts.Upgrade
	status   *v1.UpgradeStatus
	config   *agentapi.Upgrade
	said     *agentapi.UpgradeSwitchoverStatus
	// faults is how likely something goes wrong in a tick.
	faults float64
	// image is why Pods of the new version cannot run, image and reason; and changed that the spec names another image since.
	image    facts.Problem
	changed  bool
	blockers bool
	// refuses is how many switchovers are refused.
	refuses   int
	switchers int
	switcher  int // who was asked last
	// offline is the request under way by which the primary is stopped for the seed to be converted, and paused when that was; nil: none.
	offline *agentapi.UpgradeSwitchoverRequest
	paused  *time.Time
	log     []string
}

func (w *world) inPlace() bool { return w.config != nil && w.config.Method == agentapi.MethodInPlace }

var stages = []agentapi.SeedStage{
	agentapi.SeedPreparing, agentapi.SeedReplaying, agentapi.SeedConverting, agentapi.SeedJoining, agentapi.SeedFollowing,
}

func newWorld(seed int64, instances int) *world {
	w := &world{random: rand.New(rand.NewSource(seed)), now: given.Now, spec: "15", live: "15", replicas: instances, wanted: facts.Upgrade{Window: time.Hour, MaxPause: 5 * time.Second, Method: v1.UpgradeAutomatic}}
	for range instances {
		w.servers = append(w.servers, &server{pod: "15", template: "15", ready: true})
	}
	return w
}

func name(n int) string { return naming.Instance("prod-db", n+1) }

func (w *world) fault() bool { return w.random.Float64() < w.faults }

// wants is how many instances there shall be.
func (w *world) wants() int {
	if w.status != nil && w.status.Surge {
		return max(w.replicas, 2)
	}
	return w.replicas
}

// scale does what the rules create and scale-in of internal/plan do, while nothing of an upgrade is under way.
func (w *world) scale() {
	var exist []int
	for n, s := range w.servers {
		if !s.gone {
			exist = append(exist, n)
		}
	}
	switch {
	case len(exist) < w.wants():
		added := &server{pod: w.live, template: w.live, starts: 1 + w.random.Intn(3)}
		if n := slices.IndexFunc(w.servers, func(s *server) bool { return s.gone }); n >= 0 {
			w.servers[n] = added
			return
		}
		w.servers = append(w.servers, added)
	case len(exist) > w.wants():
		exist = slices.DeleteFunc(exist, func(n int) bool { return n == w.primary })
		w.servers[exist[len(exist)-1]].gone = true
	}
}

// facts are what the operator sees.
func (w *world) facts() facts.Cluster {
	b := given.Cluster("prod-db").Replicas(w.wants()).At(w.now).Live(w.live).Wants(w.spec).HasSystem().Upgrade(w.wanted, w.status.DeepCopy())
	for n, s := range w.servers {
		if s.gone {
			continue
		}
		var m *given.MemberBuilder
		switch {
		case n == w.primary:
			if m = given.Member(n + 1).Primary(); w.paused == nil {
				m.Ready()
			}
		case s.pod == w.live:
			m = given.Member(n + 1).Standby()
			if s.ready {
				m.Ready()
			}
		default:
			m = given.Member(n + 1).Detached()
			if w.config != nil && w.config.Detached(w.live) != name(n) {
				m = given.Member(n + 1).Standby()
			}
			if s.ready {
				m.ReadyAside()
			}
		}
		switch {
		case s.pod != "15" && w.image.Reason == v1.ReasonImagePullFailed:
			m.PodProblem(w.image.Reason, w.image.Message).Unheard(time.Second)
			if w.changed {
				m.Differs()
			}
		case s.pod != "15" && w.image.Reason != "":
			m.Says(w.image.Reason, w.image.Message)
		case s.starts > 0:
			m.Unheard(time.Second)
		default:
			m.Report(func(report *agentapi.Status) { report.Upgrade = w.report(n) })
		}
		b.With(m.Runs(s.pod).Template(s.template))
	}
	f := b.HeldBy(w.primary + 1).Facts()
	f.Images = map[string]string{"15": "old"}
	return f
}

// report is what an agent says of the upgrade.
func (w *world) report(n int) *agentapi.UpgradeStatus {
	if w.config == nil {
		return nil
	}
	s, small := w.servers[n], int64(100)
	u := &agentapi.UpgradeStatus{ID: w.config.ID}
	if n == w.switcher && s.starts == 0 {
		u.Switchover = w.said
		if u.Switchover != nil && u.Switchover.Ended != nil && u.Switchover.Ended.Equal(w.now) { // it is heard after the Lease was seen
			under := *w.said
			under.Ended, under.PauseMillis, under.Phase, under.Refused = nil, 0, agentapi.SwitchoverPreparing, ""
			u.Switchover = &under
		}
	}
	switch {
	case n == w.primary:
		u.Retired = w.config.Retire
		if w.config.Check {
			u.Preflight = &agentapi.Preflight{To: w.config.To, Method: w.config.Method}
			if w.blockers {
				u.Preflight.Findings = []agentapi.Finding{{Severity: agentapi.SeverityBlocker, Check: "LargeObjects", Message: "there are large objects"}}
			}
		}
	case w.live == w.config.From && w.config.Seed == name(n) && s.pod == w.config.To:
		u.ID = s.id
		u.Seed = &agentapi.SeedStatus{Stage: s.stage, Streaming: true, LagBytes: &small, Analyzed: true}
		if w.inPlace() {
			u.Seed.Method, u.Seed.Streaming = agentapi.MethodInPlace, s.stage == agentapi.SeedStreaming
		}
		if s.stage == agentapi.SeedFailed {
			u.Seed.Problem = &agentapi.Problem{Reason: "X", Message: "pg_upgrade failed"}
		}
	case w.live == w.config.To && (w.config.Origin == name(n) || w.config.Origin == "" && s.pod == w.config.From):
		u.Back = &agentapi.ReverseStatus{Streaming: true, LagBytes: &small}
	}
	return u
}

// pass is one of the operator's: what is stored is what the agents are told in the next.
func (w *world) pass() (upgrade.Step, facts.Cluster) {
	f := w.facts()
	step := upgrade.Next(&f)
	w.config = step.Config
	if step.Status != nil && (w.status == nil || w.status.Phase != step.Status.Phase) {
		w.log = append(w.log, string(step.Status.Phase))
	}
	w.status = step.Status
	if w.replicas == 1 && !step.Applies {
		w.scale()
	}
	for n, s := range w.servers {
		s.template = w.live
		if version, other := step.Versions[name(n)]; other {
			s.template = version
		}
		if step.Restart == name(n) && !s.gone {
			*s = server{pod: s.template, template: s.template, starts: 1 + w.random.Intn(3)}
		}
	}
	if step.Switch != nil {
		w.said = &agentapi.UpgradeSwitchoverStatus{Target: step.Switch.Target, To: step.Switch.To, Phase: agentapi.SwitchoverPreparing, Since: w.now}
		w.switchers, w.switcher = w.switchers+1, w.primary
		if w.offline = nil; step.Switch.Offline {
			w.offline = step.Switch
		}
	}
	return step, f
}

// tick lets time pass and the agents go on.
func (w *world) tick() {
	w.now = w.now.Add(10 * time.Second)
	for n, s := range w.servers {
		switch {
		case s.gone:
		case s.starts > 0:
			s.starts--
		case w.config != nil && w.config.Seed == name(n) && w.live == w.config.From && s.pod == w.config.To:
			w.seed(s)
		default:
			s.ready = true
		}
	}
	w.switchOver()
	if w.fault() && (w.status == nil || w.status.SwitchedOverAt == nil) { // a failover within the live generation
		for n, s := range w.servers {
			if n != w.primary && !s.gone && s.ready && s.pod == w.live && s.starts == 0 {
				w.primary, w.said, w.offline, w.paused = n, nil, nil, nil
				break
			}
		}
	}
}

func (w *world) seed(s *server) {
	switch {
	case s.id != w.config.ID:
		s.id, s.stage, s.ready = w.config.ID, stages[0], false
	case w.fault():
		s.stage = agentapi.SeedFailed
	case w.inPlace():
		if s.stage == agentapi.SeedPreparing {
			s.stage = agentapi.SeedStreaming
		}
	case s.stage != agentapi.SeedFailed && s.stage != agentapi.SeedFollowing:
		s.stage = stages[slices.Index(stages, s.stage)+1]
	}
	s.ready = s.stage == agentapi.SeedFollowing
}

// switchOver is what the live primary's agent does with a request.
func (w *world) switchOver() {
	if w.said == nil || w.said.Ended != nil {
		return
	}
	said, at := *w.said, w.now
	said.Ended, said.PauseMillis = &at, 600+100*int64(w.switchers)
	defer func() { w.said = &said }()
	target := -1
	for n := range w.servers {
		if name(n) == said.Target {
			target = n
		}
	}
	if w.refuses--; w.refuses >= 0 || target < 0 || w.servers[target].gone || w.fault() {
		said.Phase, said.Refused = agentapi.SwitchoverRefused, "not drained in time"
		w.offline, w.paused = nil, nil
		return
	}
	if w.offline != nil && !w.converts(w.servers[target], &said) {
		return
	}
	said.Phase = agentapi.SwitchoverHandedOver
	old := w.primary
	w.primary, w.live = target, said.To
	w.servers[old].ready, w.servers[target].ready = true, true
}

// converts is what the primary sees while it is stopped for the target to be converted, until that is done.
func (w *world) converts(target *server, said *agentapi.UpgradeSwitchoverStatus) bool {
	if w.paused == nil {
		at := w.now
		w.paused = &at
	}
	said.PauseMillis = w.now.Sub(*w.paused).Milliseconds()
	next := slices.Index(stages, target.stage) + 1 // behind Streaming comes the first of those that is not Preparing
	switch {
	case target.id != w.offline.ID || target.starts > 0 || target.stage == agentapi.SeedFailed || said.PauseMillis > w.offline.MaxPauseMillis:
		said.Phase, said.Refused = agentapi.SwitchoverRefused, "it was not converted"
		if target.stage == agentapi.SeedFailed {
			said.Refused = "pg_upgrade failed"
		}
		w.offline, w.paused = nil, nil
		return false
	case target.stage != agentapi.SeedFollowing:
		target.stage = stages[max(next, 1)]
		said.Ended = nil
		return false
	}
	w.offline, w.paused = nil, nil
	return true
}

// settled says whether nothing is left to do.
func (w *world) settled() bool {
	if w.status == nil || !w.status.Phase.Final() {
		return false
	}
	exist := 0
	for _, s := range w.servers {
		if s.gone {
			continue
		}
		if exist++; s.pod != w.live || s.starts > 0 {
			return false
		}
	}
	return w.replicas != 1 || exist == 1
}

func (w *world) String() string {
	text := fmt.Sprintf("spec %s, live %s, primary %s, status %+v\n", w.spec, w.live, name(w.primary), w.status)
	for n, s := range w.servers {
		text += fmt.Sprintf("  %s %+v\n", name(n), *s)
	}
	return text + fmt.Sprint(w.log)
}
