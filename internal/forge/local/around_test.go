package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

// A linked work tree may be on a disk that isn't there just now, which is what locking it is for.
func TestWorkTreeThatIsAwayHindersOnlyItsBranch(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	dir := filepath.Join(t.TempDir(), "tree")
	f.target.Git("worktree", "add", "-q", "-b", "side", dir)
	f.target.Git("worktree", "lock", dir)
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.local.Check(t.Context(), f.repo); err != nil {
		t.Errorf("check: %v", err)
	}
	to := f.commit(t, map[string]string{"a": "2\n"})
	if err := f.land(t, to); err != nil {
		t.Errorf("land: %v", err)
	}
	if err := f.refresh(t, to); err != nil || f.target.Read("a") != "2\n" {
		t.Errorf("refresh: %v", err)
	}
	side := f.repo
	side.Base = "side"
	_, err := f.local.Check(t.Context(), side)
	wantProblem(t, err, forge.CodeAway, dir)
	l := f.landing(to)
	l.Base = "side"
	_, err = f.local.Land(t.Context(), f.repo, l)
	wantProblem(t, err, forge.CodeAway, dir)
	if got := f.target.Git("rev-parse", "side"); got != f.old {
		t.Errorf("side is at %s", got)
	}
}

// A branch may be a second name of another one, which is the one that is checked out then.
func TestCheckoutFollowsALandingOnAnotherNameOfItsBranch(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "b": "1\n"}))
	f.target.Git("branch", "-q", "-m", "main", "trunk")
	f.target.Git("symbolic-ref", "refs/heads/main", "refs/heads/trunk")
	f.repo.Base = "main"
	to := f.commit(t, map[string]string{"a": "2\n"})
	f.target.Write(map[string]string{"b": "mine\n"})
	wantProblem(t, f.land(t, to), forge.CodeDirty, "b")
	f.target.Git("checkout", "-q", "b")
	if got, err := f.local.Check(t.Context(), f.repo); err != nil || got.Base != "main" || got.CheckedOut != f.target.Dir {
		t.Errorf("check: %+v, %v", got, err)
	}
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	if err := f.refresh(t, to); err != nil || f.target.Read("a") != "2\n" || f.status(t) != "" {
		t.Errorf("refresh: %v, status %q", err, f.status(t))
	}
	if f.target.Git("rev-parse", "trunk") != to || f.target.Git("symbolic-ref", "refs/heads/main") != "refs/heads/trunk" {
		t.Error("main isn't the other name of trunk any more")
	}
}

// What git status doesn't tell of is found before the target moves, too.
func TestLandRefusesAChangeThatIsMarkedUnchanged(t *testing.T) {
	t.Parallel()
	for _, mark := range []string{"--assume-unchanged", "--skip-worktree"} {
		t.Run(mark, func(t *testing.T) {
			t.Parallel()
			f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "b": "1\n"}))
			f.target.Git("update-index", mark, "a")
			f.target.Write(map[string]string{"a": "mine\n"})
			if err := os.Chtimes(filepath.Join(f.target.Dir, "b"), testTime(), testTime()); err != nil { // touched, not changed
				t.Fatal(err)
			}
			to := f.commit(t, map[string]string{"a": "2\n", "b": "2\n"})
			wantProblem(t, f.land(t, to), forge.CodeDirty, "'a'")
			if got := f.target.Git("rev-parse", "main"); got != f.old || f.target.Read("a") != "mine\n" {
				t.Errorf("main is at %s, a is %q", got, f.target.Read("a"))
			}
			f.work.Git("reset", "-q", "--hard", f.old)
			to = f.commit(t, map[string]string{"b": "3\n"}) // nothing of it
			if err := f.land(t, to); err != nil {
				t.Fatal(err)
			}
			if err := f.refresh(t, to); err != nil || f.target.Read("a") != "mine\n" || f.target.Read("b") != "3\n" {
				t.Errorf("refresh: %v", err)
			}
		})
	}
}

// What isn't in the history of a target doesn't get there by a graft, which says so of this one repository only.
func TestGraftsOfTheRepositoryDontCount(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	f.target.Git("fetch", "-q", f.mirror.Dir(), "refs/orch/land/k")
	f.target.Write(map[string]string{"info/grafts": f.old + " " + to + "\n"})
	if landed, err := f.local.Landed(t.Context(), f.repo, "main", to); landed || err != nil {
		t.Errorf("landed: %v, %v", landed, err)
	}
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(f.target.Dir, "info", "grafts")); err != nil {
		t.Fatal(err)
	}
	f.target.Write(map[string]string{"info/grafts": to + "\n"}) // no parents
	fresh := newMirror(t)
	if err := fresh.Fetch(t.Context(), f.target.Dir); err != nil {
		t.Fatal(err)
	}
	if in, err := fresh.IsAncestor(t.Context(), f.old, to); err != nil || !in {
		t.Errorf("the mirror's history: %v, %v", in, err)
	}
}

// A branch without the beginning of its history can't be fetched: that is said before somebody works on it for nothing.
func TestCheckRefusesAHistoryThatIsCutOff(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	f.target.Git("branch", "-q", "old", "main")
	f.commit(t, map[string]string{"a": "2\n"})
	f.work.Git("push", "-q", "origin", "HEAD:main")
	dir := filepath.Join(t.TempDir(), "shallow")
	f.target.Git("clone", "-q", "--depth=1", "file://"+f.target.Dir, dir)
	_, err := f.local.Check(t.Context(), forge.Repo{Location: dir})
	wantProblem(t, err, forge.CodeShallow, "--unshallow")
	shallow := testgit.Open(t, dir)
	shallow.Git("fetch", "-q", "--depth=1", "origin", "old:old")
	if cuts := strings.Fields(shallow.Read(".git/shallow")); len(cuts) == 0 {
		t.Fatalf("%s isn't shallow", dir)
	}
	shallow.Git("checkout", "-q", "--orphan", "whole")
	shallow.Commit("whole", map[string]string{"b": "b\n"})
	if _, err := f.local.Check(t.Context(), forge.Repo{Location: dir}); err != nil {
		t.Errorf("a branch that has its whole history: %v", err)
	}
}

func newMirror(t *testing.T) *git.Mirror {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := git.OpenMirror(t.Context(), g, filepath.Join(t.TempDir(), "mirror"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What is planted in the place of git's own files isn't waited for.
func TestPipeInAGitDirectoryIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	f.target.Write(map[string]string{".git/rebase-merge/onto": ""})
	if err := syscall.Mkfifo(filepath.Join(f.target.Dir, ".git", "rebase-merge", "head-name"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := f.local.Check(t.Context(), f.repo)
	wantProblem(t, err, forge.CodeUnfinished, "rebase")
	dir := filepath.Join(t.TempDir(), "linked")
	if err := errors.Join(os.Mkdir(dir, 0o755), syscall.Mkfifo(filepath.Join(dir, ".git"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = f.local.Check(t.Context(), forge.Repo{Location: dir})
	wantProblem(t, err, forge.CodeNotRepository, dir)
}
