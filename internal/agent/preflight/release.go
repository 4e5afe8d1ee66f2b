package preflight

import (
	"strconv"
	"strings"
)

// answer is one to a question about an image that may not be known.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// lastWithoutColumnVersions is the last minor of PostgreSQL 18 that refuses versions of columns (pg_attver), as far as was tried.
const lastWithoutColumnVersions = 6

// lacksColumnVersions says whether the new PostgreSQL refuses columns with versions, which a dump sets like any option.
func lacksColumnVersions(in Input) answer {
	if in.To != 18 {
		return no
	}
	major, minor, _ := strings.Cut(in.ToVersion, ".")
	n, err := strconv.Atoi(minor)
	switch {
	case major != "18" || err != nil: // a beta, or an image of the user's
		return maybe
	case n <= lastWithoutColumnVersions:
		return yes
	default:
		return maybe
	}
}
