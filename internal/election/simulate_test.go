package election

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seeds      = flag.Int64("seeds", 3000, "how many seeds TestSimulation runs")
	firstSeed  = flag.Int64("first", 0, "the first seed")
	broken     = flag.String("without", "", "rules and conditions to leave out, by comma")
	mutate     = flag.Int64("mutate", 0, "how many seeds TestFindMutations tries for each rule and condition")
	showCourse = flag.String("course", "", "the course that TestCourse shows")
	verbose    = flag.Bool("trace", false, "print what happened in the run of the first seed")
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

// simulate runs seeds on all cores until enough have failed, and returns what failed by seed and what happened how often.
func simulate(first, count int64, off without, enough int) (map[int64]string, map[string]int) {
	var (
		mu     sync.Mutex
		group  sync.WaitGroup
		next   atomic.Int64
		failed = map[int64]string{}
		counts = map[string]int{}
	)
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for {
				n := next.Add(1) - 1
				mu.Lock()
				stop := n >= count || len(failed) >= enough
				if n > 0 && n%5000 == 0 {
					fmt.Fprintf(os.Stderr, "%d seeds, %d failed\n", n, len(failed))
				}
				mu.Unlock()
				if stop {
					return
				}
				w := newWorld(first+n, off)
				failure := w.run()
				mu.Lock()
				for name, count := range w.counts {
					counts[name] += count
				}
				if failure != "" {
					failed[first+n] = failure
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return failed, counts
}

// mutations are the rules and conditions that are left out, one at a time, to see that the simulation notices.
func mutations() []string {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	for _, c := range candidacy {
		names = append(names, "candidate/"+c.name)
	}
	return append(names, "candidate/after-expiry", "expired-for/promise", "quorum/exact", "timeline/newer", "timeline/given-once", "promise/one-pod", "promise/kept", "promise/forgotten",
		"failsafe/all", "failsafe/nobody", "failsafe/in-time", "failsafe/pending", "other-pod/expired", "other-pod/promise", "other-pod/data",
		"writer-may-live/expired", "campaign/alone", "no-holder/exact", "hand-over/mine", "holder-failing/mine", "hand-over/clean", "hand-over/received", "hand-over/holds-nothing",
		"successor/after-down", "successor/quorum", "successor/lag", "successor/stopped", "sync/publish-first", "sync/settled", "sync/initial", "sync/pending",
		"successor/after-end", "hand-over/end", "hand-over/version", "sync/first", "sync/carries-on", "quorum/end", "timings/answered",
		"holder-forgotten/timeline", "forced/timelines", "writer-may-live/promised",
		"come-back/fork", "come-back/refused", "renewal/counts-from-sent", "guard/kill", "guard/watchdog", "guard/decision",
		"stop/mine")
}

// TestFindMutations leaves out each rule and condition, and looks for a seed that fails.
func TestFindMutations(t *testing.T) {
	if *mutate == 0 {
		t.Skip("takes minutes: -args -mutate SEEDS, or make simulate MUTATIONS=1")
	}
	for _, name := range mutations() {
		if *broken != "" && !offs()[name] {
			continue
		}
		failed, _ := simulate(*firstSeed, *mutate, without{name: true}, 1)
		if len(failed) == 0 {
			t.Errorf("%-28s is not caught by %d seeds", name, *mutate)
			continue
		}
		least := slices.Min(slices.Collect(maps.Keys(failed)))
		t.Logf("%-28s %6d  %s", name, least, failed[least])
	}
}

// trace is what happened in the run of a seed.
func trace(seed int64, off without) string {
	w := newWorld(seed, off)
	w.trace = true
	w.run()
	return strings.Join(w.notes, "\n")
}

func offs() without {
	off := without{}
	for name := range strings.SplitSeq(*broken, ",") {
		if name != "" {
			off[name] = true
		}
	}
	return off
}

// TestSimulation runs many clusters in which everything goes wrong. A seed that fails can be run alone:
// go test ./internal/election -run TestSimulation -args -first SEED -seeds 1 -trace.
func TestSimulation(t *testing.T) {
	t.Parallel()
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // most of what a run makes lives as long as the run
	began := time.Now()
	failed, counts := simulate(*firstSeed, *seeds, offs(), 5)
	var names []string
	for name, count := range counts {
		names = append(names, fmt.Sprintf("%s %d", name, count))
	}
	sort.Strings(names)
	t.Logf("%d seeds in %s: %s", *seeds, time.Since(began).Round(time.Millisecond), strings.Join(names, ", "))
	if *verbose {
		t.Log("\n" + trace(*firstSeed, offs()))
	}
	shown := false
	for seed, failure := range failed {
		t.Errorf("seed %d: %s", seed, failure)
		if !shown && !*verbose {
			t.Log("\n" + trace(seed, offs()))
			shown = true
		}
	}
	if len(failed) == 0 && *seeds >= 1000 {
		for _, r := range rules {
			assert.Positive(t, counts[r.name], "rule %s is never applied", r.name)
		}
		assert.Positive(t, counts["went on by promises"])
		assert.Positive(t, counts["campaigns"])
	}
}
