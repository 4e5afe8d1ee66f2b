package upgrade_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/agentapi"
	"github.com/pgsteward/pgsteward/internal/facts"
	"github.com/pgsteward/pgsteward/internal/upgrade"
)

// run lets the world go on until it is settled, with what somebody does in between, and asserts in each pass what always holds.
func run(t *testing.T, w *world, ticks int, meddle func(tick int)) {
	t.Helper()
	for tick := range ticks {
		if meddle != nil {
			meddle(tick)
		}
		before := w.status.DeepCopy()
		step, f := w.pass()
		again := upgrade.Next(&f)
		require.True(t, reflect.DeepEqual(step, again), "deciding twice about the same")
		require.False(t, f.Holder == step.Restart, "the primary's Pod is made anew\n%s", w)
		require.False(t, step.Restart != "" && step.Switch != nil, "two things at once\n%s", w)
		require.True(t, step.Versions[f.Holder] == "", "the primary is told another version\n%s", w)
		if step.Switch != nil {
			require.Equal(t, before.ID, step.Switch.ID)
			require.Contains(t, []string{before.Seed, before.Origin}, step.Switch.Target)
		}
		if w.settled() && w.spec == w.live {
			return
		}
		w.tick()
	}
	require.Fail(t, "it does not come to an end", "%s", w)
}

// TestUpgrade: with two, three and five instances nothing goes wrong.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, instances)
			w.spec = "17"
			run(t, w, 1000, nil)
			assert.Equal(t, v1.UpgradeDone, w.status.Phase)
			assert.Equal(t, "17", w.live)
			assert.Equal(t, "700ms", w.status.LastWritePause)
			assert.Equal(t, 1, w.switchers)
			for _, s := range w.servers {
				assert.Equal(t, "17", s.pod)
			}
			wanted := []string{"Preflight", "PrepareSource", "SeedStandby", "CatchUp", "RollStandbys", "Switchover", "Observe", "Retire", "Done"}
			if instances == 2 {
				wanted = slices.DeleteFunc(wanted, func(phase string) bool { return phase == "RollStandbys" })
			}
			assert.Equal(t, wanted, w.log)
		})
	}
}

// TestSurge: one instance gets a second one once nothing speaks against the upgrade, and is alone again afterwards, whatever came of it.
func TestSurge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meddle func(w *world)
		end    v1.UpgradePhase
		live   string
	}{
		"goes through": {end: v1.UpgradeDone, live: "17", meddle: func(*world) {}},
		"is called off": {end: v1.UpgradeRolledBack, live: "15", meddle: func(w *world) {
			if w.status != nil && w.status.Phase == v1.UpgradeSeedStandby {
				w.spec = "15"
			}
		}},
		"goes back": {end: v1.UpgradeRolledBack, live: "15", meddle: func(w *world) {
			if w.status != nil && w.status.Phase == v1.UpgradeObserve {
				w.spec = "15"
			}
		}},
		"fails, and is not wanted any more": {end: v1.UpgradeRolledBack, live: "15", meddle: func(w *world) {
			if len(w.servers) > 1 && w.servers[1].stage == agentapi.SeedConverting {
				w.servers[1].stage = agentapi.SeedFailed
			}
			if w.status != nil && w.status.Phase == v1.UpgradeFailed {
				w.spec = "15"
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 1)
			w.spec, w.blockers = "17", true
			run(t, w, 1000, func(tick int) {
				if tick == 20 {
					assert.Len(t, w.servers, 1, "nothing is added while something speaks against the upgrade")
					w.blockers = false
				}
				test.meddle(w)
			})
			assert.Equal(t, test.end, w.status.Phase)
			assert.Equal(t, test.live, w.live)
			assert.Len(t, w.servers, 2)
			assert.False(t, w.status.Surge)
		})
	}
}

