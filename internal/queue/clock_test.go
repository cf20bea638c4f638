package queue_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a worker's clock says decides nothing: an hour off, it changes nothing, because nobody asks it.
func TestNothingAsksTheWallClock(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, dir := range []string{".", "prune"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, src, 0)
			if err != nil {
				t.Fatal(err)
			}
			asked++
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := call.X.(*ast.Ident)
				if ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, call.Sel.Name) {
					t.Errorf("%s calls time.%s", name, call.Sel.Name)
				}
				return true
			})
		}
	}
	if asked < 10 {
		t.Fatalf("looked at %d files only", asked)
	}
}
