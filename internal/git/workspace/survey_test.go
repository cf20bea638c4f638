package workspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/testgit"
)

// A pipe where git reads a file, or a link to one, would make it wait until its time is over. Whatever looks says what is
// there, at once, and the next round has a workspace in which all works.
func TestPipesNeverBlock(t *testing.T) {
	t.Parallel()
	pipe := func(name string) func(t *testing.T, a *testgit.Repo) {
		return func(t *testing.T, a *testgit.Repo) {
			t.Helper()
			path := filepath.Join(a.Dir, name)
			_ = os.Remove(path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]func(t *testing.T, a *testgit.Repo){
		"HEAD":               pipe(".git/HEAD"),
		"alternates":         pipe(".git/objects/info/alternates"),
		"a branch":           pipe(".git/refs/heads/x"),
		"packed refs":        pipe(".git/packed-refs"),
		"an index of a pack": pipe(".git/objects/pack/pack-" + strings.Repeat("1", 40) + ".idx"),
		"ignored files":      pipe("deep/down/.gitignore"),
		"attributes":         pipe(".gitattributes"),
		"attributes deep":    pipe("deep/down/.gitattributes"),
		"submodules":         pipe(".gitmodules"),
		"a link to a pipe": func(t *testing.T, a *testgit.Repo) {
			t.Helper()
			pipe("pipe")(t, a)
			a.Symlink("../../../pipe", ".git/refs/heads/x")
		},
		"a repository within": func(t *testing.T, a *testgit.Repo) {
			t.Helper()
			testgit.NewAt(t, filepath.Join(a.Dir, "repo"), map[string]string{"r": "r\n"})
			pipe("repo/.git/HEAD")(t, a)
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, map[string]string{"a": "1\n"})
			ctx := t.Context()
			w, agent := f.workspace(t)
			agent.Commit("work", map[string]string{"work": "w\n", "deep/down/b": "1\n"})
			agent.Write(map[string]string{"untracked": "u"})
			do(t, agent)
			quick := must[*gitcmd.Git](t)(gitcmd.New(ctx, gitcmd.Config{Timeout: workTimeoutOfTests}))
			m := must[*git.Mirror](t)(git.OpenMirror(ctx, quick, f.mirror.Dir()))
			w = must[*workspace.Workspace](t)(workspace.At(ctx, m, workspace.Spec{Dir: w.Dir(), Branch: "orch/k"}))
			_, headless := w.Head(ctx)
			dirty, unseen := w.Dirty(ctx)
			for _, err := range []error{headless, unseen} {
				if err != nil && strings.Contains(err.Error(), gitcmd.ErrTimeout.Error()) {
					t.Error(err)
				}
			}
			if headless == nil && unseen == nil && name != "packed refs" {
				t.Errorf("nothing is said of it, dirty is %q", dirty)
			}
			again := must[*workspace.Workspace](t)(workspace.Open(ctx, m, workspace.Spec{Dir: w.Dir(), Branch: "orch/k"}))
			if err := again.Reset(ctx, "refs/orch/salvage/k/9"); err != nil {
				t.Fatal(err)
			}
			if status := agent.Git("status", "--porcelain", "--branch"); status != "## orch/k" {
				t.Errorf("the agent sees %q", status)
			}
			var kept strings.Builder
			for _, s := range must[[]workspace.Kept](t)(workspace.Salvages(ctx, m, "k")) {
				kept.WriteString(f.inMirror(t, "ls-tree", "-r", "--name-only", s.Commit))
			}
			if !strings.Contains(kept.String(), "untracked") || !strings.Contains(kept.String(), "work") {
				t.Errorf("kept: %s", kept.String())
			}
		})
	}
}

