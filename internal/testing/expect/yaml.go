// Package expect has assertions of our own.
package expect

import (
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
	assert.Equal(t, canonical(t, []byte(Dedent(want))), marshal(t, object))
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
