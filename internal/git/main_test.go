package git_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"orch/internal/git"
	"orch/internal/testgit"
)

// helperEnv makes the test binary do one thing and be killed at it.
const helperEnv = "GIT_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		writeForEver(dir, os.Args[len(os.Args)-1])
	}
	goleak.VerifyTestMain(m)
}

// writeForEver fetches into the mirror at dir and moves refs in it until it is killed.
func writeForEver(dir, source string) {
	ctx := context.Background()
	g, err := git.New(git.Config{})
	if err != nil {
		panic(err)
	}
	m, err := g.Mirror(ctx, dir)
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		_ = m.Fetch(ctx, source)
		if head, err := m.Base(ctx, "main"); err == nil {
			_ = m.SetRef(ctx, "refs/orch/land/k"+strconv.Itoa(i%5), head, "")
			_ = m.DeleteRef(ctx, "refs/orch/land/k"+strconv.Itoa((i+2)%5), "")
		}
	}
}

// fixture is a real repository and a mirror that has fetched it.
type fixture struct {
	git    *git.Git
	mirror *git.Mirror
	source *testgit.Repo
	dir    string
}

func setup(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	g, err := git.New(git.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{git: g, source: testgit.New(t, files), dir: t.TempDir()}
	if f.mirror, err = g.Mirror(t.Context(), filepath.Join(f.dir, "mirrors", "r")); err != nil {
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
func (f *fixture) workspace(t *testing.T) (*git.Workspace, *testgit.Repo) {
	t.Helper()
	start, err := f.mirror.Base(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.mirror.Workspace(t.Context(), git.WorkspaceSpec{
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

func wantProblem(t *testing.T, err error, want git.Problem) {
	t.Helper()
	var we *git.WorkspaceError
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
