package postgres

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version of PostgreSQL's programs.
type Version struct {
	// Major is such as 16.
	Major int
	// Text is such as 16.14 or 18beta1.
	Text string
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[0-9A-Za-z.]*)`)

// ParseVersion reads what `postgres --version` prints: "postgres (PostgreSQL) 16.14 (Debian 16.14-1.pgdg12+1)". The other programs
// of PostgreSQL print the same of themselves.
func ParseVersion(output string) (Version, error) {
	found := versionPattern.FindStringSubmatch(output)
	if found == nil {
		return Version{}, fmt.Errorf("no PostgreSQL version in %q", output)
	}
	major, err := strconv.Atoi(found[2])
	if err != nil {
		return Version{}, fmt.Errorf("no PostgreSQL version in %q", output)
	}
	return Version{Major: major, Text: found[1]}, nil
}
