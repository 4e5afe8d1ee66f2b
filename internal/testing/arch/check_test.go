package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// source is one Go file and the package it belongs to, by its path in the module ("" is the top).
type source struct {
	pkg  string
	file *ast.File
	fset *token.FileSet
	test bool
}

// position is where a node stands, for a message.
func (s source) position(n ast.Node) string {
	p := s.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// imports calls f for each import of the file, with its path.
func (s source) imports(f func(spec *ast.ImportSpec, importPath string)) {
	for _, spec := range s.file.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused it already
		}
		f(spec, importPath)
	}
}

// matches says whether a path is meant by a pattern: itself, or "x/..." for x and all below it.
func matches(pattern, p string) bool {
	if prefix, found := strings.CutSuffix(pattern, "/..."); found {
		return p == prefix || strings.HasPrefix(p, prefix+"/")
	}
	return pattern == p
}

func matchesAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}

// checkImports applies importRules, testOnly and libraryRules to one file of the module. Tests may import what they like of the
// layers: what they bend is not part of the program.
func checkImports(module string, s source) []string {
	if s.test {
		return nil
	}
	i := slices.IndexFunc(importRules, func(r importRule) bool { return matches(r.pkg, s.pkg) })
	if i < 0 {
		return []string{fmt.Sprintf("%s: package %q has no import rule; decide where it belongs (internal/testing/arch/rules_test.go)",
			s.position(s.file), s.pkg)}
	}
	var bad []string
	s.imports(func(spec *ast.ImportSpec, importPath string) {
		if complaint := checkImport(module, s.pkg, importPath, importRules[i].allow); complaint != "" {
			bad = append(bad, s.position(spec)+": "+complaint)
		}
	})
	return bad
}

func checkImport(module, pkg, importPath string, allow []string) string {
	if inside, ok := strings.CutPrefix(importPath, module+"/"); ok {
		if matchesAny(testOnly, inside) && !matchesAny(testOnly, pkg) {
			return fmt.Sprintf("%q must not import %q, which is for tests only", pkg, inside)
		}
		if inside != pkg && !matchesAny(allow, inside) {
			return fmt.Sprintf("%q must not import %q", pkg, inside)
		}
		return ""
	}
	if matchesAny(testOnly, pkg) {
		return ""
	}
	i := slices.IndexFunc(libraryRules, func(r libraryRule) bool { return matches(r.library, importPath) })
	if i >= 0 && !matchesAny(libraryRules[i].allow, pkg) {
		return fmt.Sprintf("%q must not import %q", pkg, importPath)
	}
	return ""
}

// checkPurity applies the rules for pure packages to one file.
func checkPurity(s source) []string {
	if s.test || !matchesAny(purePackages, s.pkg) {
		return nil
	}
	bad := checkPureImports(s)
	ast.Inspect(s.file, func(n ast.Node) bool {
		if complaint := impurity(s, n); complaint != "" {
			bad = append(bad, s.position(n)+": "+complaint)
		}
		return true
	})
	return bad
}

func checkPureImports(s source) []string {
	var bad []string
	complain := func(n ast.Node, format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s: %q is pure and ", s.position(n), s.pkg)+fmt.Sprintf(format, args...))
	}
	s.imports(func(spec *ast.ImportSpec, importPath string) {
		if matchesAny(impureImports, importPath) && !matchesAny(pureExceptions, importPath) {
			complain(spec, "must not import %q", importPath)
		}
		if matchesAny(standardLibraryOnly, s.pkg) && strings.Contains(strings.Split(importPath, "/")[0], ".") {
			complain(spec, "imports only the standard library, not %q", importPath)
		}
		if spec.Name != nil && (spec.Name.Name == "." || spec.Name.Name == "_") {
			complain(spec, "must import %q by a name, so that its use can be checked", importPath)
		}
	})
	return bad
}

// impurity says what is impure about a node; empty if nothing is. Names are resolved by the file's imports, not by types: a
// variable named like an imported package is taken for it.
func impurity(s source, n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return fmt.Sprintf("%q is pure and must not start goroutines", s.pkg)
	case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
		return fmt.Sprintf("%q is pure and must not use channels", s.pkg)
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return fmt.Sprintf("%q is pure and must not use channels", s.pkg)
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
			return fmt.Sprintf("%q is pure and must not call %s", s.pkg, id.Name)
		}
	case *ast.SelectorExpr:
		id, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		importPath := importedAs(s, id.Name)
		only, limited := pureNames[importPath]
		if slices.Contains(impureCalls[importPath], n.Sel.Name) || limited && !slices.Contains(only, n.Sel.Name) {
			return fmt.Sprintf("%q is pure and must not use %s.%s: take it as an argument", s.pkg, path.Base(importPath), n.Sel.Name)
		}
	}
	return ""
}

var majorSuffix = regexp.MustCompile(`^v[0-9]+$`)

// importedAs is the path of the import that a name in the file stands for; empty if there is none.
func importedAs(s source, name string) string {
	found := ""
	s.imports(func(spec *ast.ImportSpec, importPath string) {
		local := path.Base(importPath)
		if majorSuffix.MatchString(local) && strings.Contains(path.Dir(importPath), ".") && !strings.HasPrefix(importPath, "k8s.io/") {
			local = path.Base(path.Dir(importPath)) // a module's major version is not its package's name
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == name {
			found = importPath
		}
	})
	return found
}

// checkLiterals: names of labels, annotations and finalizers are written once, in internal/naming.
func checkLiterals(s source) []string {
	if s.test || matchesAny(domainPackages, s.pkg) || matchesAny(testOnly, s.pkg) {
		return nil
	}
	var bad []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, domain) {
			bad = append(bad, fmt.Sprintf("%s: use a constant of internal/naming instead of %s", s.position(lit), lit.Value))
		}
		return true
	})
	return bad
}
