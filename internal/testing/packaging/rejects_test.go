package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What must not pass: a broken copy of each kind, and what is said of it. `make verify` runs the same checks over the tree.

const (
	csvFile = "manifests/pgsteward.clusterserviceversion.yaml"
	crdFile = "manifests/pgsteward.io_postgresclusters.yaml"
)

func TestRejectsBundle(t *testing.T) {
	t.Parallel()
	config := configPermissions(t, at("config", "rbac"), manager)
	crds := loadCRDs(t, at("config", "crd", "bases"))
	labels := dockerLabels(t, at("bundle.Dockerfile"))
	for _, c := range []struct {
		name, file, old, replacement string
		check                        func(b bundle) []string
		says                         string
	}{
		{
			"permission beyond config", csvFile, "        - apiGroups:\n          - apps\n",
			"        - apiGroups:\n          - \"\"\n          resources:\n          - nodes\n          verbs:\n          - delete\n        - apiGroups:\n          - apps\n",
			func(b bundle) []string { return checkPermissions(b, config) },
			"the bundle's permission to delete nodes is not in config/rbac",
		},
		{
			"permission missing", csvFile, "          - storageclasses\n", "          - csidrivers\n",
			func(b bundle) []string { return checkPermissions(b, config) },
			"config/rbac's permission to list storageclasses.storage.k8s.io is not in the bundle",
		},
		{
			"image by tag on release", csvFile, "containerImage: ", "containerImage: example.com/pgsteward:v9 # ",
			func(b bundle) []string { return checkImages(b, true) },
			"annotation containerImage example.com/pgsteward:v9 is not by digest",
		},
		{
			"image that a mirror would miss", csvFile, "                - name: POD_NAME\n", "                - name: RELATED_IMAGE_X\n                  value: example.com/x:1\n                - name: POD_NAME\n",
			func(b bundle) []string { return checkImages(b, false) },
			"variable RELATED_IMAGE_X example.com/x:1 is not among the relatedImages",
		},
		{
			"annotation empty", csvFile, "    certified: \"false\"\n", "",
			checkAnnotations, "the CSV's annotation certified is missing",
		},
		{
			"another version", csvFile, "name: pgsteward.v", "name: pgsteward.v9",
			func(b bundle) []string { return checkNames(b, currentVersion(t)) }, "the CSV's name is pgsteward.v9",
		},
		{
			"field that no CRD has in an example", csvFile, `"replicas": 3`, `"replicas": "three"`,
			checkOwned, "spec.replicas in body must be of type integer",
		},
		{
			"no descriptors", csvFile, "      specDescriptors:\n", "      otherDescriptors:\n",
			checkOwned, "lacks resources, specDescriptors or statusDescriptors",
		},
		{
			"CRD not from config", crdFile, "pgc\n", "pgc\n  conversion:\n    strategy: None\n",
			func(b bundle) []string { return checkCRDs(b, crds) }, "has a conversion, which OLM would write",
		},
		{
			"CRD with another schema", crdFile, "maximum: 9", "maximum: 90",
			func(b bundle) []string { return checkCRDs(b, crds) }, "differs from config/crd",
		},
		{
			"label of another channel", "metadata/annotations.yaml", "candidate-v0", "edge-v0",
			func(b bundle) []string { return checkLabels(b, labels) },
			"annotations.yaml has operators.operatorframework.io.bundle.channels.v1=edge-v0",
		},
		{
			"writable root", csvFile, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false",
			checkDeployment, "container manager may write to its root",
		},
		{
			"a kind that OLM does not take", "manifests/pgsteward-metrics_v1_service.yaml", "kind: Service", "kind: NetworkPolicy",
			checkFiles, "is a NetworkPolicy",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := copyTree(t, at("bundle"))
			edit(t, filepath.Join(dir, c.file), c.old, c.replacement)
			mentions(t, c.check(loadBundle(t, dir)), c.says)
		})
	}
}

func TestRejectsUpgrade(t *testing.T) {
	t.Parallel()
	before := loadBundle(t, at("bundle"))
	require.Empty(t, checkUpgrade(before.crds, before.crds))
	for _, c := range []struct{ name, old, replacement, says string }{
		{"a stored version dropped", "    name: v1\n", "    name: v2\n", "postgresclusters.pgsteward.io/v1: the version that the last release stored is dropped"},
		{"a version not served", "    name: v1\n", "    name: v1\n    deprecated: true\n", ""},
		{"a limit tightened", "maximum: 9", "maximum: 5", "v1.spec.replicas: its maximum is tightened, from 9 to 5"},
		{"a value dropped", "                - \"15\"\n", "", `v1.spec.version: value "15" is not taken any more`},
		{"a default changed", "                default: 3\n", "                default: 2\n", "v1.spec.replicas: its default changed"},
		{"a field dropped", "              replicas:\n", "              members:\n", "v1.spec.replicas: the field is dropped"},
		{"cluster-wide", "  scope: Namespaced", "  scope: Cluster", "scope or kind changed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := copyTree(t, at("bundle"))
			edit(t, filepath.Join(dir, crdFile), c.old, c.replacement)
			problems := checkUpgrade(before.crds, loadBundle(t, dir).crds)
			if c.says == "" {
				assert.Empty(t, problems)
				return
			}
			mentions(t, problems, c.says)
		})
	}
}

