package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

// helperEnv makes the test binary refresh a checkout and be killed at it.
const helperEnv = "LOCAL_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	g, err := gitcmd.New(context.Background(), gitcmd.Config{})
	if err == nil {
		args := os.Args[len(os.Args)-3:]
		err = local.New(g, local.Config{}).Refresh(context.Background(), forge.Repo{Location: args[0]}, "main", args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// fixture is a real repository, and a mirror of it with commits to land.
type fixture struct {
	local  *local.Local
	mirror *git.Mirror
	work   *testgit.Repo // where commits to land are made
	target *testgit.Repo
	repo   forge.Repo
	old    string
}

func setup(tb testing.TB, target *testgit.Repo) *fixture {
	tb.Helper()
	g, err := gitcmd.New(tb.Context(), gitcmd.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	f := &fixture{local: local.New(g, local.Config{}), target: target, repo: forge.Repo{Name: "r", Location: target.Dir}}
	f.old = target.Git("rev-parse", "refs/heads/main")
	if f.mirror, err = git.OpenMirror(tb.Context(), g, filepath.Join(dir, "mirror")); err != nil {
		tb.Fatal(err)
	}
	if err := f.mirror.Fetch(tb.Context(), target.Dir); err != nil {
		tb.Fatal(err)
	}
	f.work = testgit.Open(tb, filepath.Join(dir, "work"))
	testgit.Open(tb, dir).Git("clone", "-q", target.Dir, f.work.Dir)
	return f
}

// commit makes a commit to land, on what the work has now, and tells it to the mirror as ref.
func (f *fixture) commit(tb testing.TB, files map[string]string) string {
	tb.Helper()
	id := f.work.Commit("change", files)
	f.work.Git("push", "-q", "-f", f.mirror.Dir(), "HEAD:refs/orch/land/k")
	return id
}

func (f *fixture) landing(to string) forge.Landing {
	return forge.Landing{Mirror: f.mirror.Dir(), Base: "main", Old: f.old, New: to, Key: "k"}
}

func (f *fixture) land(t *testing.T, to string) error {
	t.Helper()
	result, err := f.local.Land(t.Context(), f.repo, f.landing(to))
	if err == nil && result.Already {
		t.Error("landed before")
	}
	return err
}

func (f *fixture) refresh(t *testing.T, to string) error {
	t.Helper()
	return f.local.Refresh(t.Context(), f.repo, "main", f.old, to)
}

// status is what the owner of the target sees, ignored files included.
func (f *fixture) status(t *testing.T) string {
	t.Helper()
	return f.target.Git("status", "--porcelain", "--ignored")
}

func wantProblem(t *testing.T, err error, want forge.Code, mention string) {
	t.Helper()
	var p *forge.ProblemError
	if !errors.As(err, &p) || p.Code != want || !strings.Contains(p.Error(), mention) {
		t.Errorf("got %v, want %s with %q", err, want, mention)
	}
}
