package election

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew")

// scenarios are runs in which only what is written here goes wrong. What follows is in testdata, for people to read.
var scenarios = map[string]struct {
	what string
	// shows is what must come of it, a regular expression, whatever the rest.
	shows string
	mode  SyncMode
	do    func(w *world)
}{
	"node-lost": {"The primary's machine is lost at 10 s. A standby waits until the lease has run out, takes it and promotes; the other follows it.",
		"serves on timeline 2 ", SyncNone, func(w *world) {
			w.at(10*time.Second, func() { w.instances[0].pod.killAgent(time.Hour) })
		}},
	"switchover": {"Somebody wishes at 10 s that db-3 be primary. db-1 stops, sees that db-3 has its last record, and hands over in one update.",
		"db-3/3 serves on timeline 2 ", SyncNone, func(w *world) {
			w.at(10*time.Second, func() {
				w.instances[0].pod.request = Request{Kind: Switchover, Target: "db-3"}
				w.instances[0].pod.poke()
			})
		}},
	"api-out": {"The API server is out from 10 s to 40 s. All members promise to wait, so the primary goes on.",
		"db-1/1 serves on timeline 1 ", SyncNone, func(w *world) { w.at(10*time.Second, func() { w.api.downUntil = 40 * time.Second }) }},
	"api-out-member-missing": {"The API server is out from 10 s to 40 s, and db-3 does not answer: the primary stops in time. When it is back, whoever comes first goes on: nothing was written after the stop.",
		"4[0-9][.].* serves on timeline ", SyncNone, func(w *world) {
			w.at(10*time.Second, func() {
				w.api.downUntil = 40 * time.Second
				w.instances[2].pod.killAgent(time.Hour)
			})
		}},
	"primary-cut-off": {"The primary is cut off from all at 10 s, while clients still reach it. It has stopped before another takes over.",
		"serves on timeline 2 ", SyncNone, func(w *world) {
			w.at(10*time.Second, func() {
				n := w.instances[0].pod.node
				w.blocks = append(w.blocks, block{n, -1, time.Hour}, block{-1, n, time.Hour})
			})
		}},
	"quorum-missing": {"With ANY 1 of two standbys the primary and one of them are lost at 10 s. The other may lack a commit: it waits, and says why, until the standby is back at 30 s.",
		"3[0-9].*db-3/3 has won", SyncRequired, func(w *world) {
			w.at(10*time.Second, func() {
				w.instances[0].pod.killAgent(time.Hour)
				w.instances[1].pod.killAgent(20 * time.Second)
			})
		}},
	"standby-lost-preferred": {"Both standbys are lost at 10 s, in preferred mode: the empty set is published, then used. At 20 s the primary is lost too, and one standby is back: it must not take over. At 40 s the primary is back.",
		"4[0-9].*db-1/1 serves on timeline 1 ", SyncPreferred, func(w *world) {
			w.at(10*time.Second, func() {
				w.instances[1].pod.killAgent(time.Hour)
				w.instances[2].pod.killAgent(15 * time.Second)
			})
			w.at(20*time.Second, func() { w.instances[0].pod.killAgent(20 * time.Second) })
		}},
	"pod-replaced-old-lives": {"The primary's Pod is cut off from the API server only, at 10 s, and replaced at 12 s. The old one goes on by promises; the new one waits until a member is cut off from the old, too, at 30 s.",
		"3[0-9].*db-1/77 serves on timeline 1 ", SyncNone, func(w *world) {
			w.at(10*time.Second, func() {
				p := w.instances[0].pod
				w.blocks = append(w.blocks, block{p.node, nodeAPI, time.Hour}, block{nodeAPI, p.node, time.Hour})
				w.replace(p, 2*time.Second)
				w.at(30*time.Second, func() {
					n := w.instances[1].pod.node
					w.blocks = append(w.blocks, block{p.node, n, time.Hour}, block{n, p.node, time.Hour})
				})
			})
		}},
}

var unsteady = regexp.MustCompile(`for \d+(\.\d+)?m?s more`)

func TestScenarios(t *testing.T) {
	t.Parallel()
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := quiet(scenario.mode, 3, false, nil)
			w.trace = true
			scenario.do(w)
			require.Empty(t, w.runUntil(50*time.Second))

			text := scenario.what + "\n\n" + unsteady.ReplaceAllString(strings.Join(w.notes, "\n"), "for a while") + "\n"
			require.Regexp(t, scenario.shows, text)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(want), text, "if that is right: go test ./internal/election -run TestScenarios -args -update")
		})
	}
}
