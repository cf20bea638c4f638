package local_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"orch/internal/forge"
	"orch/internal/testgit"
)

func testTime() time.Time { return time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC) }

func TestLandBare(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	f.target.Git("config", "core.logAllRefUpdates", "true")
	marker := plantHooks(t, f.target.Dir)
	to := f.commit(t, map[string]string{"a": "2\n", "b": "b\n"})
	if landed, err := f.local.Landed(t.Context(), f.repo, "main", to); landed || err != nil {
		t.Errorf("before: %v, %v", landed, err)
	}
	refs := f.target.Git("for-each-ref", "--format=%(refname)")
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	if got := f.target.Git("rev-parse", "main"); got != to {
		t.Errorf("main is %s, want %s", got, to)
	}
	if log := f.target.Git("reflog", "-1", "--format=%gs|%gn", "main"); log != "orch: land k|orch" {
		t.Errorf("reflog has %q", log)
	}
	if now := f.target.Git("for-each-ref", "--format=%(refname)"); now != refs {
		t.Errorf("refs are %q, were %q", now, refs)
	}
	if _, err := os.Stat(filepath.Join(f.target.Dir, "FETCH_HEAD")); err == nil {
		t.Error("FETCH_HEAD was written")
	}
	if landed, err := f.local.Landed(t.Context(), f.repo, "main", to); !landed || err != nil {
		t.Errorf("after: %v, %v", landed, err)
	}
	result, err := f.local.Land(t.Context(), f.repo, f.landing(to))
	if err != nil || !result.Already {
		t.Errorf("again: %+v, %v", result, err)
	}
	if err := f.refresh(t, to); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a hook of the repository ran")
	}
}

// plantHooks puts a hook of every kind into a git directory and returns the file that they would leave.
func plantHooks(t *testing.T, gitDir string) string {
	t.Helper()
	marker := filepath.Join(t.TempDir(), "ran")
	for _, name := range []string{"reference-transaction", "post-checkout", "post-index-change", "pre-receive", "update", "post-merge", "evil"} {
		path := filepath.Join(gitDir, "hooks", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\ntouch "+marker+"\ncat\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	evil := filepath.Join(gitDir, "hooks", "evil")
	for _, key := range []string{"core.fsmonitor", "core.pager", "filter.evil.clean", "filter.evil.smudge", "diff.external", "core.alternateRefsCommand", "gpg.program"} {
		testgit.Open(t, gitDir).Git("config", key, evil)
	}
	return marker
}

func TestLandRefusals(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	ctx := t.Context()
	to := f.commit(t, map[string]string{"a": "2\n"})
	lock := map[string]string{"refs/heads/main.lock": ""}
	f.target.Write(lock)
	err := f.land(t, to)
	wantProblem(t, err, forge.CodeLocked, "refs/heads/main.lock")
	var p *forge.ProblemError
	if !errors.As(err, &p) || !p.Retry {
		t.Error("a lock isn't retryable")
	}
	if err := os.Remove(filepath.Join(f.target.Dir, "refs", "heads", "main.lock")); err != nil {
		t.Fatal(err)
	}
	// A compare-and-swap would permit a rewind.
	f.work.Git("checkout", "-q", "--orphan", "other")
	other := f.commit(t, map[string]string{"a": "3\n"})
	_, err = f.local.Land(ctx, f.repo, f.landing(other))
	wantProblem(t, err, forge.CodeRewind, "does not build on")
	if _, err = f.local.Land(ctx, f.repo, forge.Landing{Mirror: f.mirror.Dir(), Base: "main", Old: f.old, New: strings.Repeat("1", 40)}); err == nil {
		t.Error("a commit that is nowhere was landed")
	}
	_, err = f.local.Land(ctx, f.repo, forge.Landing{Mirror: f.mirror.Dir(), Base: "none", Old: f.old, New: to})
	wantProblem(t, err, forge.CodeNoBranch, "none")
	// Somebody pushed meanwhile.
	f.work.Git("checkout", "-q", "-f", "main")
	f.work.Git("reset", "-q", "--hard", f.old)
	f.work.Commit("pushed", map[string]string{"c": "c\n"})
	f.work.Git("push", "-q", "origin", "main")
	if err := f.land(t, to); !errors.Is(err, forge.ErrBaseMoved) {
		t.Errorf("base moved: %v", err)
	}
	if err := f.refresh(t, to); err != nil {
		t.Errorf("refresh without a checkout: %v", err)
	}
}

func TestTwoLandingsAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	const racers = 6
	var commits []string
	for i := range racers {
		f.work.Git("checkout", "-q", "-B", "race", f.old)
		commits = append(commits, f.work.Commit("race", map[string]string{"a": strings.Repeat("x", i+1)}))
		f.work.Git("push", "-q", f.mirror.Dir(), "HEAD:refs/orch/land/"+commits[i])
	}
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i, to := range commits {
		wg.Go(func() {
			_, errs[i] = f.local.Land(t.Context(), f.repo, f.landing(to))
		})
	}
	wg.Wait()
	won := 0
	for i, err := range errs {
		var p *forge.ProblemError
		switch {
		case err == nil:
			won++
			if f.target.Git("rev-parse", "main") != commits[i] {
				t.Error("who won isn't there")
			}
		case !errors.Is(err, forge.ErrBaseMoved) && (!errors.As(err, &p) || p.Code != forge.CodeLocked):
			t.Errorf("got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}
