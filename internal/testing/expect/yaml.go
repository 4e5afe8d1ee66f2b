// Package expect has assertions of our own.
package expect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// YAML expects that an object, written as YAML, is this text. The text is indented with tabs as the test is; its keys may be in
// any order, and what it leaves out must not be there.
func YAML(t testing.TB, want string, object any) {
	t.Helper()
	expected, actual := canonical(t, []byte(Dedent(want))), marshal(t, object)
	if expected != actual {
		assert.Fail(t, "not as expected", "%s\nall of it is:\n%s", difference(expected, actual), actual)
	}
}

// difference is the first line in which two texts differ, with the lines before it.
func difference(expected, actual string) string {
	want, have := strings.Split(expected, "\n"), strings.Split(actual, "\n")
	n := 0
	for n < min(len(want), len(have))-1 && want[n] == have[n] {
		n++
	}
	before := strings.Join(want[max(0, n-4):n], "\n")
	return fmt.Sprintf("%s\n%s   <- expected\n%s   <- is, in line %d", before, want[n], have[n], n+1)
}

// Dedent removes the indentation of the first line from every line.
func Dedent(text string) string {
	text = strings.TrimLeft(text, "\n")
	indent := text[:len(text)-len(strings.TrimLeft(text, "\t"))]
	lines := strings.Split(text, "\n")
	for n, line := range lines {
		lines[n] = strings.TrimPrefix(line, indent)
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\t\n ") + "\n"
}

func marshal(t testing.TB, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	require.NoError(t, err)
	return string(text)
}

func canonical(t testing.TB, text []byte) string {
	t.Helper()
	var value any
	require.NoError(t, yaml.UnmarshalStrict(text, &value), "the expectation is no YAML:\n%s", text)
	return marshal(t, value)
}
