package workspace_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/git"
	"orch/internal/git/workspace"
	"orch/internal/testgit"
)

// withSubmodule is a repository with a submodule at sub, whose upstream has two commits.
func withSubmodule(t *testing.T) *fixture {
	t.Helper()
	f := setup(t, map[string]string{"a": "1\n"})
	lib := testgit.NewAt(t, filepath.Join(f.dir, "lib"), map[string]string{"l": "one\n", ".gitignore": "*.o\n"})
	lib.Commit("second", map[string]string{"l": "2\n"})
	f.source.Git("-c", "protocol.file.allow=always", "submodule", "add", "-q", lib.Dir, "sub")
	f.source.Commit("with a submodule", nil)
	f.fetch(t)
	return f
}

// populate has the agent fill its submodule.
func populate(t *testing.T, agent *testgit.Repo) *testgit.Repo {
	t.Helper()
	agent.Git("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
	return testgit.Open(t, filepath.Join(agent.Dir, "sub"))
}

// history has the names of all files that any commit of a salvage has, and their content.
func (f *fixture) history(t *testing.T, commit string) string {
	t.Helper()
	return f.inMirror(t, "log", "-m", "--root", "-p", "--format=%s", commit)
}

func TestSubmoduleWorkIsNeverLost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do      func(t *testing.T, agent, sub *testgit.Repo)
		dirty   string
		kept    []string // what the salvage's history must have
		not     string   // and what it mustn't
		emptied bool     // the submodule is to be filled again
	}{
		"as it was": {do: func(*testing.T, *testgit.Repo, *testgit.Repo) {}},
		"built": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Write(map[string]string{"x.o": "ignored\n"})
		}},
		"changed": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Write(map[string]string{"l": "changed\n", "new": "untracked\n", "x.o": "ignored\n"})
		}, dirty: "sub/", kept: []string{"+changed", "+untracked"}, not: "ignored", emptied: true},
		"committed": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Commit("made within", map[string]string{"l": "committed\n"})
		}, dirty: "sub", kept: []string{"made within", "+committed"}, emptied: true},
		"committed, then changed": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Commit("made within", map[string]string{"l": "committed\n"})
			sub.Write(map[string]string{"l": "changed\n"})
		}, dirty: "sub sub/", kept: []string{"made within", "changed"}, emptied: true},
		"put at an older commit": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Git("checkout", "-q", "HEAD~")
		}, dirty: "sub", not: "+one", emptied: true},
		"a branch of its own": {do: func(_ *testing.T, _, sub *testgit.Repo) {
			sub.Git("checkout", "-q", "-b", "side")
			sub.Commit("aside", map[string]string{"l": "aside\n"})
			sub.Git("checkout", "-q", "--detach", "HEAD~")
		}, kept: []string{"aside"}},
		"removed": {do: func(_ *testing.T, agent, _ *testgit.Repo) {
			agent.Remove("sub")
		}, dirty: "sub", emptied: true},
		"a file in its place": {do: func(_ *testing.T, agent, _ *testgit.Repo) {
			agent.Remove("sub")
			agent.Write(map[string]string{"sub": "file\n"})
		}, dirty: "sub", kept: []string{"+file"}, emptied: true},
		"a repository within it": {do: func(t *testing.T, _, sub *testgit.Repo) {
			t.Helper()
			testgit.NewAt(t, filepath.Join(sub.Dir, "deeper"), map[string]string{"d": "deep\n"})
		}, dirty: "sub/", kept: []string{"+deep"}, emptied: true},
		"its repository elsewhere": {do: func(t *testing.T, agent, sub *testgit.Repo) {
			t.Helper()
			elsewhere := testgit.New(t, map[string]string{"secret": "s3cret\n"})
			sub.Write(map[string]string{".git": "gitdir: " + filepath.Join(elsewhere.Dir, ".git") + "\n", "l": "changed\n"})
		}, dirty: "sub/", kept: []string{"+changed"}, not: "s3cret", emptied: true},
		"its repository broken": {do: func(_ *testing.T, agent, sub *testgit.Repo) {
			agent.Remove(".git/modules/sub/objects")
			sub.Write(map[string]string{"l": "changed\n"})
		}, dirty: "sub/", kept: []string{"+changed"}, emptied: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := withSubmodule(t)
			ctx := t.Context()
			w, agent := f.workspace(t)
			head := agent.Commit("work", map[string]string{"work": "w\n"})
			tt.do(t, agent, populate(t, agent))
			if got := must[string](t)(w.Head(ctx)); got != head {
				t.Errorf("head is %s", got)
			}
			if dirty := strings.Join(must[[]string](t)(w.Dirty(ctx)), " "); dirty != tt.dirty {
				t.Errorf("dirty is %q", dirty)
			}
			nothing := tt.dirty == "" && tt.kept == nil
			if clean := must[bool](t)(w.Clean(ctx)); clean != nothing {
				t.Errorf("clean is %v", clean)
			}
			id := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1"))
			if again := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/2")); again != id {
				t.Errorf("kept again as %s, was %s", again, id)
			}
			kept := f.history(t, id)
			for _, want := range tt.kept {
				if !strings.Contains(kept, want) {
					t.Errorf("%q isn't kept:\n%s", want, kept)
				}
			}
			if tt.not != "" && strings.Contains(kept, tt.not) {
				t.Errorf("%q is kept", tt.not)
			}
			f.inMirror(t, "fsck", "--connectivity-only", id)
			for range 2 { // it is over with the first
				if err := w.Reset(ctx, "refs/orch/salvage/k/3"); err != nil {
					t.Fatal(err)
				}
			}
			if status := agent.Git("status", "--porcelain", "--branch"); status != "## orch/k" {
				t.Errorf("the agent sees %q", status)
			}
			if _, err := os.Lstat(filepath.Join(agent.Dir, "sub", "l")); (err != nil) != tt.emptied {
				t.Errorf("in the submodule: %v", err)
			}
			if tt.emptied && name != "its repository broken" {
				if got := populate(t, agent).Read("l"); got != "2\n" {
					t.Errorf("filled again with %q", got)
				}
			}
		})
	}
}

