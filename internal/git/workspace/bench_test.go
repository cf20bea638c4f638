package workspace_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/testgit"
)

// The costs of what a task needs of git, on a small repository.
func BenchmarkGit(b *testing.B) {
	g, err := gitcmd.New(b.Context(), gitcmd.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, dir := b.Context(), b.TempDir()
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("d%d/f%d", i%10, i)] = fmt.Sprintf("%d\n", i)
	}
	source := testgit.NewAt(b, filepath.Join(dir, "source"), files)
	start := source.Head()
	source.Git("checkout", "-q", "-b", "topic")
	source.Commit("one", map[string]string{"d1/f1": "one\n"})
	head := source.Commit("two", map[string]string{"d2/f2": "two\n"})
	source.Git("checkout", "-q", "main")
	base := source.Commit("upstream", map[string]string{"d3/f3": "up\n"})
	n := 0
	check := func(b *testing.B, err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	var m *git.Mirror
	var w *workspace.Workspace
	b.Run("MirrorFetchWorkspace", func(b *testing.B) {
		for b.Loop() {
			n++
			m, err = git.OpenMirror(ctx, g, filepath.Join(dir, fmt.Sprint("m", n)))
			check(b, err)
			check(b, m.Fetch(ctx, source.Dir))
			w, err = workspace.Open(ctx, m, workspace.Spec{Dir: filepath.Join(dir, fmt.Sprint("w", n)), Branch: "orch/k", Start: start})
			check(b, err)
		}
	})
	b.Run("FetchNothing", func(b *testing.B) {
		for b.Loop() {
			check(b, m.Fetch(ctx, source.Dir))
		}
	})
	b.Run("Head", func(b *testing.B) {
		for b.Loop() {
			_, err := w.Head(ctx)
			check(b, err)
		}
	})
	b.Run("Dirty", func(b *testing.B) {
		for b.Loop() {
			_, err := w.Dirty(ctx)
			check(b, err)
		}
	})
	b.Run("Checkout", func(b *testing.B) {
		for b.Loop() {
			n++
			check(b, m.Checkout(ctx, filepath.Join(dir, fmt.Sprint("c", n)), base))
		}
	})
	b.Run("ReplayTwoCommits", func(b *testing.B) {
		for b.Loop() {
			_, err := m.Replay(ctx, base, head, git.Identity{Name: "orch", Email: "orch@example.com"})
			check(b, err)
		}
	})
}
