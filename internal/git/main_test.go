package git_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/internal/git"
	"orch/internal/git/gitcmd"
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
	g, err := gitcmd.New(ctx, gitcmd.Config{})
	if err != nil {
		panic(err)
	}
	m, err := git.OpenMirror(ctx, g, dir)
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
	git    *gitcmd.Git
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
	f := &fixture{git: g, source: testgit.New(t, files), dir: t.TempDir()}
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

// inMirror runs git in the mirror.
func (f *fixture) inMirror(t *testing.T, args ...string) string {
	t.Helper()
	return testgit.Open(t, f.mirror.Dir()).Git(args...)
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

// poll waits until something is so.
func poll(t *testing.T, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(4 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatal("waited in vain")
		case <-tick.C:
		}
	}
}
