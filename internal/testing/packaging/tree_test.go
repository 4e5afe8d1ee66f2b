package packaging

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// root is the top of the work tree.
const root = "../../.."

// packageName is ours in every catalog.
const packageName = "pgsteward"

// bundle is one version of the operator as OLM gets it.
type bundle struct {
	dir         string
	csv         *v1alpha1.ClusterServiceVersion
	crds        []*apiextensionsv1.CustomResourceDefinition
	files       []manifest
	annotations map[string]string
}

// manifest is one file of a bundle.
type manifest struct {
	name    string
	kind    metav1.TypeMeta
	content []byte
}

// loadBundle reads a bundle's folder.
func loadBundle(tb testing.TB, dir string) bundle {
	tb.Helper()
	b := bundle{dir: dir}
	entries, err := os.ReadDir(filepath.Join(dir, "manifests"))
	require.NoError(tb, err)
	for _, entry := range entries {
		if entry.IsDir() {
			b.files = append(b.files, manifest{name: entry.Name() + "/"})
			continue
		}
		b.add(tb, entry.Name())
	}
	require.NotNil(tb, b.csv, "%s has no ClusterServiceVersion", dir)

	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	decodeFile(tb, filepath.Join(dir, "metadata", "annotations.yaml"), &metadata)
	b.annotations = metadata.Annotations
	return b
}

func (b *bundle) add(tb testing.TB, name string) {
	tb.Helper()
	path := filepath.Join(b.dir, "manifests", name)
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	file := manifest{name: name, content: content}
	require.NoError(tb, sigsyaml.Unmarshal(content, &file.kind), path)
	b.files = append(b.files, file)
	switch file.kind.Kind {
	case v1alpha1.ClusterServiceVersionKind:
		b.csv = &v1alpha1.ClusterServiceVersion{}
		require.NoError(tb, sigsyaml.Unmarshal(content, b.csv), path)
	case "CustomResourceDefinition":
		crd := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(tb, sigsyaml.Unmarshal(content, crd), path)
		b.crds = append(b.crds, crd)
	}
}

// loadCRDs reads the CRDs of config/, by name.
func loadCRDs(tb testing.TB, dir string) map[string]*apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, path := range yamlFiles(tb, dir) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		decodeFile(tb, path, crd)
		crds[crd.Name] = crd
	}
	return crds
}

// installed are those of the CRDs that config/crd installs: what is still being built is generated, and not there for users.
func installed(tb testing.TB, crds map[string]*apiextensionsv1.CustomResourceDefinition) map[string]*apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	decodeFile(tb, at("config", "crd", "kustomization.yaml"), &kustomization)
	there := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for name, crd := range crds {
		if slices.Contains(kustomization.Resources, "bases/"+crd.Spec.Group+"_"+crd.Spec.Names.Plural+".yaml") {
			there[name] = crd
		}
	}
	require.NotEmpty(tb, there)
	return there
}

// yamlFiles are the YAML files right below a folder, in order.
func yamlFiles(tb testing.TB, dir string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(tb, err)
	require.NotEmpty(tb, files, "no YAML in %s", dir)
	return files
}

func decodeFile(tb testing.TB, path string, into any) {
	tb.Helper()
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.NoError(tb, sigsyaml.Unmarshal(content, into), path)
}

// documents splits a YAML file at its "---" lines.
func documents(tb testing.TB, path string) [][]byte {
	tb.Helper()
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	var docs [][]byte
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs
		}
		require.NoError(tb, err, path)
		if len(bytes.TrimSpace(doc)) > 0 {
			docs = append(docs, doc)
		}
	}
}

// dockerLabels are the LABEL lines of a Dockerfile.
func dockerLabels(tb testing.TB, path string) map[string]string {
	tb.Helper()
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	labels := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); found {
			key, value, _ := strings.Cut(rest, "=")
			labels[key] = value
		}
	}
	return labels
}

// copyTree copies a folder into a temporary one that a test may break.
func copyTree(tb testing.TB, from string) string {
	tb.Helper()
	to := filepath.Join(tb.TempDir(), filepath.Base(from))
	require.NoError(tb, os.CopyFS(to, os.DirFS(from)))
	return to
}

// edit replaces text in a file, which must be there.
func edit(tb testing.TB, path, old, replacement string) {
	tb.Helper()
	content, err := os.ReadFile(path)
	require.NoError(tb, err)
	require.Contains(tb, string(content), old, path)
	require.NoError(tb, os.WriteFile(path, []byte(strings.Replace(string(content), old, replacement, 1)), 0o600))
}

// releases are the folders of releases/, oldest first as their names sort; a tree before its first release has none.
func releases(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(tb, err)
	var versions []string
	for _, entry := range entries {
		if entry.IsDir() {
			versions = append(versions, strings.TrimPrefix(entry.Name(), "v"))
		}
	}
	sortVersions(versions)
	return versions
}

// say makes a list of problems printf-like.
type say []string

func (s *say) add(format string, args ...any) { *s = append(*s, fmt.Sprintf(format, args...)) }