// A killed git leaves locks at refs too, where the next commit would fail on them.
func TestLocksOfAKilledGitAreGoneNextRound(t *testing.T) {
	t.Parallel()
	locks := map[string]string{
		".git/index.lock": "", ".git/HEAD.lock": "", ".git/config.lock": "", ".git/packed-refs.lock": "", ".git/shallow.lock": "",
		".git/refs/heads/orch/k.lock": "", ".git/logs/refs/heads/orch/k.lock": "", ".git/refs/heads/objects/x.lock": "",
	}
	rounds := map[string]func(w *workspace.Workspace) error{
		"reset":    func(w *workspace.Workspace) error { return w.Reset(t.Context(), "refs/orch/salvage/k/1") },
		"continue": func(w *workspace.Workspace) error { return w.Continue(t.Context()) },
	}
	for name, round := range rounds {
		f := setup(t, map[string]string{"a": "1\n"})
		w, agent := f.workspace(t)
		head := agent.Commit("work", map[string]string{"work": "w\n"})
		agent.Write(map[string]string{"more": "m\n"})
		agent.Write(locks)
		if err := round(w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		agent.Git("pack-refs", "--all")
		if next := agent.Commit("next", nil); must[string](t)(w.Head(t.Context())) != next {
			t.Errorf("%s: not imported", name)
		}
		changed := agent.Git("diff", "--name-only", head, "HEAD")
		if want := map[string]string{"reset": "", "continue": "more"}[name]; changed != want {
			t.Errorf("%s: found there: %q", name, changed)
		}
	}
}

// Directories that are closed, or may not be written, keep neither anything from being salvaged nor the next round waiting.
func TestReadOnlyTreeIsResetAndSalvaged(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "dir/b": "2\n", "secret": "3\n"})
	_, agent := f.workspace(t)
	agent.Write(map[string]string{
		"dir/b": "changed\n", "cache/module/x": "x\n", "closed/inside": "i\n", "unreadable": "u\n", "secret": "s\n",
	})
	for name, mode := range map[string]fs.FileMode{
		"cache/module": 0o555, "cache": 0o555, "dir": 0o555, "closed": 0, "unreadable": 0, "secret": 0, "": 0o555,
	} {
		if err := os.Chmod(filepath.Join(agent.Dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	f.resetAsOrdinaryUser(t)
	if status := agent.Git("status", "--porcelain", "--branch"); status != "## orch/k" || agent.Read("dir/b") != "2\n" {
		t.Errorf("the agent sees %q", status)
	}
	for name, want := range map[string]string{
		"dir/b": "changed", "cache/module/x": "x", "closed/inside": "i", "unreadable": "u", "secret": "s",
	} {
		if got := f.inMirror(t, "show", "refs/orch/salvage/k/1:"+name); got != want {
			t.Errorf("%s is kept as %q", name, got)
		}
	}
	if _, err := os.Lstat(filepath.Join(agent.Dir, "closed")); !os.IsNotExist(err) {
		t.Error("what wasn't tracked is still there")
	}
}

// Somebody who removes a workspace may also leave something else in its place.
func TestAnythingInPlaceOfAWorkspace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		put  func(path string) error
		kept bool
	}{
		"a file":   {func(path string) error { return os.WriteFile(path, []byte("f\n"), 0o600) }, true},
		"a link":   {func(path string) error { return os.Symlink("/etc", path) }, false},
		"a pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, false},
		"nowhere":  {func(path string) error { return os.Symlink("nowhere", path) }, false},
		"a closed": {func(path string) error { return os.Mkdir(path, 0) }, false},
	}
	for name, tt := range tests {
		f := setup(t, map[string]string{"a": "1\n"})
		w, agent := f.workspace(t)
		agent.Remove("")
		if err := tt.put(w.Dir()); err != nil {
			t.Fatal(err)
		}
		wantProblemOf(t, name, w)
		w, agent = f.workspace(t)
		if err := w.Reset(t.Context(), "refs/orch/salvage/k/2"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if status := agent.Git("status", "--porcelain", "--branch"); status != "## orch/k" {
			t.Errorf("%s: the agent sees %q", name, status)
		}
		list := must[[]workspace.Kept](t)(workspace.Salvages(t.Context(), f.mirror, "k"))
		if tt.kept != (len(list) == 1) || tt.kept && f.inMirror(t, "show", list[0].Commit+":k") != "f" {
			t.Errorf("%s: kept %v", name, list)
		}
	}
}

func wantProblemOf(t *testing.T, name string, w *workspace.Workspace) {
	t.Helper()
	_, err := w.Head(t.Context())
	if err == nil {
		t.Errorf("%s is there, and head has an answer", name)
	}
}

// What couldn't be kept is told where people look for it, once.
func TestNotesAloneAreKept(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, agent := f.workspace(t)
	agent.Write(map[string]string{".git/refs/heads/lost": strings.Repeat("1", 40) + "\n"})
	next := func() string { return must[string](t)(workspace.NextSalvageRef(t.Context(), f.mirror, "k")) }
	id := must[string](t)(w.Salvage(t.Context(), next()))
	if id == "" || !strings.Contains(f.inMirror(t, "log", "-1", "--format=%b", id), "111111111111 not kept") {
		t.Fatalf("not told: %q", id)
	}
	if again := must[string](t)(w.Salvage(t.Context(), next())); again != id {
		t.Errorf("told again as %s, was %s", again, id)
	}
	agent.Write(map[string]string{".git/refs/heads/lost": strings.Repeat("2", 40) + "\n"})
	if other := must[string](t)(w.Salvage(t.Context(), next())); other == id {
		t.Error("something else isn't told")
	}
}