// TestInPlace: the seed streams until the switchover, is converted while the primary is stopped, and everything else follows; there is no
// way back, whatever the window.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, instances)
			w.spec, w.wanted.Method, w.wanted.Manual = "17", v1.UpgradeInPlace, true
			waited, told := 0, ""
			run(t, w, 1000, func(int) {
				switch {
				case w.status != nil && w.status.Phase == v1.UpgradeAwaitSwitchover:
					waited++
					w.wanted.Approved = waited > 20
					for n, s := range w.servers {
						assert.Equal(t, w.status.Seed == name(n), s.pod == "17", "nobody else goes over before the switchover")
					}
				case w.paused != nil:
					told = w.status.Message
				case w.live == "17" && w.config.Retire:
					assert.Equal(t, agentapi.MethodInPlace, w.config.Method)
				}
			})
			assert.Equal(t, v1.UpgradeDone, w.status.Phase)
			assert.Equal(t, "17", w.live)
			assert.Equal(t, "40s", w.status.LastWritePause)
			assert.Contains(t, told, "which is stopped meanwhile: ")
			assert.Empty(t, w.status.LastFailure)
			assert.Equal(t, []string{"Preflight", "PrepareSource", "AwaitSwitchover", "Switchover", "Observe", "Retire", "Done"}, w.log)
			require.True(t, slices.ContainsFunc(w.status.Findings, func(f v1.UpgradeFinding) bool {
				return f.Check == "InPlace" && strings.Contains(f.Message, "at most 30m0s")
			}), "%v", w.status.Findings)
		})
	}
}

// TestInPlace_fails: a seed that cannot be converted ends the upgrade at once, since each attempt costs time without writes; the old version
// serves, and it is told for how long it did not.
func TestInPlace_fails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meddle func(w *world)
		why    string
	}{
		"pg_upgrade": {why: "pg_upgrade failed", meddle: func(w *world) {
			if s := w.servers[2]; s.stage == agentapi.SeedConverting {
				s.stage = agentapi.SeedFailed
			}
		}},
		"too long": {why: "it was not converted", meddle: func(w *world) {
			if s := w.servers[2]; s.stage == agentapi.SeedConverting {
				s.stage = agentapi.SeedReplaying
			}
		}},
		"it does not even begin": {why: "it was not converted", meddle: func(w *world) {
			if s := w.servers[2]; s.stage == agentapi.SeedReplaying {
				s.stage = agentapi.SeedStreaming
			}
		}},
		"nobody has noted that it was asked for": {why: "pg_upgrade failed", meddle: func(w *world) {
			if s := w.servers[2]; s.stage == agentapi.SeedConverting {
				s.stage, w.status.AskedAt = agentapi.SeedFailed, nil
			}
		}},
		"the primary's agent starts anew": {why: "did not say how the switchover goes", meddle: func(w *world) {
			if w.servers[2].stage == agentapi.SeedConverting {
				w.said, w.offline, w.paused = nil, nil, nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 3)
			w.spec, w.wanted.Method = "17", v1.UpgradeInPlace
			began := w.now
			for range 1000 {
				w.pass()
				w.tick()
				test.meddle(w)
				if w.status.Phase == v1.UpgradeFailed && w.settled() {
					break
				}
			}
			require.Equal(t, v1.UpgradeFailed, w.status.Phase, "%s", w)
			assert.Equal(t, 1, w.switchers)
			assert.Equal(t, "15", w.live)
			assert.Contains(t, w.status.LastFailure, test.why)
			assert.Less(t, w.now.Sub(began), 40*time.Minute)
			assert.Equal(t, name != "the primary's agent starts anew", w.status.LastWritePause != "", "%s", w.status.LastWritePause)
			f := w.facts()
			require.NotNil(t, upgrade.Next(&f).Problem)
		})
	}
}

// TestInPlace_taken_up: an operator that ended before it noted that it had asked goes on with the switchover that it finds, also if the version is set
// back meanwhile; then the new version is not left without standbys.
func TestInPlace_taken_up(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		w := newWorld(1, 3)
		w.spec, w.wanted.Method = "17", v1.UpgradeInPlace
		lost := false
		step := func() {
			w.pass()
			w.tick()
			if w.paused != nil && !lost {
				w.status.AskedAt, lost = nil, true
				if back {
					w.spec = "15"
				}
			}
		}
		for range 200 {
			step()
		}
		require.True(t, lost)
		assert.Equal(t, 1, w.switchers, "%s", w)
		assert.Equal(t, "17", w.live)
		if !back {
			assert.Equal(t, v1.UpgradeDone, w.status.Phase)
			continue
		}
		f := w.facts()
		problem := upgrade.Next(&f).Problem
		require.NotNil(t, problem)
		assert.Contains(t, problem.Message, "it cannot go back to 15")
		assert.Equal(t, "17", w.servers[1].pod)
		assert.True(t, w.servers[1].ready)
	}
}

// TestInPlace_method: the method is that of the preflight, whatever the spec says later.
func TestInPlace_method(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.wanted.Method = "17", v1.UpgradeInPlace
	run(t, w, 1000, func(int) {
		if w.status != nil && w.status.Seed != "" && w.status.Method == "" {
			w.wanted.Method = v1.UpgradeAutomatic
			assert.Equal(t, agentapi.MethodInPlace, w.config.Method)
		}
	})
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
	assert.Equal(t, string(v1.UpgradeInPlace), w.status.Method)
	assert.Equal(t, v1.UpgradeAutomatic, w.wanted.Method)
}