// A submodule that isn't there, as in each fresh workspace, is neither a change nor in the way.
func TestSubmoduleLeftEmptyIsClean(t *testing.T) {
	t.Parallel()
	f := withSubmodule(t)
	w, agent := f.workspace(t)
	agent.Write(map[string]string{"sub/copied": "by hand, not by git\n"})
	if dirty := must[[]string](t)(w.Dirty(t.Context())); len(dirty) != 0 {
		t.Errorf("dirty is %q", dirty)
	}
	if err := w.Reset(t.Context(), "refs/orch/salvage/k/1"); err != nil || agent.Read("sub/copied") == "" {
		t.Fatal(err)
	}
	id := must[string](t)(w.Salvage(t.Context(), "refs/orch/salvage/k/1"))
	if kept := f.history(t, id); !strings.Contains(kept, "by hand") {
		t.Errorf("kept:\n%s", kept)
	}
}

// The work in a submodule reaches the branch as a link, which lands as it is; its commits are kept, since only the
// workspace has them.
func TestSubmoduleLinkSurvivesLandingAndItsCommitsTheWorkspace(t *testing.T) {
	t.Parallel()
	f := withSubmodule(t)
	ctx := t.Context()
	w, agent := f.workspace(t)
	within := populate(t, agent).Commit("made within", map[string]string{"l": "3\n"})
	head := agent.Commit("move the submodule", nil)
	if got := must[string](t)(w.Head(ctx)); got != head || len(must[[]string](t)(w.Dirty(ctx))) != 0 {
		t.Fatalf("head is %s", got)
	}
	base := f.source.Commit("meanwhile", map[string]string{"z": "z\n"})
	f.fetch(t)
	replayed := must[git.Replayed](t)(f.mirror.Replay(ctx, base, head, git.Identity{Name: "orch", Email: "o@x"}))
	if entry := f.inMirror(t, "ls-tree", replayed.Commit, "sub"); !strings.Contains(entry, "160000 commit "+within) {
		t.Errorf("landed as %q", entry)
	}
	if err := f.mirror.Checkout(ctx, filepath.Join(f.dir, "checkout"), replayed.Commit); err != nil {
		t.Error(err)
	}
	if must[bool](t)(w.Clean(ctx)) {
		t.Error("nothing would be lost")
	}
	id := must[string](t)(w.Salvage(ctx, "refs/orch/salvage/k/1"))
	if !must[bool](t)(f.mirror.IsAncestor(ctx, within, id)) {
		t.Error("the submodule's commit is lost")
	}
}

