package election

import (
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// caught says for each rule and condition which course, or else which seed, fails without it.
var caught = []struct {
	name, course string
	seed         int64
}{
	{name: "fenced", seed: 15},
	{name: "lease-unknown", course: "late-bootstrap"},
	{name: "wrong-data", seed: 321},
	{name: "other-pod", course: "alone"},
	{name: "hand-over", course: "number-raised"},
	{name: "holder-failing", course: "server-does-not-start"},
	{name: "holder-with-data", course: "alone"},
	{name: "holder-bootstrap", course: "late-bootstrap"},
	{name: "holder-data-lost", course: "volume-lost"},
	{name: "failover", course: "primary-gone"},
	{name: "follow-holder", course: "answer-of-hand-over-lost"},
	{name: "bootstrap", course: "late-bootstrap"},
	{name: "empty-waits", course: "late-bootstrap"},
	{name: "members-silent", course: "unread-standby"},
	{name: "less-advanced", course: "taken-anew"},
	{name: "campaign", course: "unread-standby"},
	{name: "candidate/expired", seed: 7},
	{name: "candidate/member", course: "unknown-member"},
	{name: "candidate/unfenced", course: "fenced-and-lost"},
	{name: "candidate/answers", course: "asks-first"},
	{name: "candidate/furthest", course: "asks-first"},
	{name: "candidate/quorum", course: "asked-too-early"},
	{name: "candidate/after-expiry", course: "asked-before-the-promise-ended"},
	{name: "expired-for/promise", course: "asked-before-the-promise-ended"},
	{name: "timeline/newer", course: "forced-back"},
	{name: "timeline/given-once", course: "forced-back"},
	{name: "promise/one-pod", course: "forgotten-promise"},
	{name: "promise/kept", course: "unknown-member"},
	{name: "promise/forgotten", course: "forgotten-promise"},
	{name: "failsafe/all", course: "asked-too-early"},
	{name: "failsafe/nobody", course: "alone"},
	{name: "failsafe/pending", course: "answer-lost"},
	{name: "hand-over/mine", seed: 11055},
	{name: "other-pod/data", course: "empty-again"},
	{name: "other-pod/expired", course: "alone"},
	{name: "other-pod/promise", course: "forgotten-promise"},
	{name: "campaign/alone", course: "taken-anew"},
	{name: "no-holder/exact", course: "unread-standby"},
	{name: "hand-over/received", course: "number-raised"},
	{name: "successor/quorum", seed: 20},
	{name: "successor/stopped", seed: 117},
	{name: "sync/settled", course: "number-raised"},
	{name: "sync/initial", seed: 59},
	{name: "sync/first", course: "target-lost-later"},
	{name: "sync/carries-on", course: "number-raised"},
	{name: "quorum/end", course: "target-lost"},
	{name: "come-back/fork", seed: 3},
	{name: "guard/kill", seed: 13},
	{name: "writer-may-live", seed: 190},
	{name: "candidate/promised", seed: 308},
	{name: "candidate/lag", seed: 336},
	{name: "quorum/exact", seed: 264},
	{name: "writer-may-live/expired", seed: 1829},
	{name: "hand-over/clean", seed: 588},
	{name: "successor/after-down", seed: 76},
	{name: "successor/lag", seed: 660},
	{name: "sync/publish-first", seed: 81},
	{name: "successor/after-end", seed: 76},
	{name: "hand-over/version", seed: 108},
	{name: "timings/answered", seed: 2484},
	{name: "come-back/refused", seed: 395},
	{name: "renewal/counts-from-sent", course: "answers-late"},
	{name: "stop/mine", course: "fenced-while-replaced"},
	{name: "guard/watchdog", seed: 13},
	{name: "holder-forgotten", course: "lease-deleted"},
	{name: "holder-forgotten/timeline", course: "deleted-before-the-promotion"},
	{name: "forced/timelines", course: "forced-anew"},
	{name: "writer-may-live/promised", course: "forced-beside-a-writer"},
	{name: "candidate/able", course: "broken-takes-nothing"},
	{name: "hand-over/holds-nothing", course: "answer-of-hand-over-lost-in-time"},
	{name: "hand-over/end", course: "crashed-says-no-end"},
	{name: "sync/pending", course: "answer-of-set-lost"},
}

// twice are those that nothing notices; doc.go says why they are there.
var twice = []string{"failsafe/in-time", "guard/decision", "holder-failing/mine"}

// TestMutations: leaving out any rule or condition is noticed.
func TestMutations(t *testing.T) {
	t.Parallel()
	known := slices.Clone(twice)
	for _, m := range caught {
		known = append(known, m.name)
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			off, failure := without{m.name: true}, ""
			if m.course != "" {
				failure, _ = courses[m.course].run(off, false)
			} else {
				failure = newWorld(m.seed, off).run()
			}
			assert.NotEmpty(t, failure)
		})
	}
	assert.ElementsMatch(t, mutations(), known)
}

// TestCourses: nothing goes wrong in a course while all rules are there.
func TestCourses(t *testing.T) {
	t.Parallel()
	for name, course := range courses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failure, _ := course.run(nil, false)
			if !assert.Empty(t, failure, course.what) {
				_, w := course.run(nil, true)
				for _, note := range w.notes {
					t.Log(note)
				}
			}
		})
	}
}

// TestFindCourses says, for each rule and condition, which courses fail without it (make simulate MUTATIONS=1).
func TestFindCourses(t *testing.T) {
	if *mutate == 0 {
		t.Skip("-args -mutate SEEDS")
	}
	for _, name := range mutations() {
		var found []string
		for what, course := range courses {
			if failure, _ := course.run(without{name: true}, false); failure != "" {
				found = append(found, what+": "+failure)
			}
		}
		sort.Strings(found)
		t.Logf("%-28s %s", name, strings.Join(found, "; "))
	}
}

// TestCourse prints what happens in the course of that name: -args -course NAME -without RULES.
func TestCourse(t *testing.T) {
	if *showCourse == "" {
		t.Skip("-args -course NAME")
	}
	failure, w := courses[*showCourse].run(offs(), true)
	t.Log("\n" + strings.Join(w.notes, "\n"))
	t.Log("failure: " + failure)
}