// TestInPlace_synchronous: commits would wait for as long as a standby needs to be copied.
func TestInPlace_synchronous(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 5)
	w.spec, w.wanted.Method, w.wanted.SyncRequired = "17", v1.UpgradeInPlace, 1
	w.pass()
	f := w.facts()
	assert.Contains(t, upgrade.Next(&f).Message, "synchronous.mode to preferred")
}

// TestInPlace_called_off: until the primary is stopped, setting the version back ends it; nobody goes back afterwards.
func TestInPlace_called_off(t *testing.T) {
	t.Parallel()
	for phase, end := range map[v1.UpgradePhase]v1.UpgradePhase{
		v1.UpgradePrepareSource: v1.UpgradeRolledBack, v1.UpgradeAwaitSwitchover: v1.UpgradeRolledBack, v1.UpgradeObserve: v1.UpgradeDone,
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 3)
			w.spec, w.wanted.Method, w.wanted.Manual, w.wanted.Approved = "17", v1.UpgradeInPlace, true, end == v1.UpgradeDone
			refused := ""
			run(t, w, 1000, func(int) {
				if w.status == nil || w.status.Phase != phase {
					return
				}
				w.spec = "15"
				f := w.facts()
				if step := upgrade.Next(&f); step.Problem != nil {
					refused, w.spec = step.Problem.Message, "17"
				}
			})
			assert.Equal(t, end, w.status.Phase)
			assert.Equal(t, phase == v1.UpgradeObserve, strings.Contains(refused, "it cannot go back to 15"), refused)
		})
	}
}

// TestInPlace_agents: agents that do not know the method yet are to be restarted first; they know the others.
func TestInPlace_agents(t *testing.T) {
	t.Parallel()
	for method, want := range map[v1.UpgradeMethod]string{v1.UpgradeInPlace: "restart the instances first", v1.UpgradeAutomatic: ""} {
		w := newWorld(1, 3)
		w.spec, w.wanted.Method = "17", method
		w.pass()
		f := w.facts()
		for n := range f.Instances {
			report, _ := f.Instances[n].Report.Get()
			report.UpgradeProtocol = agentapi.OldestUpgradeProtocol
			f.Instances[n].Report = facts.Know(report)
		}
		step := upgrade.Next(&f)
		if want == "" {
			assert.NotContains(t, step.Message, "restart the instances")
		}
		assert.Contains(t, step.Message, want)
	}
}

// TestRollBack: within the window the version is set back.
func TestRollBack(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec = "17"
	run(t, w, 1000, func(int) {
		if w.status != nil && w.status.Phase == v1.UpgradeObserve {
			w.spec = "15"
		}
	})
	assert.Equal(t, v1.UpgradeRolledBack, w.status.Phase)
	assert.Equal(t, "15", w.live)
	assert.Equal(t, "800ms", w.status.LastWritePause, "that of the way back")
	for _, s := range w.servers {
		assert.Equal(t, "15", s.pod)
	}
}

// TestCallOff: the version is set back in each phase before the switchover.
func TestCallOff(t *testing.T) {
	t.Parallel()
	for _, phase := range []v1.UpgradePhase{
		v1.UpgradePreflight, v1.UpgradePrepareSource, v1.UpgradeSeedStandby, v1.UpgradeCatchUp, v1.UpgradeRollStandbys, v1.UpgradeAwaitSwitchover,
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, 4)
			w.spec, w.wanted.Manual = "17", true
			run(t, w, 1000, func(int) {
				if w.status != nil && w.status.Phase == phase {
					w.spec = "15"
				}
			})
			assert.Equal(t, v1.UpgradeRolledBack, w.status.Phase)
			assert.Zero(t, w.switchers)
		})
	}
}

// TestApproval: a switchover that is to be approved waits, with one standby left to the old version.
func TestApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.wanted.Manual = "17", true
	waited := 0
	run(t, w, 2000, func(int) {
		if w.status != nil && w.status.Phase == v1.UpgradeAwaitSwitchover {
			if waited++; waited == 100 {
				assert.Contains(t, w.status.Message, "upgrade-switchover")
				assert.Equal(t, "15", w.servers[1].pod)
				w.wanted.Approved = true
			}
		}
	})
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
	assert.Greater(t, waited, 99)
}

