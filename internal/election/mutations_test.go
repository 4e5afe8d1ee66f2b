package election

import (
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
