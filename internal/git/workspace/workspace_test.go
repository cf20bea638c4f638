package workspace_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/git/worktree"
	"orch/internal/testgit"
)

func TestWorkspaceLife(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "sub/b": "x\n", ".gitignore": "*.log\n"})
	ctx := t.Context()
	w, agent := f.workspace(t)
	start := f.source.Head()
	if got := must[string](t)(w.Head(ctx)); got != start || w.Start() != start {
		t.Fatalf("head %s, start %s, want %s", got, w.Start(), start)
	}
	if dirty := must[[]string](t)(w.Dirty(ctx)); len(dirty) != 0 {
		t.Errorf("fresh, but dirty: %q", dirty)
	}
	if status := agent.Git("status", "--porcelain", "--branch"); status != "## orch/k" {
		t.Errorf("the agent sees %q", status)
	}
	if remotes := agent.Git("remote"); remotes != "" {
		t.Errorf("remotes: %q", remotes)
	}
	if who := agent.Git("config", "user.name"); who != `An "Agent"` {
		t.Errorf("the agent is %q", who)
	}

	agent.Write(map[string]string{"a": "2\n", "new file\n\"q\"": "n", "x.log": "ignored", "sub/c/d": "deep"})
	agent.Remove("sub/b")
	agent.Git("add", "a")
	want := "a|new file\n\"q\"|sub/b|sub/c/d"
	if dirty := must[[]string](t)(w.Dirty(ctx)); strings.Join(dirty, "|") != want {
		t.Errorf("dirty is %q", dirty)
	}
	head := agent.Commit("work", nil)
	if got := must[string](t)(w.Head(ctx)); got != head {
		t.Errorf("head is %s, want %s", got, head)
	}
	if got := must[string](t)(f.mirror.Ref(ctx, "refs/heads/orch/k")); got != head {
		t.Errorf("imported is %s, want %s", got, head)
	}

	// The base moves on: the workspace is still the one it was.
	f.source.Commit("other", map[string]string{"z": "z"})
	f.fetch(t)
	again, _ := f.workspace(t)
	if again.Start() != start {
		t.Errorf("start is now %s, was %s", again.Start(), start)
	}
	if got := must[string](t)(again.Head(ctx)); got != head {
		t.Errorf("head is now %s, was %s", got, head)
	}

	// Lost as a whole, it goes on where the imported branch is.
	if err := os.RemoveAll(w.Dir()); err != nil {
		t.Fatal(err)
	}
	again, agent = f.workspace(t)
	if got := must[string](t)(again.Head(ctx)); got != head || agent.Read("sub/c/d") != "deep" {
		t.Errorf("made anew at %s, want %s", got, head)
	}
	if err := workspace.Remove(ctx, f.mirror, again.Dir(), "orch/k"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.Dir()); !os.IsNotExist(err) {
		t.Error("removed, but there")
	}
}

func TestWorkspaceOfSHA256(t *testing.T) {
	t.Parallel()
	g := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{}))
	f := &fixture{dir: t.TempDir()}
	f.source = testgit.NewAt(t, filepath.Join(f.dir, "source"), map[string]string{"a": "1\n"}, "--object-format=sha256")
	f.mirror = must[*git.Mirror](t)(git.OpenMirror(t.Context(), g, filepath.Join(f.dir, "m")))
	f.fetch(t)
	w, agent := f.workspace(t)
	head := agent.Commit("work", map[string]string{"b": "2\n"})
	if got := must[string](t)(w.Head(t.Context())); got != head {
		t.Errorf("head is %s, want %s", got, head)
	}
	base := f.source.Commit("other", map[string]string{"c": "3\n"})
	f.fetch(t)
	if _, err := f.mirror.Replay(t.Context(), base, head, git.Identity{Name: "orch", Email: "o@x"}); err != nil {
		t.Error(err)
	}
}

func TestWorkspaceOverLeftovers(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	dir := filepath.Join(f.dir, "workspaces")
	testgit.Open(t, dir).Write(map[string]string{
		".k.new/.git/HEAD": "torn", ".k.old/x": "x", // of a killed orch
		"k/precious": "p", // no repository, but something
	})
	w, agent := f.workspace(t)
	if dirty := must[[]string](t)(w.Dirty(t.Context())); len(dirty) != 0 || agent.Read("a") != "1\n" {
		t.Errorf("dirty: %q", dirty)
	}
	if got := f.inMirror(t, "show", "refs/orch/salvage/k/1:precious"); got != "p" {
		t.Errorf("salvaged is %q", got)
	}
}