// TestWindow: the switchover waits for its window, and is not held to it on the way back; if it closes too early, the live version gets its
// last standby back.
func TestWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.refuses, w.wanted.Closed = "17", 1, "the window opens on Saturday"
	waited, closed := 0, 0
	run(t, w, 3000, func(int) {
		switch s := w.status; {
		case s == nil || w.spec == "15":
		case s.Phase == v1.UpgradeObserve:
			w.wanted.Closed, w.spec = "the window opens on Saturday", "15"
		case s.Refusals > 0:
			if closed++; closed == 1 {
				assert.Equal(t, "17", w.servers[1].pod)
				w.wanted.Closed = "the window opens on Saturday"
			} else if closed == 50 {
				assert.Equal(t, "15", w.servers[1].pod)
				w.wanted.Closed = ""
			}
		case s.Phase == v1.UpgradeAwaitSwitchover:
			if waited++; waited == 100 {
				assert.Contains(t, s.Message, "Saturday")
				assert.Equal(t, "15", w.servers[1].pod)
				w.wanted.Closed = ""
			}
		}
	})
	assert.Equal(t, v1.UpgradeRolledBack, w.status.Phase)
	assert.Equal(t, 3, w.switchers)
	assert.Greater(t, closed, 49)
}

// TestBlocked: what speaks against the upgrade is told, nothing is touched, and it goes on when that is mended.
func TestBlocked(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.blockers = "17", true
	run(t, w, 1000, func(tick int) {
		if tick == 50 {
			assert.Equal(t, v1.UpgradePreflight, w.status.Phase)
			f := w.facts()
			step := upgrade.Next(&f)
			require.NotNil(t, step.Problem)
			assert.Contains(t, step.Problem.Message, "there are large objects")
			assert.Equal(t, v1.ReasonUpgradeBlocked, step.Preflight.Reason)
			assert.False(t, step.Applies)
			w.blockers = false
		}
	})
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
}

// TestAttempts: seeds that fail are bounded, the cluster is as it was, and another wish begins again.
func TestAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec = "17"
	for range 2000 {
		w.pass()
		w.tick()
		if s := w.servers[2]; s.stage == "Converting" {
			s.stage = "Failed"
		}
		if w.status.Phase == v1.UpgradeFailed && w.settled() {
			break
		}
	}
	require.Equal(t, v1.UpgradeFailed, w.status.Phase, "%s", w)
	assert.EqualValues(t, 3, w.status.Attempt)
	assert.Contains(t, w.status.LastFailure, "pg_upgrade failed")
	f := w.facts()
	step := upgrade.Next(&f)
	require.NotNil(t, step.Problem)
	assert.Equal(t, v1.ReasonUpgradeFailed, step.Problem.Reason)
	assert.False(t, step.Applies || step.Waits)
	w.wanted.Retry = "again"
	run(t, w, 1000, nil)
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
}

// TestSimulate: seeds fail, primaries change, switchovers are refused, standbys vanish, and somebody changes their mind. It always comes
// to an end, with every instance of the live version.
func TestSimulate(t *testing.T) {
	t.Parallel()
	ends := map[v1.UpgradePhase]int{}
	for seed := range int64(300) {
		w := newWorld(seed, 1+int(seed%5))
		w.spec, w.faults = "17", 0.03
		if seed%5 == 0 {
			w.wanted.Window = 0
		}
		if seed%4 == 3 {
			w.wanted.Method = v1.UpgradeInPlace
		}
		undecided := seed%3 == 0
		run(t, w, 20000, func(tick int) {
			if tick > 3000 {
				w.faults, undecided = 0, false
			}
			open := w.status == nil || w.status.Phase != v1.UpgradeRetire && w.status.Phase != v1.UpgradeDone
			if undecided && open && w.random.Intn(50) == 0 {
				w.spec = map[string]string{"15": "17", "17": "15"}[w.spec]
			}
			if w.status != nil && w.status.Phase == v1.UpgradeFailed {
				w.spec = w.live // somebody gives it up
			}
			if w.live == "17" && w.spec == "15" && !open {
				w.spec = "17" // the schema refuses the rest
			}
		})
		ends[w.status.Phase]++
	}
	t.Log(ends)
	assert.Positive(t, ends[v1.UpgradeDone])
	assert.Positive(t, ends[v1.UpgradeRolledBack])
}