func TestRejectsNewRequirement(t *testing.T) {
	t.Parallel()
	before, now := loadBundle(t, at("bundle")), loadBundle(t, at("bundle"))
	for i := range now.crds[0].Spec.Versions {
		spec := now.crds[0].Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		spec.Required = append(spec.Required, "image")
		now.crds[0].Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	mentions(t, checkUpgrade(before.crds, now.crds), ".spec.image: became required")

	now = loadBundle(t, at("bundle"))
	now.crds[0].Spec.Versions[0].Served = false
	mentions(t, checkUpgrade(before.crds, now.crds), "is not served any more, and was not deprecated")
	mentions(t, checkUpgrade(before.crds, nil), "CRD postgresclusters.pgsteward.io of the last release is gone")
}

// line is a good catalog: one channel for candidates and one that is stable, of these versions, oldest first.
func line(versions ...string) catalog {
	c := catalog{packages: []blob{{Name: packageName, DefaultChannel: "stable-v0"}}, bundles: map[string]blob{}}
	var entries []entry
	for i, version := range versions {
		name := packageName + ".v" + version
		e := entry{Name: name}
		if i > 0 {
			e.Replaces = packageName + ".v" + versions[i-1]
			e.SkipRange = fmt.Sprintf(">=%s <%s", versions[i-1], version)
		}
		entries = append(entries, e)
		c.bundles[name] = blob{Name: name, Image: "example.com/bundle@sha256:" + strings.Repeat("0", 64), Properties: []property{
			{Type: "olm.package", Value: fmt.Appendf(nil, `{"packageName":%q,"version":%q}`, packageName, version)},
			{Type: "olm.csv.metadata"},
		}}
	}
	for _, channel := range []string{"candidate-v0", "stable-v0"} {
		c.channels = append(c.channels, blob{Name: channel, Entries: append([]entry{}, entries...)})
	}
	return c
}

func TestRejectsCatalog(t *testing.T) {
	t.Parallel()
	require.Empty(t, checkCatalog(line("0.1.0", "0.2.0", "0.9.0", "0.10.0")), "0.10.0 is newer than 0.9.0")
	for _, c := range []struct {
		name string
		edit func(c *catalog)
		says string
	}{
		{"a missing bundle", func(c *catalog) { delete(c.bundles, "pgsteward.v0.2.0") },
			"channel stable-v0 has pgsteward.v0.2.0, and there is no such bundle"},
		{"two heads", func(c *catalog) { c.channels[1].Entries[2].Replaces = "pgsteward.v0.1.0" },
			"channel stable-v0 has several heads: pgsteward.v0.2.0, pgsteward.v0.3.0"},
		{"a cycle", func(c *catalog) { c.channels[1].Entries[1].Replaces = "pgsteward.v0.3.0" },
			"channel stable-v0 has a cycle: pgsteward.v0.2.0 replaces pgsteward.v0.3.0 replaces pgsteward.v0.2.0"},
		{"no head", func(c *catalog) { c.channels[1].Entries[0].Replaces = "pgsteward.v0.3.0" },
			"channel stable-v0 has no head"},
		{"a skipRange without the running version", func(c *catalog) { c.channels[1].Entries[2].SkipRange = ">=0.2.1 <0.3.0" },
			"pgsteward.v0.3.0 has the skipRange >=0.2.1 <0.3.0, which excludes pgsteward.v0.2.0"},
		{"a skipRange over two minor versions", func(c *catalog) { c.channels[1].Entries[2].SkipRange = ">=0.1.0 <0.3.0" },
			"which includes pgsteward.v0.1.0: more than one minor version back"},
		{"a skipRange without an end", func(c *catalog) { c.channels[1].Entries[2].SkipRange = "<0.3.0" }, "which is not bounded"},
		{"a skipRange beyond itself", func(c *catalog) { c.channels[1].Entries[2].SkipRange = ">=0.1.0 <0.4.0" }, "not up to its own version"},
		{"skipped by range only", func(c *catalog) { c.channels[1].Entries[2].Replaces = "" }, `pgsteward.v0.3.0 replaces "", not pgsteward.v0.2.0`},
		{"an older head", func(c *catalog) {
			e := c.channels[1].Entries
			e[2].Replaces, e[1].Replaces = "pgsteward.v0.1.0", "pgsteward.v0.3.0"
		}, "channel stable-v0 has the head pgsteward.v0.2.0, and pgsteward.v0.3.0 is newer"},
		{"stable without having been a candidate", func(c *catalog) { c.channels[0].Entries = c.channels[0].Entries[:2] },
			"pgsteward.v0.3.0 is in channel stable-v0 and not in candidate-v0"},
		{"a channel of another name", func(c *catalog) { c.channels[0].Name = "alpha" }, "channel alpha is not named"},
		{"a default that is not there", func(c *catalog) { c.packages[0].DefaultChannel = "stable-v1" }, "the default channel stable-v1"},
		{"whole objects", func(c *catalog) {
			b := c.bundles["pgsteward.v0.1.0"]
			b.Properties = append(b.Properties, property{Type: "olm.bundle.object"})
			c.bundles["pgsteward.v0.1.0"] = b
		}, "bundle pgsteward.v0.1.0 carries whole objects"},
		{"a requirement", func(c *catalog) {
			b := c.bundles["pgsteward.v0.1.0"]
			b.Properties = append(b.Properties, property{Type: "olm.gvk.required"})
			c.bundles["pgsteward.v0.1.0"] = b
		}, "olm.gvk.required, which OLM v1 refuses"},
		{"a deprecation of nothing", func(c *catalog) {
			e := entry{}
			e.Reference.Schema, e.Reference.Name = "olm.bundle", "pgsteward.v0.0.9"
			c.deprecations = []blob{{Entries: []entry{e}}}
		}, "the deprecated olm.bundle pgsteward.v0.0.9 does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			broken := line("0.1.0", "0.2.0", "0.3.0")
			c.edit(&broken)
			mentions(t, checkCatalog(broken), c.says)
		})
	}
}