func TestHeadSaysWhatHappened(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(agent *testgit.Repo)
		want worktree.Problem // "" when the branch is fine
		kept string           // a file that salvage must have
	}{
		{"detached on the branch", func(a *testgit.Repo) { a.Git("checkout", "-q", "--detach") }, "", "work"},
		{"detached on the start", func(a *testgit.Repo) { a.Git("checkout", "-q", "--detach", "HEAD~") }, "", "work"},
		{"detached with work", func(a *testgit.Repo) {
			a.Git("checkout", "-q", "--detach")
			a.Commit("more", map[string]string{"more": "m"})
		}, worktree.ProblemOtherBranch, "more"},
		{"another branch", func(a *testgit.Repo) {
			a.Git("checkout", "-q", "-b", "feature")
			a.Commit("more", map[string]string{"more": "m"})
		}, worktree.ProblemOtherBranch, "more"},
		{"an orphan branch", func(a *testgit.Repo) { a.Git("checkout", "-q", "--orphan", "empty") }, worktree.ProblemOtherBranch, "work"},
		{"branch deleted", func(a *testgit.Repo) {
			a.Git("checkout", "-q", "--detach")
			a.Git("branch", "-D", "orch/k")
		}, worktree.ProblemBranchDeleted, "work"},
		{"history rewritten", func(a *testgit.Repo) {
			a.Git("checkout", "-q", "--orphan", "fresh")
			a.Commit("all in one", map[string]string{"more": "m"})
			a.Git("branch", "-q", "-M", "orch/k")
		}, worktree.ProblemRewritten, "more"},
		{"amended", func(a *testgit.Repo) { a.Git("commit", "-q", "--amend", "-m", "better") }, "", "work"},
		{"collected", func(a *testgit.Repo) { a.Git("gc", "-q", "--prune=now", "--aggressive") }, "", "work"},
		{"repacked without borrowing", func(a *testgit.Repo) {
			a.Git("repack", "-q", "-a", "-d")
			a.Remove(".git/objects/info/alternates")
		}, "", "work"},
		{"borrowing from elsewhere", func(a *testgit.Repo) {
			a.Write(map[string]string{".git/objects/info/alternates": "/somewhere/else\n"})
		}, worktree.ProblemStrange, "work"},
		{"repository removed", func(a *testgit.Repo) { a.Remove(".git") }, worktree.ProblemNoRepository, "work"},
		{"repository made anew", func(a *testgit.Repo) {
			a.Remove(".git")
			a.Git("init", "-q", "-b", "main")
			a.Commit("all", nil)
		}, worktree.ProblemBranchDeleted, "work"},
		{"a file for .git", func(a *testgit.Repo) {
			a.Remove(".git")
			a.Write(map[string]string{".git": "gitdir: /etc\n"})
		}, worktree.ProblemStrange, "work"},
		{"a link for .git", func(a *testgit.Repo) {
			_ = os.Rename(filepath.Join(a.Dir, ".git"), filepath.Join(a.Dir, "moved"))
			a.Symlink("moved", ".git")
		}, worktree.ProblemStrange, "work"},
		{"no objects", func(a *testgit.Repo) { a.Remove(".git/objects") }, worktree.ProblemNoRepository, "work"},
		{"torn HEAD", func(a *testgit.Repo) { a.Write(map[string]string{".git/HEAD": "ref: ../../x"}) }, worktree.ProblemCorrupt, "work"},
		{"torn branch", func(a *testgit.Repo) { a.Write(map[string]string{".git/refs/heads/orch/k": "???"}) }, worktree.ProblemBranchDeleted, "work"},
		{"a branch to nowhere", func(a *testgit.Repo) {
			a.Write(map[string]string{".git/refs/heads/orch/k": strings.Repeat("1", 40) + "\n"})
		}, worktree.ProblemCorrupt, "work"},
		{"workspace gone", func(a *testgit.Repo) { a.Remove("") }, worktree.ProblemGone, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, map[string]string{"a": "1\n"})
			ctx := t.Context()
			w, agent := f.workspace(t)
			agent.Commit("work", map[string]string{"work": "w"})
			agent.Write(map[string]string{"untracked": "u"})
			tt.do(agent)
			_, err := w.Head(ctx)
			if tt.want == "" && err != nil {
				t.Errorf("head: %v", err)
			}
			if tt.want != "" {
				wantProblem(t, err, tt.want)
			}
			ref := "refs/orch/salvage/k/7"
			if _, err := w.Salvage(ctx, ref); err != nil {
				t.Fatalf("salvage: %v", err)
			}
			if tt.kept != "" {
				all := f.inMirror(t, "log", "--format=", "--name-only", "-m", "--root", ref) + f.inMirror(t, "ls-tree", "-r", "--name-only", ref)
				for _, name := range []string{tt.kept, "untracked"} {
					if !strings.Contains(all, name) {
						t.Errorf("%s wasn't salvaged: %s", name, all)
					}
				}
			}
			// Whatever it was, the next round starts in a good workspace.
			w, _ = f.workspace(t)
			if err := w.Reset(ctx, "refs/orch/salvage/k/8"); err != nil {
				t.Fatalf("reset: %v", err)
			}
			if _, err := w.Head(ctx); err != nil {
				t.Errorf("head after reset: %v", err)
			}
			if dirty := must[[]string](t)(w.Dirty(ctx)); len(dirty) != 0 {
				t.Errorf("dirty after reset: %q", dirty)
			}
			if status := testgit.Open(t, w.Dir()).Git("status", "--porcelain", "--branch"); status != "## orch/k" {
				t.Errorf("the agent sees %q", status)
			}
		})
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "dir/b": "2\n", "run.sh": "#!\n", ".gitignore": "cache/\n"})
	ctx := t.Context()
	w, agent := f.workspace(t)
	head := agent.Commit("work", map[string]string{"work": "w\n"})
	agent.Git("checkout", "-q", "-b", "side", "HEAD~")
	agent.Commit("side", map[string]string{"work": "other\n"})
	_, _ = agent.Try("merge", "orch/k") // leaves a conflict
	agent.Write(map[string]string{"new/deep/file": "n", "cache/kept": "c", ".git/index.lock": ""})
	agent.Remove("dir")
	agent.Symlink("/etc", "dir")
	if err := os.Chmod(filepath.Join(agent.Dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.Reset(ctx, "refs/orch/salvage/k/1"); err != nil {
		t.Fatal(err)
	}
	if got := agent.Git("status", "--porcelain", "--branch"); got != "## orch/k" {
		t.Errorf("status: %q", got)
	}
	if agent.Head() != head || agent.Read("work") != "w\n" || agent.Read("cache/kept") != "c" || agent.Read("dir/b") != "2\n" {
		t.Error("not what the branch has")
	}
	if _, err := os.Stat(filepath.Join(agent.Dir, "new")); !os.IsNotExist(err) {
		t.Error("an untracked directory is left")
	}
	salvaged := f.inMirror(t, "ls-tree", "-r", "refs/orch/salvage/k/1")
	for _, want := range []string{"120000", "100755 blob", "new/deep/file"} {
		if !strings.Contains(salvaged, want) {
			t.Errorf("not salvaged: %s in\n%s", want, salvaged)
		}
	}
	if log := f.inMirror(t, "log", "--format=%s", "refs/orch/salvage/k/1"); !strings.Contains(log, "side") {
		t.Errorf("the other branch's commit is lost: %s", log)
	}
	// Nothing to lose: nothing salvaged.
	if err := w.Reset(ctx, "refs/orch/salvage/k/2"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.mirror.Ref(ctx, "refs/orch/salvage/k/2"); err == nil {
		t.Error("a clean workspace was salvaged")
	}
}

// What the newest salvage has already isn't kept a second time: not after a crash, and not by the next round.
func TestSalvageOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	ctx := t.Context()
	w, agent := f.workspace(t)
	next := func() string { return must[string](t)(workspace.NextSalvageRef(ctx, f.mirror, "k")) }
	keep := func() string { return must[string](t)(w.Salvage(ctx, next())) }
	if first := next(); first != "refs/orch/salvage/k/1" || keep() != "" {
		t.Errorf("first is %s, or nothing was kept", first)
	}
	agent.Commit("work", map[string]string{"work": "w\n"})
	committed := keep()
	if again := keep(); again != committed || next() != "refs/orch/salvage/k/2" {
		t.Errorf("a commit was kept again: %s, %s", committed, again)
	}
	agent.Write(map[string]string{"untracked": "u"})
	dirty := keep()
	if again := keep(); again != dirty || dirty == committed || next() != "refs/orch/salvage/k/3" {
		t.Errorf("a work tree was kept again: %s, %s", dirty, again)
	}
	f.inMirror(t, "update-ref", "refs/orch/salvage/k/10", committed)
	if list := must[[]workspace.Kept](t)(workspace.Salvages(ctx, f.mirror, "k")); len(list) != 3 ||
		list[1].Commit != dirty || list[2].Ref != "refs/orch/salvage/k/10" || next() != "refs/orch/salvage/k/11" {
		t.Errorf("%+v", list)
	}
}

// At looks and touches nothing, where Open would make a broken workspace anew.
func TestAtLooksOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, agent := f.workspace(t)
	agent.Remove(".git")
	looked := must[*workspace.Workspace](t)(workspace.At(t.Context(), f.mirror, workspace.Spec{Dir: w.Dir(), Branch: "orch/k"}))
	_, err := looked.Head(t.Context())
	wantProblem(t, err, worktree.ProblemNoRepository)
	if _, err := os.Lstat(filepath.Join(w.Dir(), ".git")); !os.IsNotExist(err) {
		t.Error("made anew")
	}
}

