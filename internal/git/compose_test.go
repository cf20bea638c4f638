package git_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/git"
	"orch/internal/testgit"
)

// topic is a branch of two commits by two authors, and a main that went on; both are in the mirror.
func topic(t *testing.T, f *fixture) (base, head string) {
	t.Helper()
	src := f.source
	src.Git("checkout", "-q", "-b", "topic")
	src.Write(map[string]string{"b": "b\n"})
	src.Git("add", "-A")
	src.Git("commit", "-q", "--author=Bob <bob@example.com>", "--date=2001-02-03T04:05:06+0530", "-m", "first\n\nof two")
	src.Write(map[string]string{"c": "c\n"})
	src.Git("add", "-A")
	src.Git("commit", "-q", "--date=2002-03-04T05:06:07-0800", "-m", "second")
	head = src.Head()
	src.Git("checkout", "-q", "main")
	base = src.Commit("upstream", map[string]string{"a": "2\n"})
	f.fetch(t)
	return base, head
}

func TestComposeMakesTheSameCommitForTheSameInputs(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	base, head := topic(t, f)
	const orch, then = "|orch|orch@example.com|2002-03-04 05:06:07 -0800|", "2002-03-04 05:06:07 -0800"
	for method, want := range map[git.Method]string{
		git.Merge:  "orch|orch@example.com|" + then + orch + "Land it|a b|" + base + " " + head,
		git.Squash: "Bob|bob@example.com|2001-02-03 04:05:06 +0530" + orch + "Land it|a b|" + base,
	} {
		change := git.Change{Base: base, Head: head, Method: method, Message: "Land it\n\na\x00 b\n\n"}
		made := must[git.Replayed](t)(f.mirror.Compose(t.Context(), change, gate()))
		again := must[git.Replayed](t)(f.mirror.Compose(t.Context(), change, gate()))
		if made != again || made.Commits != 1 || made.Empty || made.Squashed != (method == git.Squash) {
			t.Errorf("%s made %+v, then %+v", method, made, again)
		}
		const format = "--format=%an|%ae|%ad|%cn|%ce|%cd|%s|%b|%P"
		if got := f.inMirror(t, "log", "-1", "--date=iso", format, made.Commit); strings.ReplaceAll(got, "\n", "") != want {
			t.Errorf("%s: %q, want %q", method, got, want)
		}
		if raw := f.inMirror(t, "cat-file", "commit", made.Commit); !strings.HasSuffix(raw, "\n\nLand it\n\na b") {
			t.Errorf("%s: %q", method, raw)
		}
		if files := f.inMirror(t, "ls-tree", "--name-only", made.Tree); files != "a\nb\nc" {
			t.Errorf("%s has %q", method, files)
		}
		change.Message = ""
		unnamed := must[git.Replayed](t)(f.mirror.Compose(t.Context(), change, gate()))
		message := map[git.Method]string{git.Merge: "Merge commit " + head, git.Squash: "first\n\nof two"}[method]
		if got := f.inMirror(t, "log", "-1", "--format=%B", unnamed.Commit); strings.TrimSpace(got) != message {
			t.Errorf("%s without a message: %q", method, got)
		}
	}
	for _, method := range []git.Method{"", git.FastForward, git.Rebase} {
		made := must[git.Replayed](t)(f.mirror.Compose(t.Context(), git.Change{Base: base, Head: head, Method: method}, gate()))
		if replayed := must[git.Replayed](t)(f.mirror.Replay(t.Context(), base, head, gate())); made != replayed || made.Commits != 2 {
			t.Errorf("%q made %+v, a replay %+v", method, made, replayed)
		}
	}
}

