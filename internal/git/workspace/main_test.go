package workspace_test

import (
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/testgit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	f := &fixture{source: testgit.New(t, files), dir: t.TempDir()}
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

func wantProblem(t *testing.T, err error, want workspace.Problem) {
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
