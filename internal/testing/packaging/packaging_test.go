package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const manager = "pgsteward-manager"

// at is a path in the work tree.
func at(path ...string) string { return filepath.Join(append([]string{root}, path...)...) }

// currentVersion is VERSION in the Makefile, the only place that says it.
func currentVersion(tb testing.TB) string {
	tb.Helper()
	content, err := os.ReadFile(at("Makefile"))
	require.NoError(tb, err)
	match := regexp.MustCompile(`(?m)^VERSION \?= (\S+)$`).FindSubmatch(content)
	require.NotNil(tb, match, "the Makefile says no VERSION")
	return string(match[1])
}

// isRelease says whether the tree is that of a release: its images are pinned.
func isRelease() bool {
	_, err := os.Stat(at("config", "manifests", "images.env"))
	return err == nil
}

// good fails the test with each problem.
func good(tb testing.TB, problems []string, of ...string) {
	tb.Helper()
	for _, problem := range problems {
		tb.Errorf("%s", strings.Join(append(of, problem), ": "))
	}
}

func TestBundle(t *testing.T) {
	t.Parallel()
	b := loadBundle(t, at("bundle"))
	good(t, checkLibrary(b), "operator-sdk")
	good(t, checkNames(b, currentVersion(t)))
	good(t, checkAnnotations(b))
	good(t, checkLabels(b, dockerLabels(t, at("bundle.Dockerfile"))))
	good(t, checkOwned(b))
	good(t, checkCRDs(b, installed(t, loadCRDs(t, at("config", "crd", "bases")))))
	good(t, checkImages(b, isRelease()))
	good(t, checkDeployment(b))
	good(t, checkWebhooks(b))
	good(t, checkFiles(b))
	good(t, checkPermissions(b, configPermissions(t, at("config", "rbac"), manager)))
}

// TestBundleChannels: the bundle's annotations and the catalog agree on the default channel.
func TestBundleChannels(t *testing.T) {
	t.Parallel()
	b := loadBundle(t, at("bundle"))
	c := loadCatalog(t, at("catalog", packageName))
	require.Len(t, c.packages, 1)
	assert.Equal(t, c.packages[0].DefaultChannel, b.annotations["operators.operatorframework.io.bundle.channel.default.v1"])
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	c := loadCatalog(t, at("catalog", packageName))
	good(t, checkCatalog(c))
	released := map[string]string{}
	for _, version := range releases(t, at("releases")) {
		released[version] = releasedImage(t, at("releases", "v"+version), "BUNDLE_IMAGE")
	}
	good(t, checkReleased(c, released))
}

func TestCatalogImage(t *testing.T) {
	t.Parallel()
	good(t, checkCatalogDockerfile(t, at("catalog.Dockerfile")))
}

// TestReleases: what was released stays what it was, and each release is good by today's rules for images.
func TestReleases(t *testing.T) {
	t.Parallel()
	for _, version := range releases(t, at("releases")) {
		dir := at("releases", "v"+version)
		good(t, checkSums(t, dir))
		b := loadBundle(t, filepath.Join(dir, "bundle"))
		good(t, checkNames(b, version), version)
		good(t, checkImages(b, true), version)
	}
}

// TestUpgrade: objects of the last release stay valid.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	now := loadBundle(t, at("bundle"))
	before := lastBefore(releases(t, at("releases")), currentVersion(t))
	if before == "" {
		t.Skip("there is no release before this version")
	}
	last := loadBundle(t, at("releases", "v"+before, "bundle"))
	good(t, checkUpgrade(last.crds, now.crds), "since v"+before)
	for _, obj := range examples(last) {
		good(t, checkStillValid(now, obj), "since v"+before)
	}
}

// checkStillValid validates an object of an older release by the schema its version has now.
func checkStillValid(b bundle, obj unstructured.Unstructured) []string {
	for _, crd := range b.crds {
		for _, v := range crd.Spec.Versions {
			if obj.GetAPIVersion() == crd.Spec.Group+"/"+v.Name && obj.GetKind() == crd.Spec.Names.Kind {
				return checkObject(v.Schema, obj)
			}
		}
	}
	return []string{obj.GetAPIVersion() + " " + obj.GetKind() + " is not served any more"}
}
