package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredPoints reads from the code at which moments of a landing a crash is tried: every constant of type point in the
// packages that land. One that the code never tells of fails the test.
func declaredPoints(t *testing.T) []string {
	t.Helper()
	var all []string
	for dir, prefix := range map[string]string{"../merge": "merge:", "../forge/local": ""} {
		for _, pkg := range packagesBelow(t, dir) {
			named, told := pointsOf(t, pkg)
			for name, value := range named {
				if !told[name] {
					t.Errorf("%s of %s is a point that the code never tells of", name, pkg)
				}
				all = append(all, prefix+value)
			}
		}
	}
	slices.Sort(all)
	if twice := len(all) - len(slices.Compact(slices.Clone(all))); twice > 0 || len(all) < 20 {
		t.Fatalf("the points that were read are not all, or some have one name: %q", all)
	}
	return all
}

func packagesBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// pointsOf are the points that a package declares, by the name of the constant, and which constants it tells of by at(…).
func pointsOf(t *testing.T, dir string) (named map[string]string, told map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	named, told = map[string]string{}, map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				declare(t, named, n)
			case *ast.CallExpr:
				tell(told, n)
			}
			return true
		})
	}
	return named, told
}

func declare(t *testing.T, named map[string]string, spec *ast.ValueSpec) {
	t.Helper()
	if kind, is := spec.Type.(*ast.Ident); !is || kind.Name != "point" {
		return
	}
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			continue // a variable
		}
		literal, is := spec.Values[i].(*ast.BasicLit)
		if !is {
			t.Fatalf("point %s isn't written out", name.Name)
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		named[name.Name] = value
	}
}

func tell(told map[string]bool, call *ast.CallExpr) {
	name := ""
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		name = fn.Name
	case *ast.SelectorExpr:
		name = fn.Sel.Name
	}
	if name != "at" {
		return
	}
	for _, arg := range call.Args {
		if constant, is := arg.(*ast.Ident); is {
			told[constant.Name] = true
		}
	}
}
