package packaging

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"
)

// catalog is a file-based catalog of one package.
type catalog struct {
	packages     []blob
	channels     []blob
	bundles      map[string]blob
	deprecations []blob
}

// blob is any of its parts; each uses some of the fields.
type blob struct {
	Schema         string     `json:"schema"`
	Name           string     `json:"name"`
	Package        string     `json:"package"`
	DefaultChannel string     `json:"defaultChannel"`
	Image          string     `json:"image"`
	Entries        []entry    `json:"entries"`
	Properties     []property `json:"properties"`
}

// entry is a bundle in a channel, or what is deprecated.
type entry struct {
	Name      string   `json:"name"`
	Replaces  string   `json:"replaces"`
	Skips     []string `json:"skips"`
	SkipRange string   `json:"skipRange"`
	Reference struct {
		Schema string `json:"schema"`
		Name   string `json:"name"`
	} `json:"reference"`
}

type property struct {
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

func loadCatalog(tb testing.TB, dir string) catalog {
	tb.Helper()
	c := catalog{bundles: map[string]blob{}}
	for _, path := range yamlFiles(tb, dir) {
		for _, doc := range documents(tb, path) {
			var b blob
			require.NoError(tb, sigsyaml.Unmarshal(doc, &b), path)
			switch b.Schema {
			case "olm.package":
				c.packages = append(c.packages, b)
			case "olm.channel":
				c.channels = append(c.channels, b)
			case "olm.bundle":
				c.bundles[b.Name] = b
			case "olm.deprecations":
				c.deprecations = append(c.deprecations, b)
			default:
				require.Fail(tb, "what is this?", "%s in %s", b.Schema, path)
			}
		}
	}
	return c
}

// versionOf is the version in a bundle's name.
func versionOf(name string) (semver.Version, error) {
	version, found := strings.CutPrefix(name, packageName+".v")
	if !found {
		return semver.Version{}, fmt.Errorf("%s is not named %s.vVERSION", name, packageName)
	}
	return semver.Parse(version)
}

func sortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int { return semver.MustParse(a).Compare(semver.MustParse(b)) })
}

var channelName = regexp.MustCompile(`^(candidate|fast|stable)-v[0-9]+(\.[0-9]+)?$`)

// checkCatalog judges the whole catalog.
func checkCatalog(c catalog) []string {
	var problems say
	channels := map[string][]string{}
	for _, channel := range c.channels {
		for _, e := range channel.Entries {
			channels[channel.Name] = append(channels[channel.Name], e.Name)
		}
		problems = append(problems, checkChannel(channel, c.bundles)...)
	}
	if len(c.packages) != 1 || c.packages[0].Name != packageName {
		problems.add("the catalog is of %d packages, not of %s alone", len(c.packages), packageName)
	} else if d := c.packages[0].DefaultChannel; channels[d] == nil || !strings.HasPrefix(d, "stable-v") {
		problems.add("the default channel %s is not a stable channel of the catalog", d)
	}
	problems = append(problems, checkSupersets(channels)...)
	for _, name := range slices.Sorted(maps.Keys(c.bundles)) {
		if !slices.ContainsFunc(c.channels, func(ch blob) bool { return slices.Contains(channels[ch.Name], name) }) {
			problems.add("bundle %s is in no channel", name)
		}
		problems = append(problems, checkBlob(c.bundles[name])...)
	}
	for _, deprecations := range c.deprecations {
		for _, e := range deprecations.Entries {
			_, isBundle := c.bundles[e.Reference.Name]
			if e.Reference.Schema != "olm.package" && !isBundle && channels[e.Reference.Name] == nil {
				problems.add("the deprecated %s %s does not exist", e.Reference.Schema, e.Reference.Name)
			}
		}
	}
	return problems
}

