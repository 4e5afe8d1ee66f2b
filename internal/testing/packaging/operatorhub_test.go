package packaging

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/stretchr/testify/require"
	sigsyaml "sigs.k8s.io/yaml"
)

// ciConfig is ci.yaml as the community's pipeline has it, with every field that it takes and we use.
type ciConfig struct {
	Reviewers []string `json:"reviewers"`
	FBC       struct {
		Enabled        bool `json:"enabled"`
		CatalogMapping []struct {
			TemplateName string   `json:"template_name"`
			Type         string   `json:"type"`
			CatalogNames []string `json:"catalog_names"`
		} `json:"catalog_mapping"`
	} `json:"fbc"`
}

// releaseConfig is release-config.yaml of a bundle.
type releaseConfig struct {
	DefaultChannel   string `json:"defaultChannel"`
	CatalogTemplates []struct {
		TemplateName string   `json:"template_name"`
		Channels     []string `json:"channels"`
		Replaces     string   `json:"replaces"`
		SkipRange    string   `json:"skipRange"`
	} `json:"catalog_templates"`
}

// TestOperatorHub judges what make operatorhub laid out in the folder OPERATORHUB, and the catalogs in the folder RENDERED that opm made
// of the templates.
func TestOperatorHub(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("OPERATORHUB")
	if dir == "" {
		t.Skip("make operatorhub sets OPERATORHUB")
	}
	good(t, checkSubmission(t, dir))
	c := loadTemplate(t, filepath.Join(dir, "catalog-templates", "basic.yaml"))
	for _, channel := range c.channels {
		for _, e := range channel.Entries {
			c.bundles[e.Name] = blob{}
		}
		good(t, checkChannel(channel, c.bundles))
	}
	ours := loadCatalog(t, at("catalog", packageName))
	good(t, checkSame(ours, loadCatalog(t, filepath.Join(os.Getenv("RENDERED"), "basic"))), "basic.yaml")
	good(t, checkSameReleases(ours, loadCatalog(t, filepath.Join(os.Getenv("RENDERED"), "semver"))), "semver.yaml")
}

// checkSame wants a rendered catalog to be ours.
func checkSame(ours, rendered catalog) []string {
	var problems say
	if !reflect.DeepEqual(ours.packages, rendered.packages) {
		problems.add("it makes the package %v, and ours is %v", rendered.packages, ours.packages)
	}
	if !reflect.DeepEqual(ours.channels, rendered.channels) {
		problems.add("it makes the channels %v, and ours are %v", rendered.channels, ours.channels)
	}
	if !reflect.DeepEqual(ours.deprecations, rendered.deprecations) {
		problems.add("it makes the deprecations %v, and ours are %v", rendered.deprecations, ours.deprecations)
	}
	for _, name := range slices.Sorted(maps.Keys(ours.bundles)) {
		if !reflect.DeepEqual(ours.bundles[name], rendered.bundles[name]) {
			problems.add("the bundle %s, rendered from its image, is not the one in catalog/", name)
		}
	}
	return problems
}

// checkSameReleases wants the channels of a catalog that is ordered by version alone to have our names, releases and images.
func checkSameReleases(ours, rendered catalog) []string {
	var problems say
	names := func(c catalog) map[string][]string {
		channels := map[string][]string{}
		for _, channel := range c.channels {
			for _, e := range channel.Entries {
				channels[channel.Name] = append(channels[channel.Name], e.Name+" "+c.bundles[e.Name].Image)
			}
			slices.Sort(channels[channel.Name])
		}
		return channels
	}
	if got, want := names(rendered), names(ours); !reflect.DeepEqual(got, want) {
		problems.add("it makes the channels %v, and ours are %v", got, want)
	}
	return problems
}

// loadTemplate reads a template in olm.template.basic.
func loadTemplate(tb testing.TB, path string) catalog {
	tb.Helper()
	var template struct {
		Schema  string `json:"schema"`
		Entries []blob `json:"entries"`
	}
	decodeFile(tb, path, &template)
	require.Equal(tb, "olm.template.basic", template.Schema)
	c := catalog{bundles: map[string]blob{}}
	for _, b := range template.Entries {
		switch b.Schema {
		case "olm.package":
			c.packages = append(c.packages, b)
		case "olm.channel":
			c.channels = append(c.channels, b)
		case "olm.bundle":
			require.Regexp(tb, byDigest, b.Image)
		case "olm.deprecations":
			c.deprecations = append(c.deprecations, b)
		default:
			require.Fail(tb, "what is this?", b.Schema)
		}
	}
	require.Len(tb, c.packages, 1)
	require.NotEmpty(tb, c.channels)
	return c
}

// checkSubmission wants the layout and the schemas of operators/pgsteward in the community's repositories.
func checkSubmission(tb testing.TB, dir string) []string {
	tb.Helper()
	var problems say
	var ci ciConfig
	strict(tb, filepath.Join(dir, "ci.yaml"), &ci)
	if len(ci.Reviewers) == 0 || !ci.FBC.Enabled || len(ci.FBC.CatalogMapping) == 0 {
		problems.add("ci.yaml has no reviewers, or no file-based catalog")
	}
	var templates []string
	for _, mapping := range ci.FBC.CatalogMapping {
		templates = append(templates, mapping.TemplateName)
		if mapping.Type != "olm.template.basic" && mapping.Type != "olm.semver" {
			problems.add("ci.yaml maps a template of type %s", mapping.Type)
		}
		if len(mapping.CatalogNames) == 0 {
			problems.add("ci.yaml maps %s to no catalog", mapping.TemplateName)
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(tb, err)
	for _, e := range entries {
		if _, err := semver.Parse(e.Name()); err == nil {
			problems = append(problems, checkSubmittedBundle(tb, filepath.Join(dir, e.Name()), templates)...)
		} else if e.Name() != "ci.yaml" && e.Name() != "catalog-templates" {
			problems.add("%s does not belong here", e.Name())
		}
	}
	return problems
}

func checkSubmittedBundle(tb testing.TB, dir string, templates []string) []string {
	tb.Helper()
	var problems say
	version := filepath.Base(dir)
	entries, err := os.ReadDir(dir)
	require.NoError(tb, err)
	for _, e := range entries {
		if !slices.Contains([]string{"manifests", "metadata", "tests", "release-config.yaml"}, e.Name()) {
			problems.add("%s/%s does not belong here", version, e.Name())
		}
	}
	b := loadBundle(tb, dir)
	problems = append(problems, checkNames(b, version)...)
	problems = append(problems, checkImages(b, true)...)
	problems = append(problems, checkFiles(b)...)
	var config releaseConfig
	strict(tb, filepath.Join(dir, "release-config.yaml"), &config)
	if !strings.HasPrefix(config.DefaultChannel, "stable-v") || len(config.CatalogTemplates) == 0 {
		problems.add("%s/release-config.yaml has no default channel or no template", version)
	}
	for _, template := range config.CatalogTemplates {
		if !slices.Contains(templates, template.TemplateName) {
			problems.add("%s/release-config.yaml names the template %s, which ci.yaml does not", version, template.TemplateName)
		}
		if len(template.Channels) == 0 {
			problems.add("%s/release-config.yaml names no channel", version)
		}
	}
	return problems
}

// strict decodes a file that may have no field but those of the type.
func strict(tb testing.TB, path string, into any) {
	tb.Helper()
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.NoError(tb, sigsyaml.UnmarshalStrict(content, into), path)
}
