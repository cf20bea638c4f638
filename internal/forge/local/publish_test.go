package local_test

import (
	"errors"
	"testing"

	"orch/internal/forge"
	"orch/internal/testgit"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	ctx := t.Context()
	for _, content := range []string{"2\n", "3\n"} { // also over a former one that isn't an ancestor
		f.work.Git("reset", "-q", "--hard", f.old)
		to := f.commit(t, map[string]string{"a": content})
		if err := f.local.Publish(ctx, f.repo, f.mirror.Dir(), "refs/orch/land/k"); err != nil {
			t.Fatal(err)
		}
		if got := f.target.Git("rev-parse", "refs/orch/land/k"); got != to {
			t.Errorf("published %s, want %s", got, to)
		}
	}
	for range 2 {
		if err := f.local.Unpublish(ctx, f.repo, "refs/orch/land/k"); err != nil {
			t.Error(err)
		}
	}
	if out, err := f.target.Try("rev-parse", "--verify", "refs/orch/land/k"); err == nil {
		t.Errorf("still there: %s", out)
	}
	f.work.Git("push", "-q", f.mirror.Dir(), "HEAD:refs/heads/orch/k") // a branch for a person to land
	if err := f.local.Publish(ctx, f.repo, f.mirror.Dir(), "refs/heads/orch/k"); err != nil {
		t.Fatal(err)
	}
	if got, want := f.target.Git("rev-parse", "orch/k"), f.work.Git("rev-parse", "HEAD"); got != want {
		t.Errorf("published %s, want %s", got, want)
	}
	wantProblem(t, f.local.Publish(ctx, f.repo, f.mirror.Dir(), "refs/heads/main"), forge.CodeRefused, "refs/heads/main")
	wantProblem(t, f.local.Unpublish(ctx, f.repo, "refs/heads/main"), forge.CodeRefused, "refs/heads/main")
}

// What was salvaged may be all that is left of somebody's work: nothing takes its place.
func TestPublish_NeverTakesTheNameOfAnotherSalvage(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	const ref = "refs/orch/salvage/k/1"
	publish := func(files map[string]string) (string, error) {
		t.Helper()
		to := f.work.Commit("salvaged", files)
		f.work.Git("push", "-q", "--force", f.mirror.Dir(), "HEAD:"+ref)
		return to, f.local.Publish(t.Context(), f.repo, f.mirror.Dir(), ref)
	}
	first, err := publish(map[string]string{"a": "2\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.local.Publish(t.Context(), f.repo, f.mirror.Dir(), ref); err != nil {
		t.Errorf("the same again: %v", err)
	}
	more, err := publish(map[string]string{"b": "1\n"}) // has the first one in its history
	if got := f.target.Git("rev-parse", ref); err != nil || got != more {
		t.Errorf("%s, %v", got, err)
	}
	f.work.Git("reset", "-q", "--hard", first)
	_, err = publish(map[string]string{"c": "1\n"})
	if got := f.target.Git("rev-parse", ref); !errors.Is(err, forge.ErrRefTaken) || got != more {
		t.Errorf("%s instead of %s, %v", got, more, err)
	}
}

func TestBranch_IsMadeOnceAndTakesNobodysName(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	branch := func(commit, name string) error {
		return f.local.Branch(t.Context(), f.repo, f.mirror.Dir(), commit, name)
	}
	for range 2 {
		if err := branch(to, "orch/restored/k-1"); err != nil || f.target.Git("rev-parse", "orch/restored/k-1") != to {
			t.Fatal(err)
		}
	}
	for _, taken := range []string{"main", "orch/restored", "orch/restored/k-1/more"} {
		if err := branch(to, taken); !errors.Is(err, forge.ErrRefTaken) {
			t.Errorf("%s: %v", taken, err)
		}
	}
	if got := f.target.Git("rev-parse", "main"); got != f.old {
		t.Errorf("main moved to %s", got)
	}
	for _, no := range []string{"", "-f", "HEAD", "a..b", "a b"} {
		wantProblem(t, branch(to, no), forge.CodeRefused, "is no name for a branch")
	}
}
