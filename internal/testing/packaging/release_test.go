package packaging

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/stretchr/testify/require"
)

// releasedImage is an image that release.env names.
func releasedImage(tb testing.TB, dir, name string) string {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "release.env"))
	require.NoError(tb, err)
	for line := range strings.Lines(string(content)) {
		if image, found := strings.CutPrefix(strings.TrimSpace(line), name+"="); found {
			return image
		}
	}
	require.Fail(tb, "an image is missing", "%s in %s/release.env", name, dir)
	return ""
}

// lastBefore is the newest of versions, which are sorted, that is older than version; none is "".
func lastBefore(versions []string, version string) string {
	last, now := "", semver.MustParse(version)
	for _, v := range versions {
		if semver.MustParse(v).LT(now) {
			last = v
		}
	}
	return last
}

// checkSums compares a release's files with SHA256SUMS, which was written when it was released.
func checkSums(tb testing.TB, dir string) []string {
	tb.Helper()
	var problems say
	content, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(tb, err)
	want := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			want[fields[1]] = fields[0]
		}
	}
	require.NoError(tb, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "SHA256SUMS" {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		if want[name] != hex.EncodeToString(sum[:]) {
			problems.add("%s of release %s changed since it was released", name, filepath.Base(dir))
		}
		delete(want, name)
		return nil
	}))
	for _, name := range slices.Sorted(maps.Keys(want)) {
		problems.add("%s of release %s is gone", name, filepath.Base(dir))
	}
	return problems
}

// checkCatalogDockerfile wants the label catalogd looks for, and a cache made by the opm that serves it, where that looks.
func checkCatalogDockerfile(tb testing.TB, path string) []string {
	tb.Helper()
	var problems say
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	if got := dockerLabels(tb, path)["operators.operatorframework.io.index.configs.v1"]; got != "/configs" {
		problems.add("the catalog's Dockerfile has the label operators.operatorframework.io.index.configs.v1=%s, not /configs", got)
	}
	const cache = `"--cache-dir=/tmp/cache"`
	var builds, serves bool
	var from []string
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "FROM "):
			from = append(from, strings.Fields(line)[1])
		case strings.HasPrefix(line, "RUN ") && strings.Contains(line, `"--cache-only"`):
			builds = strings.Contains(line, cache)
		case strings.HasPrefix(line, "CMD "):
			serves = strings.Contains(line, cache)
		}
	}
	if want := "quay.io/operator-framework/opm:" + pinnedOPM(tb); len(from) != 2 || from[0] != want || from[1] != want {
		problems.add("the catalog's Dockerfile is from %v, not twice from %s: what makes the cache must be what serves it, and what we test with", from, want)
	}
	if !builds || !serves {
		problems.add("the catalog's Dockerfile does not build and serve the same cache, %s", cache)
	}
	return problems
}

// pinnedOPM is the version of opm that the tools' module pins.
func pinnedOPM(tb testing.TB) string {
	tb.Helper()
	content, err := os.ReadFile(at("hack", "tools", "opm", "go.mod"))
	require.NoError(tb, err)
	match := regexp.MustCompile(`github.com/operator-framework/operator-registry (v\S+)`).FindSubmatch(content)
	require.NotNil(tb, match, "hack/tools/opm pins no operator-registry")
	return string(match[1])
}

// TestDefault: what kubectl apply -k config/default installs is the last release's operator; before the first, what is developed.
func TestDefault(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(at("config", "default", "kustomization.yaml"))
	require.NoError(t, err)
	all := releases(t, at("releases"))
	if len(all) == 0 {
		require.Contains(t, string(content), "newTag: v"+currentVersion(t))
		return
	}
	_, digest, _ := strings.Cut(releasedImage(t, at("releases", "v"+all[len(all)-1]), "OPERATOR_IMAGE"), "@")
	require.Contains(t, string(content), "digest: "+digest, "config/default does not run v%s", all[len(all)-1])
	readme, err := os.ReadFile(at("README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "config/default?ref=v"+all[len(all)-1]+"'", "the README installs another release")
}
