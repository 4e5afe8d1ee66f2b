package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgsteward/pgsteward/internal/naming"
	"github.com/pgsteward/pgsteward/internal/plan"
)

var update = flag.Bool("update", false, "write the expectations of testdata/ anew")

// TestGolden plays the scenarios of testdata/*.txt, which are written for people to read and review: a line that begins with '>' is
// what somebody does, the lines below it are what is decided from then on until nothing changes any more. `go test ./internal/plan
// -run TestGolden -update` writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := playScenario(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(text), got)
		})
	}
}

// playScenario returns the scenario with what is decided now.
func playScenario(t *testing.T, text string) string {
	t.Helper()
	w := newWorld(nil) // in which nothing unusual happens
	var b strings.Builder
	for _, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "> "):
			b.WriteString("\n" + line + "\n")
			do(t, w, strings.Fields(line[2:]))
			decideAll(t, w, &b)
		}
	}
	return b.String()
}

// do is what somebody does.
func do(t *testing.T, w *world, words []string) {
	t.Helper()
	number := func() int {
		n, err := strconv.Atoi(words[len(words)-1])
		require.NoError(t, err)
		return n
	}
	switch strings.TrimRight(strings.Join(words, " "), " 0123456789") {
	case "create":
		w.replicas = number()
	case "scale to":
		w.replicas = number()
	case "delete StatefulSet":
		w.deleteSet(number())
	case "keep no volumes":
		w.keep = false
	case "suspend":
		w.suspend = true
	case "resume":
		w.suspend = false
	case "delete":
		w.deleting = true
	default:
		require.Fail(t, "nobody knows how to do that", "%q", words)
	}
}

// decideAll decides and lets the world go on until nothing changes.
func decideAll(t *testing.T, w *world, b *strings.Builder) {
	t.Helper()
	last := ""
	for range 50 {
		f := w.facts()
		d := plan.Decide(f)
		line := fmt.Sprintf("%-12s %s", d.Rule, d.Message)
		if _, none := d.Action.(plan.None); !none {
			line += fmt.Sprintf("  [%s%+v]", strings.TrimPrefix(fmt.Sprintf("%T", d.Action), "plan."), d.Action)
		}
		if d.Bootstrap != "" {
			line += "  (" + d.Bootstrap + " may make the data)"
		}
		if line != last {
			b.WriteString(line + "\n")
		}
		before := w.String()
		w.carryOut(f, d)
		if w.released {
			return
		}
		w.live()
		if line == last && before == w.String() {
			b.WriteString("             " + instances(w) + "\n")
			return
		}
		last = line
	}
	require.Fail(t, "it does not come to rest", "%s", w)
}

// instances are those that run, and the volumes that have none.
func instances(w *world) string {
	var words []string
	for n := 1; n <= naming.MaxOrdinal; n++ {
		p, v := w.pods[n], w.volumes[n]
		switch {
		case p != nil && p.primary:
			words = append(words, fmt.Sprintf("%d primary", n))
		case p != nil && p.standby:
			words = append(words, fmt.Sprintf("%d standby", n))
		case p != nil:
			words = append(words, fmt.Sprintf("%d waits", n))
		case v != nil:
			words = append(words, fmt.Sprintf("%d volume", n))
		}
	}
	return "= " + strings.Join(words, ", ")
}