func TestNestedRepositoryKeepsItsHistory(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, agent := f.workspace(t)
	own := testgit.NewAt(t, filepath.Join(agent.Dir, "own"), map[string]string{"o": "first\n", "kept.o": "tracked\n"})
	own.Commit("second", map[string]string{"o": "second\n", ".gitignore": "*.o\n"})
	own.Write(map[string]string{"o": "third\n", "x.o": "ignored\n"})
	upstream := testgit.NewAt(t, filepath.Join(f.dir, "upstream"), map[string]string{"u": "first of upstream\n"})
	upstream.Commit("of upstream", map[string]string{"u": "now\n"})
	agent.Git("clone", "-q", upstream.Dir, "cloned")
	agent.Git("clone", "-q", "--depth", "1", "file://"+upstream.Dir, "shallow")
	id := must[string](t)(w.Salvage(t.Context(), "refs/orch/salvage/k/1"))
	for name, want := range map[string]string{"own/o": "third", "own/kept.o": "tracked", "cloned/u": "now", "shallow/u": "now"} {
		if got := f.inMirror(t, "show", id+":"+name); got != want {
			t.Errorf("%s is kept as %q", name, got)
		}
	}
	for commit, want := range map[string]bool{own.Head(): true, upstream.Head(): false} {
		_, err := testgit.Open(t, f.mirror.Dir()).Try("merge-base", "--is-ancestor", commit, id)
		if (err == nil) != want {
			t.Errorf("history up to %s is kept: %v", commit, err == nil)
		}
	}
	body := f.inMirror(t, "log", "-1", "--format=%b", id)
	if !strings.Contains(body, upstream.Head()[:12]) {
		t.Errorf("nobody can tell what was cloned: %q", body)
	}
	if _, err := testgit.Open(t, f.mirror.Dir()).Try("cat-file", "-e", id+":own/x.o"); err == nil {
		t.Error("an ignored file is kept")
	}
	if err := workspace.Remove(t.Context(), f.mirror, w.Dir(), "orch/k"); err != nil {
		t.Error(err)
	}
}

// Some agents give each of their helpers a work tree of its own.
func TestLinkedWorkTreesAreKept(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, agent := f.workspace(t)
	agent.Git("worktree", "add", "-q", "--detach", ".helpers/one")
	agent.Git("worktree", "add", "-q", "-b", "two", ".helpers/two")
	one, two := testgit.Open(t, filepath.Join(agent.Dir, ".helpers", "one")), testgit.Open(t, filepath.Join(agent.Dir, ".helpers", "two"))
	detached := one.Commit("of one", map[string]string{"one": "committed\n"})
	branch := two.Commit("of two", map[string]string{"two": "committed\n"})
	two.Write(map[string]string{"two": "changed\n"})
	if err := w.Reset(t.Context(), "refs/orch/salvage/k/1"); err != nil {
		t.Fatal(err)
	}
	if got := f.inMirror(t, "show", "refs/orch/salvage/k/1:.helpers/two/two"); got != "changed" {
		t.Errorf("kept %q", got)
	}
	id := must[string](t)(w.Salvage(t.Context(), "refs/orch/salvage/k/2"))
	for _, commit := range []string{detached, branch} {
		if !must[bool](t)(f.mirror.IsAncestor(t.Context(), commit, id)) {
			t.Errorf("%s is lost", commit)
		}
	}
}
