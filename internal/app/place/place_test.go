package place

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

	"orch/internal/forge/local"
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
	*Places
	task task.Task
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, testdb.New(t))
}

func newSiteOn(t *testing.T, pool *pgxpool.Pool) *site {
	t.Helper()
	return newSiteOf(t, pool, testgit.New(t, map[string]string{"README": "start\n"}))
}

func newSiteOf(t *testing.T, pool *pgxpool.Pool, source *testgit.Repo) *site {
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
	return &site{
		Places: New(Config{Root: data, Git: program, Forge: local.New(program, local.Config{})}),
		task:   task.Task{ID: 1, Key: "demo-1", Repo: "demo", Location: source.Dir, Branch: "orch/demo-1", BaseBranch: "main"},
	}
}

// prepare makes the workspace ready and gives access to it as its agent has it.
func (s *site) prepare(t *testing.T) *testgit.Repo {
	t.Helper()
	w, err := s.Prepare(t.Context(), s.task, false)
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

// A new database begins its keys again at the first, in a repository that has salvages of former ones.
func TestPublish_NumberNeverTakesAnEarlierTasksPlace(t *testing.T) {
	t.Parallel()
	source := testgit.New(t, map[string]string{"README": "start\n"})
	publish := func(s *site) {
		t.Helper()
		for _, kept := range s.salvages(t) {
			ref, err := s.Publish(t.Context(), s.task, kept.Ref)
			if err != nil || source.Git("rev-parse", ref) != kept.Commit {
				t.Fatalf("%s published as %q, %v", kept.Ref, ref, err)
			}
		}
	}
	keep := func(s *site, what string) {
		t.Helper()
		s.prepare(t).Write(map[string]string{what: "work\n"})
		if err := s.Salvage(t.Context(), s.task, true); err != nil {
			t.Fatal(err)
		}
	}
	first, second := newSiteOf(t, testdb.New(t), source), newSiteOf(t, testdb.New(t), source)
	keep(first, "a")
	keep(second, "b") // by one that knows nothing of the first
	publish(first)
	publish(second)
	publish(second) // as after a crash
	third := newSiteOf(t, testdb.New(t), source)
	keep(third, "c")
	if list := third.salvages(t); list[0].Ref != "refs/orch/salvage/demo-1/3" {
		t.Errorf("numbered without a look at the repository: %v", list)
	}
	publish(third)
	err := errors.Join(third.Remove(t.Context(), third.task), os.RemoveAll(filepath.Join(third.root.MirrorsDir(), "demo")))
	if err != nil { // the mirror is lost
		t.Fatal(err)
	}
	keep(third, "d")
	publish(third)
	for ref, name := range map[string]string{"1": "a", "2": "b", "3": "c", "4": "d"} {
		if got, err := source.Try("show", "refs/orch/salvage/demo-1/"+ref+":"+name); err != nil || got != "work" {
			t.Errorf("%s: %q, %v", ref, got, err)
		}
	}
}

// A salvage that was published can be had when the mirror which made it is gone.
func TestKept_OfALostMirror(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.prepare(t).Write(map[string]string{"left": "behind\n"})
	if err := s.Salvage(t.Context(), s.task, true); err != nil {
		t.Fatal(err)
	}
	told := s.salvages(t)
	if _, err := s.Publish(t.Context(), s.task, told[0].Ref); err != nil {
		t.Fatal(err)
	}
	err := errors.Join(s.Remove(t.Context(), s.task), os.RemoveAll(filepath.Join(s.root.MirrorsDir(), "demo")))
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Kept(t.Context(), s.task, append(told, stage.Salvaged{Ref: "refs/orch/salvage/demo-1/7", Commit: strings.Repeat("7", 40)}))
	if err != nil || len(all) != 1 || all[0].Number != 1 || all[0].Commit != told[0].Commit || all[0].At.IsZero() {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := s.Restore(t.Context(), s.task, all[0], "mine"); err != nil {
		t.Fatal(err)
	}
	if got := testgit.Open(t, s.task.Location).Git("show", "mine:left"); got != "behind" {
		t.Errorf("restored %q", got)
	}
}

// What a killed git left goes when the agent goes on where it was, and nothing else does.
func TestPrepare_KeepsTheTreeOfAnAgentThatGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	agent := s.prepare(t)
	agent.Write(map[string]string{"half": "done\n", ".git/index.lock": "", ".git/refs/heads/orch/demo-1.lock": ""})
	w, err := s.Prepare(t.Context(), s.task, true)
	if err != nil || !w.Kept || agent.Read("half") != "done\n" || len(s.salvages(t)) != 0 {
		t.Fatalf("%+v, %v", w, err)
	}
	agent.Commit("goes on", nil)
	agent.Git("checkout", "-q", "--orphan", "lost")
	if w, err = s.Prepare(t.Context(), s.task, true); err != nil || w.Kept || agent.Git("status", "--porcelain") != "" {
		t.Errorf("on another branch: %+v, %v", w, err)
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
	checkout := s.Checkout(s.task, "gate")
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
		return s.MakeCheckout(t.Context(), s.task, checkout, head)
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

// What will be back is told from what is wrong.
func TestPrepare_TellsARepositoryThatIsAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	isAway := func() bool {
		_, err := s.Prepare(t.Context(), s.task, false)
		if err == nil {
			t.Error("made ready from nothing")
		}
		_, away := errors.AsType[*stage.AwayError](err)
		return away
	}
	moved := s.task.Location + "-moved"
	if err := os.Rename(s.task.Location, moved); err != nil {
		t.Fatal(err)
	}
	if !isAway() {
		t.Error("moved, and not away")
	}
	if err := os.Mkdir(s.task.Location, 0o700); err != nil {
		t.Fatal(err)
	}
	if !isAway() {
		t.Error("a mount point without its disk isn't away")
	}
	if err := errors.Join(os.Remove(s.task.Location), os.Rename(moved, s.task.Location)); err != nil {
		t.Fatal(err)
	}
	s.prepare(t)
	s.task.BaseBranch = "nowhere"
	if isAway() {
		t.Error("a branch that isn't there is away")
	}
}