// TestSilentSeed: a seed that is never heard ends the attempt.
func TestSilentSeed(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec = "17"
	began := w.now
	for range 500 {
		w.pass()
		w.tick()
		if w.status.Seed != "" {
			w.servers[2].starts = 5
		}
		if w.status.LastFailure != "" {
			break
		}
	}
	assert.Contains(t, w.status.LastFailure, "nothing was heard of prod-db-3")
	assert.InDelta(t, 15*time.Minute, w.now.Sub(began), float64(2*time.Minute))
	assert.Equal(t, "15", w.live)
}

// TestWrongImage: an image of another major ends the upgrade at once, and another one begins it again.
func TestWrongImage(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec = "17"
	w.image = facts.Problem{Reason: v1.ReasonImageMajorMismatch, Message: "the image has PostgreSQL 15, not 17"}
	began := w.now
	for w.status == nil || w.status.Phase != v1.UpgradeFailed || !w.settled() {
		w.pass()
		w.tick()
		require.Less(t, w.now.Sub(began), 10*time.Minute, "%s", w)
	}
	assert.Contains(t, w.status.LastFailure, "the image has PostgreSQL 15, not 17")
	w.image, w.wanted.Retry = facts.Problem{}, "again"
	run(t, w, 1000, nil)
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
}

// TestNoImage: an image that cannot be pulled is waited for; when the spec names another one, that is taken at once.
func TestNoImage(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec = "17"
	w.image = facts.Problem{Reason: v1.ReasonImagePullFailed, Message: "there is no such image"}
	for range 20 {
		w.pass()
		w.tick()
	}
	assert.Equal(t, v1.UpgradePrepareSource, w.status.Phase, "%s", w)
	assert.Contains(t, w.status.Message, "there is no such image")
	w.changed = true
	step, _ := w.pass()
	assert.Equal(t, "prod-db-3", step.Restart)
	w.image = facts.Problem{}
	run(t, w, 1000, nil)
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
	assert.EqualValues(t, 1, w.status.Attempt)
}

// TestRefusedAgain: a switchover that is refused again and again leaves the live version one standby, which is not moved to and fro; it goes
// over when the new version has the writes.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{3, 5} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			w := newWorld(1, instances)
			w.spec, w.refuses = "17", 6
			var pods []string
			held := 0
			run(t, w, 5000, func(int) {
				if pod := w.servers[1].pod; len(pods) == 0 || pods[len(pods)-1] != pod {
					pods = append(pods, pod)
				}
				if w.status != nil && w.live == "15" && w.status.Refusals >= 4 {
					held++
					assert.True(t, w.servers[1].pod == "15" && w.servers[1].ready, "%s", w)
					f := w.facts()
					if step := upgrade.Next(&f); step.Status.Phase == v1.UpgradeAwaitSwitchover {
						require.NotNil(t, step.Problem)
						assert.Contains(t, step.Problem.Message, "not drained in time")
					}
				}
				if w.status != nil && w.status.Phase == v1.UpgradeRetire {
					assert.Equal(t, "17", w.servers[1].pod, "its primary is not left alone until then")
				}
			})
			assert.Equal(t, v1.UpgradeDone, w.status.Phase)
			assert.Equal(t, 7, w.switchers)
			assert.Positive(t, held)
			assert.LessOrEqual(t, len(pods), 4, "%v", pods)
			assert.Equal(t, "17", pods[len(pods)-1])
		})
	}
}

// TestNotGivenBack: the standby that the live version is to get back gets no Pod; the switchover is not tried without end all the same.
func TestNotGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.refuses = "17", 4
	run(t, w, 5000, func(int) {
		if w.status != nil && w.status.Refusals >= 3 && w.live == "15" {
			w.servers[1].pod, w.servers[1].template = "17", "17"
		}
	})
	assert.Equal(t, v1.UpgradeDone, w.status.Phase, "%s", w)
	assert.Zero(t, w.status.Refusals, "what was refused is told no more")
}

// TestApprovalWithdrawn: if the approval is taken back, the live version gets its last standby back, and gives it again when it is approved.
func TestApprovalWithdrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(1, 3)
	w.spec, w.refuses, w.wanted.Manual, w.wanted.Approved = "17", 1, true, true
	waited := 0
	run(t, w, 2000, func(int) {
		if w.status == nil || w.status.Refusals == 0 || w.live != "15" {
			return
		}
		switch waited++; waited {
		case 1:
			assert.Equal(t, "17", w.servers[1].pod)
			w.wanted.Approved = false
		case 50:
			assert.Equal(t, "15", w.servers[1].pod)
			assert.True(t, w.servers[1].ready)
			w.wanted.Approved = true
		}
	})
	assert.Equal(t, v1.UpgradeDone, w.status.Phase)
	assert.Equal(t, 2, w.switchers)
}