// checkSupersets wants what is stable to be fast, and what is fast to be a candidate.
func checkSupersets(channels map[string][]string) []string {
	var problems say
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		kind, version, _ := strings.Cut(name, "-")
		wider := map[string][]string{"stable": {"fast", "candidate"}, "fast": {"candidate"}}[kind]
		for _, other := range wider {
			superset, found := channels[other+"-"+version]
			if !found && other != "candidate" {
				continue
			}
			for _, e := range channels[name] {
				if !slices.Contains(superset, e) {
					problems.add("%s is in channel %s and not in %s-%s", e, name, other, version)
				}
			}
		}
	}
	return problems
}

// checkChannel wants one line of releases, each upgraded to the next, and from each a way to the newest in one step.
func checkChannel(channel blob, bundles map[string]blob) []string {
	var problems say
	if !channelName.MatchString(channel.Name) {
		problems.add("channel %s is not named as in candidate-v0 or stable-v1", channel.Name)
	}
	versions := map[string]semver.Version{}
	for _, e := range channel.Entries {
		version, err := versionOf(e.Name)
		if err != nil {
			problems.add("channel %s: %v", channel.Name, err)
			return problems // what follows compares versions
		}
		if _, twice := versions[e.Name]; twice {
			problems.add("channel %s has %s twice", channel.Name, e.Name)
		}
		versions[e.Name] = version
		if _, found := bundles[e.Name]; !found {
			problems.add("channel %s has %s, and there is no such bundle", channel.Name, e.Name)
		}
		if len(version.Pre) > 0 && !strings.HasPrefix(channel.Name, "candidate-") {
			problems.add("channel %s has %s, which is a pre-release", channel.Name, e.Name)
		}
	}
	if len(channel.Entries) == 0 {
		problems.add("channel %s is empty", channel.Name)
		return problems
	}
	problems = append(problems, checkHead(channel, versions)...)
	for _, e := range channel.Entries {
		problems = append(problems, checkEdges(channel.Name, e, versions)...)
	}
	return problems
}

// checkHead wants one head, the newest, and no cycle on the way to it.
func checkHead(channel blob, versions map[string]semver.Version) []string {
	var problems say
	replaced, replaces := map[string]bool{}, map[string]string{}
	for _, e := range channel.Entries {
		replaces[e.Name] = e.Replaces
		for _, name := range append([]string{e.Replaces}, e.Skips...) {
			replaced[name] = true
		}
	}
	var heads []string
	for _, e := range channel.Entries {
		if !replaced[e.Name] {
			heads = append(heads, e.Name)
		}
		seen := []string{e.Name}
		for name := e.Replaces; name != ""; name = replaces[name] {
			if seen = append(seen, name); name == e.Name {
				problems.add("channel %s has a cycle: %s", channel.Name, strings.Join(seen, " replaces "))
			}
			if len(seen) > len(channel.Entries) {
				break
			}
		}
	}
	newest := slices.MaxFunc(slices.Collect(maps.Keys(versions)), func(a, b string) int { return versions[a].Compare(versions[b]) })
	switch {
	case len(heads) == 0:
		problems.add("channel %s has no head: every entry is replaced by another", channel.Name)
	case len(heads) > 1:
		slices.Sort(heads)
		problems.add("channel %s has several heads: %s", channel.Name, strings.Join(heads, ", "))
	case heads[0] != newest:
		problems.add("channel %s has the head %s, and %s is newer", channel.Name, heads[0], newest)
	}
	return problems
}

var boundedRange = regexp.MustCompile(`^>=(\S+) <(\S+)$`)