// A head that isn't behind still becomes a merge commit, or one commit.
func TestComposeOnTheCommitThatTheChangeStartsFrom(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	_, head := topic(t, f)
	base := f.source.Git("merge-base", "main", head)
	for method, parents := range map[git.Method]string{git.Merge: base + "\n" + head, git.Squash: base} {
		made := must[git.Replayed](t)(f.mirror.Compose(t.Context(), git.Change{Base: base, Head: head, Method: method}, gate()))
		if got := f.inMirror(t, "rev-parse", made.Commit+"^@"); got != parents || made.Tree != f.inMirror(t, "rev-parse", head+"^{tree}") {
			t.Errorf("%s has the parents %q, %+v", method, got, made)
		}
	}
}

func TestComposeNamesConflictingPaths(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "b c": "1\n", "d": "1\n"})
	src := f.source
	src.Git("checkout", "-q", "-b", "topic")
	head := src.Commit("mine", map[string]string{"a": "2\n", "b c": "2\n", "d": "2\n"})
	src.Git("checkout", "-q", "main")
	base := src.Commit("upstream", map[string]string{"a": "3\n", "b c": "3\n"})
	src.Git("checkout", "-q", "--orphan", "other")
	other := src.Commit("unrelated", map[string]string{"q": "q"})
	f.fetch(t)
	for _, method := range []git.Method{git.Merge, git.Squash} {
		var conflict *git.ConflictError
		_, err := f.mirror.Compose(t.Context(), git.Change{Base: base, Head: head, Method: method}, gate())
		if !errors.As(err, &conflict) || strings.Join(conflict.Paths, "|") != "a|b c" {
			t.Errorf("%s: %v", method, err)
		}
		_, err = f.mirror.Compose(t.Context(), git.Change{Base: base, Head: other, Method: method}, gate())
		if !errors.Is(err, git.ErrUnrelated) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if made, err := f.mirror.Compose(t.Context(), git.Change{Base: base, Head: head, Method: "octopus"}, gate()); err == nil {
		t.Errorf("an unknown method made %+v", made)
	}
}

func TestComposeOfWhatIsUpstreamIsEmpty(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n"})
	base, head := topic(t, f)
	src := f.source
	src.Git("merge", "-q", "--squash", head)
	squashed := src.Commit("the same, and more", map[string]string{"d": "d\n"})
	src.Git("reset", "-q", "--hard", base)
	src.Git("merge", "-q", "--no-ff", "-m", "merge", head)
	merged := src.Commit("later", map[string]string{"d": "d\n"})
	twin := src.Git("commit-tree", "-m", "the same tree", head+"^{tree}")
	src.Git("branch", "twin", twin)
	src.Git("branch", "squashed", squashed)
	f.fetch(t)
	for name, at := range map[string]string{"squashed": squashed, "merged": merged, "itself": head, "twin": twin} {
		for _, method := range []git.Method{git.Merge, git.Squash} {
			made := must[git.Replayed](t)(f.mirror.Compose(t.Context(), git.Change{Base: at, Head: head, Method: method}, gate()))
			if !made.Empty || made.Commit != at || made.Tree != f.inMirror(t, "rev-parse", at+"^{tree}") {
				t.Errorf("%s, %s: %+v", name, method, made)
			}
		}
		if has, err := f.mirror.Contains(t.Context(), at, head); err != nil || !has {
			t.Errorf("%s contains it: %v, %v", name, has, err)
		}
	}
	src.Git("checkout", "-q", "--detach", squashed)
	src.Git("revert", "--no-edit", squashed)
	src.Git("branch", "reverted", src.Head())
	src.Git("branch", "conflicting", src.Commit("otherwise", map[string]string{"b": "other\n"}))
	f.fetch(t)
	for name, at := range map[string]string{"before": base, "reverted": src.Git("rev-parse", "reverted"), "otherwise": src.Git("rev-parse", "conflicting")} {
		if has, err := f.mirror.Contains(t.Context(), at, head); err != nil || has {
			t.Errorf("%s contains it: %v, %v", name, has, err)
		}
	}
}

