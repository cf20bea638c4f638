package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"orch/internal/git/gitcmd"
	"orch/internal/root"
	"orch/internal/stage"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nobody = 65534

// site is a data root with a task of a real repository.
type site struct {
	*places
	task task.Task
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, testdb.New(t))
}

func newSiteOn(t *testing.T, pool *pgxpool.Pool) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "site") //nolint:usetesting // other users can't get into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, err := root.Bind(t.Context(), filepath.Join(dir, "data"), pool, root.Config{Testing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	program, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	source := testgit.New(t, map[string]string{"README": "start\n"})
	return &site{
		places: &places{root: data, git: program, mirrors: mirrors{program, data.MirrorsDir()}},
		task:   task.Task{ID: 1, Key: "demo-1", Repo: "demo", Location: source.Dir, Branch: "orch/demo-1", BaseBranch: "main"},
	}
}

// prepare makes the workspace ready and gives access to it as its agent has it.
func (s *site) prepare(t *testing.T) *testgit.Repo {
	t.Helper()
	w, err := s.Prepare(t.Context(), s.task)
	if err != nil {
		t.Fatal(err)
	}
	return testgit.Open(t, w.Dir)
}

// salvages has what was ever kept of the task.
func (s *site) salvages(t *testing.T) []stage.Salvaged {
	t.Helper()
	list, err := s.Salvages(t.Context(), s.task)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What an agent does to its workspace is its own fault, is told it, and is healed by the next round.
func TestInspect_SaysWhatTheAgentDid(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(a *testgit.Repo)
		says string
	}{
		"another branch": {func(a *testgit.Repo) {
			a.Git("checkout", "-q", "-b", "feature")
			a.Commit("work", map[string]string{"work": "w\n"})
		}, "on the branch feature"},
		"detached": {func(a *testgit.Repo) {
			a.Git("checkout", "-q", "--detach")
			a.Commit("work", map[string]string{"work": "w\n"})
		}, "on a detached HEAD"},
		"rewritten": {func(a *testgit.Repo) {
			a.Git("checkout", "-q", "--orphan", "fresh")
			a.Commit("all in one", map[string]string{"work": "w\n"})
			a.Git("branch", "-q", "-M", "orch/demo-1")
		}, "no longer builds on the commit"},
		"no repository": {func(a *testgit.Repo) {
			a.Write(map[string]string{"work": "w\n"})
			a.Remove(".git")
		}, ".git directory was removed"},
		"branch deleted": {func(a *testgit.Repo) {
			a.Commit("work", map[string]string{"work": "w\n"})
			a.Git("checkout", "-q", "--detach")
			a.Git("branch", "-q", "-D", "orch/demo-1")
		}, "was deleted"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			tt.do(s.prepare(t))
			for range 2 { // looking changes nothing
				_, err := s.Inspect(t.Context(), s.task)
				if left, ok := errors.AsType[*stage.BranchError](err); !ok || !strings.Contains(left.Detail, tt.says) {
					t.Fatal(err)
				}
			}
			agent := s.prepare(t)
			list := s.salvages(t)
			if len(list) != 1 || list[0].Ref != "refs/orch/salvage/demo-1/1" || agent.Git("show", list[0].Commit+":work") != "w" {
				t.Errorf("what it did isn't kept, or not where it can get at it: %v", list)
			}
			head := agent.Commit("again", map[string]string{"again": "a\n"})
			if got, err := s.Inspect(t.Context(), s.task); err != nil || got.Commit != head || got.Dirty != nil || got.Upstream {
				t.Errorf("not healed: %v, %+v", err, got)
			}
		})
	}
}

// Every salvage has a number of its own, and the same is kept once, however often it is asked for.
func TestSalvage_NumbersFromTheMirror(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.prepare(t)
	agent.Write(map[string]string{"left": "by the first round\n"})
	agent = s.prepare(t)
	agent.Commit("work", map[string]string{"work": "w\n"})
	if _, err := s.Inspect(t.Context(), s.task); err != nil {
		t.Fatal(err)
	}
	for _, onlyDirty := range []bool{true, false, false} {
		if err := s.Salvage(t.Context(), s.task, onlyDirty); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Remove(t.Context(), s.task); err != nil {
			t.Fatal(err)
		}
		if err := s.Salvage(t.Context(), s.task, false); err != nil {
			t.Fatal(err)
		}
	}
	list := s.salvages(t)
	if len(list) != 2 || list[1].Ref != "refs/orch/salvage/demo-1/2" {
		t.Fatalf("%v", list)
	}
	m := testgit.Open(t, filepath.Join(s.root.MirrorsDir(), "demo"))
	if m.Git("show", list[0].Commit+":left") != "by the first round" || m.Git("show", list[1].Commit+":work") != "w" {
		t.Error("not what was there")
	}
}

// A landed task whose agent destroyed its repository: nobody can say what is new in it, so all of it is kept.
func TestSalvage_OfABrokenWorkspace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.prepare(t)
	agent.Write(map[string]string{"left": "behind\n"})
	agent.Remove(".git")
	if err := s.Salvage(t.Context(), s.task, true); err != nil || len(s.salvages(t)) != 1 {
		t.Errorf("%v, %v", err, s.salvages(t))
	}
	if _, err := os.Lstat(filepath.Join(agent.Dir, ".git")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("made anew just to be removed")
	}
}

// A test that leaves a directory nobody may write in must not be in the way of anything.
func TestCheckouts_WithReadOnlyDirectories(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	head := s.prepare(t).Head()
	checkout := s.checkout(s.task, "gate")
	lock := func() error {
		cache := filepath.Join(checkout, "cache")
		if err := os.MkdirAll(filepath.Join(cache, "module"), 0o755); err != nil {
			return err
		}
		return errors.Join(os.WriteFile(filepath.Join(cache, "module", "x"), nil, 0o444),
			os.Chmod(filepath.Join(cache, "module"), 0o555), os.Chmod(cache, 0o555))
	}
	err := s.asOrdinaryUser(t, func() error {
		if err := lock(); err != nil {
			return err
		}
		return s.makeCheckout(t.Context(), s.task, checkout, head)
	})
	if _, gone := os.Lstat(filepath.Join(checkout, "cache")); err != nil || !errors.Is(gone, fs.ErrNotExist) {
		t.Fatalf("not made anew: %v, %v", err, gone)
	}
	err = s.asOrdinaryUser(t, func() error {
		if err := lock(); err != nil {
			return err
		}
		return s.Remove(t.Context(), s.task)
	})
	if _, gone := os.Lstat(checkout); err != nil || !errors.Is(gone, fs.ErrNotExist) {
		t.Errorf("not removed: %v, %v", err, gone)
	}
}

// asOrdinaryUser gives the data root to nobody and does something with files in it as nobody, when these tests run as
// root, who may write everywhere.
func (s *site) asOrdinaryUser(t *testing.T, do func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return do()
	}
	err := filepath.WalkDir(filepath.Dir(s.root.Path()), func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes with the goroutine, and its user with it
		if err := unix.Setfsuid(nobody); err != nil {
			done <- fmt.Errorf("become nobody: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}