// checkEdges wants an entry to replace the one before it, and to be reached in one step from its own minor version and the one before,
// and from no older one: the operator understands agents of one minor version before.
func checkEdges(channel string, e entry, versions map[string]semver.Version) []string {
	var problems say
	own := versions[e.Name]
	var older []string
	for name, version := range versions {
		if version.LT(own) {
			older = append(older, name)
		}
	}
	slices.SortFunc(older, func(a, b string) int { return versions[a].Compare(versions[b]) })
	where := fmt.Sprintf("channel %s, %s", channel, e.Name)
	if len(older) == 0 {
		if e.Replaces != "" || e.SkipRange != "" {
			problems.add("%s is the oldest, and has replaces or a skipRange", where)
		}
		return problems
	}
	if want := older[len(older)-1]; e.Replaces != want {
		problems.add("%s replaces %q, not %s, the release before it", where, e.Replaces, want)
	}
	parts := boundedRange.FindStringSubmatch(e.SkipRange)
	if parts == nil {
		problems.add("%s has the skipRange %q, which is not bounded as in >=0.1.0 <%s", where, e.SkipRange, own)
		return problems
	}
	inRange, err := semver.ParseRange(e.SkipRange)
	if err != nil {
		problems.add("%s: skipRange: %v", where, err)
		return problems
	}
	if parts[2] != own.String() {
		problems.add("%s has a skipRange up to %s, not up to its own version", where, parts[2])
	}
	before := minorBefore(own, older, versions)
	for _, name := range older {
		far := versions[name].LT(before)
		if !far && !inRange(versions[name]) {
			problems.add("%s has the skipRange %s, which excludes %s: who runs it cannot upgrade in one step", where, e.SkipRange, name)
		}
		if far && inRange(versions[name]) {
			problems.add("%s has the skipRange %s, which includes %s: more than one minor version back", where, e.SkipRange, name)
		}
	}
	return problems
}

// minorBefore is the beginning of the newest minor version, among older ones in order, that is not own's; or of own's, if all are.
func minorBefore(own semver.Version, older []string, versions map[string]semver.Version) semver.Version {
	start := func(v semver.Version) semver.Version {
		// the lowest of all pre-releases comes first
		return semver.Version{Major: v.Major, Minor: v.Minor, Pre: []semver.PRVersion{{IsNum: true}}}
	}
	for _, name := range slices.Backward(older) {
		if v := versions[name]; v.Major != own.Major || v.Minor != own.Minor {
			return start(v)
		}
	}
	return start(own)
}

// checkBlob wants a bundle's blob to be small, and free of what OLM v1 refuses.
func checkBlob(b blob) []string {
	var problems say
	count := map[string]int{}
	for _, p := range b.Properties {
		count[p.Type]++
		switch {
		case p.Type == "olm.bundle.object":
			problems.add("bundle %s carries whole objects (olm.bundle.object)", b.Name)
		case strings.Contains(p.Type, "required"), strings.Contains(p.Type, "constraint"):
			problems.add("bundle %s has the property %s, which OLM v1 refuses", b.Name, p.Type)
		case p.Type == "olm.package":
			var value struct{ PackageName, Version string }
			if err := json.Unmarshal(p.Value, &value); err != nil || b.Name != value.PackageName+".v"+value.Version {
				problems.add("bundle %s says it is version %s of %s", b.Name, value.Version, value.PackageName)
			}
		}
	}
	if count["olm.csv.metadata"] != 1 || count["olm.package"] != 1 {
		problems.add("bundle %s has %d olm.csv.metadata and %d olm.package, not one of each", b.Name, count["olm.csv.metadata"], count["olm.package"])
	}
	if b.Image == "" {
		problems.add("bundle %s has no image", b.Name)
	}
	return problems
}

// checkReleased wants every release in the catalog, as it was released, and nothing else.
func checkReleased(c catalog, released map[string]string) []string {
	var problems say
	for _, version := range slices.Sorted(maps.Keys(released)) {
		name := packageName + ".v" + version
		b, found := c.bundles[name]
		switch {
		case !found:
			problems.add("the released %s is not in the catalog", name)
		case b.Image != released[version]:
			problems.add("the catalog has %s at %s, and it was released as %s", name, b.Image, released[version])
		case !byDigest.MatchString(b.Image):
			problems.add("the catalog has %s at %s, which is not by digest", name, b.Image)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.bundles)) {
		if _, found := released[strings.TrimPrefix(name, packageName+".v")]; !found && len(released) > 0 {
			problems.add("the catalog has %s, which has not been released", name)
		}
	}
	return problems
}
