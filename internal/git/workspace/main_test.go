package workspace_test

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/git/worktree"
	"orch/internal/testgit"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "reset" {
		if err := reset(os.Args[2], os.Args[3]); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("rapid.checks", "25") // each is a whole round of an agent
	goleak.VerifyTestMain(m)
}

// reset is what a process of its own does for TestReadOnly….
func reset(mirror, dir string) error {
	ctx := context.Background()
	g, err := gitcmd.New(ctx, gitcmd.Config{})
	if err != nil {
		return err
	}
	m, err := git.OpenMirror(ctx, g, mirror)
	if err != nil {
		return err
	}
	w, err := workspace.Open(ctx, m, workspace.Spec{Dir: dir, Branch: "orch/k"})
	if err != nil {
		return err
	}
	return w.Reset(ctx, "refs/orch/salvage/k/1")
}

// resetAsOrdinaryUser resets the workspace by a process that modes bind, as they don't bind root.
func (f *fixture) resetAsOrdinaryUser(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "reset", f.mirror.Dir(), filepath.Join(f.dir, "workspaces", "k"))
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		err := filepath.WalkDir(f.dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, nobody, nobody))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// workTimeoutOfTests is long for any git here, and short for somebody who waits.
const workTimeoutOfTests = 20 * time.Second

// fixture is a real repository and a mirror that has fetched it.
type fixture struct {
	mirror *git.Mirror
	source *testgit.Repo
	dir    string
}

func setup(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "workspace") //nolint:usetesting // its parents are open to everybody, unlike those of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{source: testgit.New(t, files), dir: dir}
	if f.mirror, err = git.OpenMirror(t.Context(), g, filepath.Join(f.dir, "mirrors", "r")); err != nil {
		t.Fatal(err)
	}
	f.fetch(t)
	return f
}

func (f *fixture) fetch(t *testing.T) string {
	t.Helper()
	if err := f.mirror.Fetch(t.Context(), f.source.Dir); err != nil {
		t.Fatal(err)
	}
	head, err := f.mirror.Base(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// workspace makes the workspace of task k and gives access to it as its agent has it.
func (f *fixture) workspace(t *testing.T) (*workspace.Workspace, *testgit.Repo) {
	t.Helper()
	start, err := f.mirror.Base(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(t.Context(), f.mirror, workspace.Spec{
		Dir: filepath.Join(f.dir, "workspaces", "k"), Branch: "orch/k", Start: start,
		Author: git.Identity{Name: `An "Agent"`, Email: "agent@example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w, testgit.Open(t, w.Dir())
}

// inMirror runs git in the mirror.
func (f *fixture) inMirror(t *testing.T, args ...string) string {
	t.Helper()
	return testgit.Open(t, f.mirror.Dir()).Git(args...)
}

func wantProblem(t *testing.T, err error, want worktree.Problem) {
	t.Helper()
	var we *workspace.Error
	if !errors.As(err, &we) || we.Problem != want {
		t.Fatalf("got %v, want problem %s", err, want)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