// Random histories are merged as git merge does it.
func TestComposeMergeAndSquashHaveTheTreeOfGitMerge(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"seed": "s\n"})
	work := testgit.NewAt(t, filepath.Join(f.dir, "work"), map[string]string{"seed": "s\n"})
	origin := work.Head()
	mirror := must[*git.Mirror](t)(git.OpenMirror(t.Context(), f.git, filepath.Join(f.dir, "mirrors", "random")))
	rapid.Check(t, func(rt *rapid.T) {
		work.Git("checkout", "-q", "-f", "-B", "main", origin)
		randomCommits(rt, work, rapid.IntRange(1, 2).Draw(rt, "shared"))
		work.Git("checkout", "-q", "-f", "-B", "topic")
		randomCommits(rt, work, rapid.IntRange(1, 3).Draw(rt, "topic commits"))
		head := work.Head()
		work.Git("checkout", "-q", "-f", "main")
		randomCommits(rt, work, rapid.IntRange(0, 3).Draw(rt, "main commits"))
		base := work.Head()
		if err := mirror.Fetch(t.Context(), work.Dir); err != nil {
			rt.Fatal(err)
		}
		method := rapid.SampledFrom([]git.Method{git.Merge, git.Squash}).Draw(rt, "method")
		got, err := mirror.Compose(t.Context(), git.Change{Base: base, Head: head, Method: method}, gate())
		_, failed := work.Try("merge", "-q", "--no-ff", "--no-edit", head)
		var conflict *git.ConflictError
		switch {
		case failed == nil && err != nil:
			rt.Fatalf("git merge succeeds, compose says %v", err)
		case failed == nil && got.Tree != work.Git("rev-parse", "HEAD^{tree}"):
			rt.Fatalf("trees differ: %s", work.Git("diff-tree", "-r", "-p", "HEAD", got.Tree))
		case failed == nil && got.Empty != (work.Git("diff", "--name-only", base, "HEAD") == ""):
			rt.Fatalf("empty is %v", got.Empty)
		case failed != nil && !errors.As(err, &conflict):
			rt.Fatalf("git merge conflicts, compose gives %+v, %v", got, err)
		case failed != nil && strings.Join(conflict.Paths, "\n") != work.Git("diff", "--name-only", "--diff-filter=U"):
			rt.Fatalf("git merge conflicts in %q, compose in %q", work.Git("diff", "--name-only", "--diff-filter=U"), conflict.Paths)
		}
		work.Git("reset", "-q", "--hard")
	})
}

func TestTakenBackIsWhatTheTargetHasNothingOfAnyMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after func(src *testgit.Repo)
		want  bool
	}{
		"still there":       {func(*testgit.Repo) {}, false},
		"main goes on":      {func(src *testgit.Repo) { src.Commit("on", map[string]string{"d": "d\n"}) }, false},
		"changed afterward": {func(src *testgit.Repo) { src.Commit("other", map[string]string{"b": "bb\n"}) }, false},
		"reverted": {func(src *testgit.Repo) {
			src.Git("revert", "--no-edit", "-m", "1", "HEAD")
			src.Commit("on", map[string]string{"d": "d\n"})
		}, true},
		"half of it reverted": {func(src *testgit.Repo) { src.Git("revert", "--no-edit", "topic") }, false},
		"reverted and put back": {func(src *testgit.Repo) {
			src.Git("revert", "--no-edit", "-m", "1", "HEAD")
			src.Git("revert", "--no-edit", "HEAD")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, map[string]string{"a": "1\n"})
			since, head := topic(t, f)
			f.source.Git("merge", "-q", "--no-ff", "--no-edit", "topic")
			c.after(f.source)
			f.fetch(t)
			if got := must[bool](t)(f.mirror.TakenBack(t.Context(), f.source.Head(), head, since)); got != c.want {
				t.Errorf("taken back: %v, want %v", got, c.want)
			}
		})
	}
}