func TestRejectsPreReleaseInStable(t *testing.T) {
	t.Parallel()
	mentions(t, checkCatalog(line("0.1.0", "0.2.0-rc.1")), "channel stable-v0 has pgsteward.v0.2.0-rc.1, which is a pre-release")
}

func TestRejectsReleased(t *testing.T) {
	t.Parallel()
	image := func(digit string) string { return "example.com/bundle@sha256:" + strings.Repeat(digit, 64) }
	c := line("0.1.0", "0.2.0")
	assert.Empty(t, checkReleased(c, map[string]string{"0.1.0": image("0"), "0.2.0": image("0")}))
	mentions(t, checkReleased(c, map[string]string{"0.1.0": image("0"), "0.2.0": image("1")}), "and it was released as "+image("1"))
	mentions(t, checkReleased(c, map[string]string{"0.1.0": image("0")}), "the catalog has pgsteward.v0.2.0, which has not been released")
	mentions(t, checkReleased(c, map[string]string{"0.3.0": image("0")}), "the released pgsteward.v0.3.0 is not in the catalog")
}

func TestRejectsCatalogDockerfile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, old, replacement, says string }{
		{"another opm", "FROM quay.io/operator-framework/opm:v", "FROM quay.io/operator-framework/opm:v9", "is from [quay.io/operator-framework/opm:v9"},
		{"no label", "LABEL ", "LABEL x.", "has the label operators.operatorframework.io.index.configs.v1=, not /configs"},
		{"another cache", `"--cache-dir=/tmp/cache", "--cache-only"`, `"--cache-dir=/cache", "--cache-only"`, "does not build and serve the same cache"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "Dockerfile")
			content, err := os.ReadFile(at("catalog.Dockerfile"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, content, 0o600))
			edit(t, path, c.old, c.replacement)
			mentions(t, checkCatalogDockerfile(t, path), c.says)
		})
	}
}

func TestRejectsTemplates(t *testing.T) {
	t.Parallel()
	ours := line("0.1.0", "0.2.0", "0.3.0")
	require.Empty(t, checkSame(ours, line("0.1.0", "0.2.0", "0.3.0")))
	require.Empty(t, checkSameReleases(ours, line("0.1.0", "0.2.0", "0.3.0")))

	rendered := line("0.1.0", "0.2.0", "0.3.0")
	rendered.channels[1].Entries[2].SkipRange = ""
	mentions(t, checkSame(ours, rendered), "it makes the channels")
	assert.Empty(t, checkSameReleases(ours, rendered), "it has no ranges of ours")
	rendered = line("0.1.0", "0.2.0", "0.3.0")
	delete(rendered.bundles, "pgsteward.v0.2.0")
	mentions(t, checkSame(ours, rendered), "the bundle pgsteward.v0.2.0, rendered from its image, is not the one in catalog/")
	mentions(t, checkSameReleases(ours, rendered), "it makes the channels")
	mentions(t, checkSameReleases(ours, line("0.1.0", "0.2.0")), "it makes the channels")
}

// mentions wants one of the problems to say it.
func mentions(tb testing.TB, problems []string, says string) {
	tb.Helper()
	assert.Contains(tb, strings.Join(problems, "\n"), says)
}
