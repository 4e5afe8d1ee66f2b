package plan

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRulesAreDocumented: the package's documentation lists the rules, in the order in which they are tried.
func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var documented, tried []string
	for _, match := range regexp.MustCompile(`(?m)^//  \d+\. ([a-z-]+):`).FindAllSubmatch(doc, -1) {
		documented = append(documented, string(match[1]))
	}
	for _, r := range rules {
		tried = append(tried, r.name)
	}
	require.Equal(t, tried, documented)
}