// A removal that fails half-way leaves no half of a workspace in its place, and is finished by the next one.
func TestRemoveTakesItAwayAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, _ := f.workspace(t)
	blocked := git.Hidden(w.Dir(), "new")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped")) // the files go, the ref in the mirror can't
	if err := workspace.Remove(ctx, f.mirror, w.Dir(), "orch/k"); err == nil {
		t.Fatal("no error")
	}
	if _, err := os.Lstat(w.Dir()); !os.IsNotExist(err) {
		t.Error("still in its place")
	}
	testgit.Open(t, blocked).Write(map[string]string{"x": "x"})
	if err := workspace.Remove(t.Context(), f.mirror, w.Dir(), "orch/k"); err != nil {
		t.Error(err)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(w.Dir()))); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A disk that is full says nothing about the workspace, so nobody makes it anew for that, and nothing is left out.
func TestDiskFullIsNoProblemOfTheWorkspace(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	w, agent := f.workspace(t)
	head := agent.Commit("work", map[string]string{"work": "w\n"})
	agent.Write(map[string]string{"untracked": "u"})
	full := must[*gitcmd.Git](t)(gitcmd.New(t.Context(), gitcmd.Config{Program: fullDisk(t, f.dir)}))
	m := must[*git.Mirror](t)(git.OpenMirror(t.Context(), full, f.mirror.Dir()))
	there := must[*workspace.Workspace](t)(workspace.Open(t.Context(), m, workspace.Spec{Dir: w.Dir(), Branch: "orch/k"}))
	for name, do := range map[string]func() error{
		"head":    func() error { _, err := there.Head(t.Context()); return err },
		"reset":   func() error { return there.Reset(t.Context(), "refs/orch/salvage/k/1") },
		"salvage": func() error { _, err := there.Salvage(t.Context(), "refs/orch/salvage/k/1"); return err },
	} {
		err := do()
		if broken := (*workspace.Error)(nil); err == nil || errors.As(err, &broken) || !strings.Contains(err.Error(), "No space left on device") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if agent.Head() != head || agent.Read("untracked") != "u" {
		t.Error("the workspace isn't what it was")
	}
}

// fullDisk is a git that can't write objects.
func fullDisk(t *testing.T, dir string) string {
	t.Helper()
	program := must[string](t)(exec.LookPath("git"))
	path := filepath.Join(dir, "git")
	script := "#!/bin/sh\nfor arg; do case $arg in fetch|update-index|commit-tree|write-tree)\n" +
		"echo 'error: unable to write file: No space left on device' >&2; exit 128;; esac; done\nexec " + program + ` "$@"` + "\n"
	// Not by this process: a child that it forks meanwhile would hold the file open for writing, and it couldn't be run.
	write := exec.Command("/bin/sh", "-c", `cat > "$0" && chmod 755 "$0"`, path)
	write.Stdin = strings.NewReader(script)
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
