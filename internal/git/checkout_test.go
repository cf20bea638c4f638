package git_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/git"
	"orch/internal/testgit"
)

func TestCheckout(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	ctx := t.Context()
	first := f.source.Head()
	f.source.Commit("second", map[string]string{"a": "2\n"})
	f.fetch(t)
	dir := filepath.Join(f.dir, "checkouts", "x")
	for range 2 { // a former one is replaced
		if err := f.mirror.Checkout(ctx, dir, first); err != nil {
			t.Fatal(err)
		}
		c := testgit.Open(t, dir)
		if c.Head() != first || c.Read("a") != "1\n" || c.Git("status", "--porcelain") != "" {
			t.Error("not the commit")
		}
		c.Write(map[string]string{"ro/x": "x"})
		if err := os.Chmod(filepath.Join(dir, "ro"), 0o500); err != nil {
			t.Fatal(err)
		}
	}
	if err := git.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	testgit.Open(t, dir).Write(map[string]string{"precious": "p"})
	if err := f.mirror.Checkout(ctx, dir, first); err == nil {
		t.Error("a foreign directory is replaced")
	}
	if err := f.mirror.Checkout(ctx, filepath.Join(f.dir, "y"), strings.Repeat("1", 40)); err == nil {
		t.Error("an unknown commit is no error")
	}
}
