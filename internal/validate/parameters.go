package validate

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/pgsteward/pgsteward/apis/v1"
	"github.com/pgsteward/pgsteward/internal/postgres"
)

// parametersFile has what `postgres --describe-config` of 15, 17 and 18 lists, in lower case.
//
//go:embed parameters.txt
var parametersFile embed.FS

var knownParameters = readParameters()

func readParameters() []string {
	content, err := parametersFile.ReadFile("parameters.txt")
	if err != nil {
		panic(err) // it is part of the program
	}
	return strings.Fields(string(content))
}

// farthest is how many letters may be wrong in a name that we take for another one's misspelling.
const farthest = 2

// parameters: none is one of ours, and none looks misspelt.
func parameters(q question) Verdict {
	var verdict Verdict
	path := field.NewPath("spec", "postgresql", "parameters")
	var before map[string]v1.ParameterValue
	if q.before != nil {
		before = q.before.Spec.PostgreSQL.Parameters
	}
	added := map[string]string{}
	for name, value := range q.after.Spec.PostgreSQL.Parameters {
		if _, had := before[name]; !had {
			added[name] = string(value)
		}
	}
	major, _ := strconv.Atoi(q.after.Spec.Version) // the schema lets nothing but numbers through
	_, owned := postgres.Settings{Major: major, User: added}.Merge()
	for _, name := range owned {
		verdict.Errors = append(verdict.Errors, field.Invalid(path.Key(name), added[name], "is set by pgsteward itself; remove it"))
		delete(added, name)
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if meant := misspelt(name); meant != "" {
			verdict.Warnings = append(verdict.Warnings, fmt.Sprintf(
				"%s: PostgreSQL may have no such parameter; did you mean %s? What PostgreSQL refuses changes nothing and is reported in the status", path.Key(name), meant))
		}
	}
	return verdict
}

// misspelt is the parameter that an unknown name was probably meant to be; empty if the name is known, is an extension's, or is
// like none.
func misspelt(name string) string {
	if strings.Contains(name, ".") || slices.Contains(knownParameters, name) {
		return ""
	}
	best, meant := farthest+1, ""
	for _, known := range knownParameters {
		if d := distance(name, known); d < best {
			best, meant = d, known
		}
	}
	return meant
}

// distance is how many letters have to be inserted, removed or replaced to make b of a (Levenshtein's). More than farthest is not
// told apart.
func distance(a, b string) int {
	if len(a)-len(b) > farthest || len(b)-len(a) > farthest {
		return farthest + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
