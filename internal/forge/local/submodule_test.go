package local_test

import (
	"path/filepath"
	"testing"

	"orch/internal/forge"
	"orch/internal/testgit"
)

// A landing that moves a submodule's link leaves the submodule itself to its owner, and isn't in the way of the next one.
func TestLandMovesAGitlinkAndLeavesTheSubmoduleAlone(t *testing.T) {
	t.Parallel()
	lib := testgit.New(t, map[string]string{"l": "1\n"})
	target := testgit.New(t, map[string]string{"a": "1\n"})
	target.Git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib.Dir, "sub")
	target.Commit("with a submodule", nil)
	before := lib.Head()
	after := lib.Commit("later", map[string]string{"l": "2\n"})
	last := lib.Commit("last", map[string]string{"l": "3\n"})
	f := setup(t, target)
	f.work.Git("update-index", "--cacheinfo", "160000,"+after+",sub")
	f.work.Git("commit", "-q", "-m", "move the link")
	to := f.work.Head()
	f.work.Git("push", "-q", "-f", f.mirror.Dir(), "HEAD:refs/orch/land/k")
	target.Write(map[string]string{"sub/l": "somebody's\n", "sub/untracked": "u\n"})
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	if err := f.refresh(t, to); err != nil {
		t.Fatal(err)
	}
	sub := testgit.Open(t, filepath.Join(target.Dir, "sub"))
	if link := target.Git("rev-parse", "HEAD:sub"); link != after || target.Git("diff", "--cached", "--name-only") != "" {
		t.Errorf("the link is at %s, staged is %q", link, target.Git("diff", "--cached", "--name-only"))
	}
	if sub.Head() != before || sub.Read("l") != "somebody's\n" || sub.Read("untracked") != "u\n" {
		t.Errorf("the submodule was touched: it is at %s with %q", sub.Head(), sub.Read("l"))
	}
	f.old = to // the owner hasn't run git submodule update yet
	f.work.Write(map[string]string{"a": "2\n"})
	f.work.Git("add", "a")
	f.work.Git("update-index", "--cacheinfo", "160000,"+last+",sub")
	f.work.Git("commit", "-q", "-m", "move both")
	f.work.Git("push", "-q", "-f", f.mirror.Dir(), "HEAD:refs/orch/land/k")
	if err := f.land(t, f.work.Head()); err != nil {
		t.Fatalf("the next: %v", err)
	}
	if err := f.refresh(t, f.work.Head()); err != nil || target.Read("a") != "2\n" || sub.Head() != before {
		t.Errorf("the next: %v, the submodule is at %s", err, sub.Head())
	}
	target.Git("update-index", "--cacheinfo", "160000,"+before+",sub") // staged by its owner
	f.old = f.work.Head()
	wantProblem(t, f.land(t, f.commit(t, map[string]string{"a": "3\n"})), forge.CodeDirty, "changes: sub")
}
