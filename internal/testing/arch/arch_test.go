package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImports: every import of the tree goes the way that importRules allow.
func TestImports(t *testing.T) {
	t.Parallel()
	module, sources := tree(t)
	for _, s := range sources {
		for _, complaint := range checkImports(module, s) {
			t.Error(complaint)
		}
	}
}

// TestPurity: what decides has no client, context, clock, environment, random source, logger, goroutine or channel.
func TestPurity(t *testing.T) {
	t.Parallel()
	_, sources := tree(t)
	for _, s := range sources {
		for _, complaint := range checkPurity(s) {
			t.Error(complaint)
		}
	}
}

// TestLiterals: the domain is written in internal/naming and apis only.
func TestLiterals(t *testing.T) {
	t.Parallel()
	_, sources := tree(t)
	for _, s := range sources {
		for _, complaint := range checkLiterals(s) {
			t.Error(complaint)
		}
	}
}

// TestTreeIsRead guards the tests above against passing because they found nothing to look at.
func TestTreeIsRead(t *testing.T) {
	t.Parallel()
	module, sources := tree(t)
	require.Equal(t, "github.com/pgsteward/pgsteward", module)
	packages := map[string]bool{}
	for _, s := range sources {
		packages[s.pkg] = true
	}
	for _, pkg := range []string{"", "apis/v1", "controllers", "internal/naming", "internal/plan", "internal/testing/arch"} {
		require.Contains(t, packages, pkg)
	}
}

// tree parses the Go files of this module. Folders with a go.mod of their own are other modules.
func tree(t *testing.T) (module string, sources []source) {
	t.Helper()
	root := moduleRoot(t)
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	module = strings.TrimPrefix(strings.SplitN(string(goMod), "\n", 2)[0], "module ")

	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(p, rel)
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		if pkg == "." {
			pkg = ""
		}
		sources = append(sources, source{pkg: pkg, file: file, fset: fset, test: strings.HasSuffix(p, "_test.go")})
		return nil
	})
	require.NoError(t, err)
	return module, sources
}

// skipFolder is fs.SkipDir for a folder that does not belong to the module.
func skipFolder(p, rel string) error {
	if rel == "." {
		return nil
	}
	name := filepath.Base(rel)
	if name == "testdata" || name == "bin" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// moduleRoot is the folder of go.mod, upwards from here.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		require.NotEqual(t, filepath.Dir(dir), dir, "no go.mod above the working directory")
		dir = filepath.Dir(dir)
	}
}
