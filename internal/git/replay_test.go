package git_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"orch/internal/git"
	"orch/internal/testgit"
)

func gate() git.Identity { return git.Identity{Name: "orch", Email: "orch@example.com"} }

func TestReplay(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n", "b": "1\n2\n3\n4\n5\n6\n"})
	ctx, src := t.Context(), f.source
	root := src.Head()
	src.Git("checkout", "-q", "-b", "topic")
	src.Write(map[string]string{"c": "c\n"})
	src.Git("add", "-A")
	message := "first: ünïcode\n\nbody\n\n  indented, no newline at the end"
	src.Git("-c", "i18n.commitEncoding=UTF-8", "commit", "-q", "--cleanup=verbatim", "--date=2001-02-03T04:05:06+0530", "-m", message)
	src.Commit("nothing", nil)
	src.Git("mv", "b", "moved")
	second := src.Commit("second", map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\nEIGHT\n"})
	src.Git("checkout", "-q", "main")
	base := src.Commit("upstream", map[string]string{"a": "ONE\n2\n3\n4\n5\n6\n7\n8\n", "b": "1\n2\n3\n4\n5\n6\nmore\n"})
	f.fetch(t)

	got := must[git.Replayed](t)(f.mirror.Replay(ctx, base, second, gate()))
	again := must[git.Replayed](t)(f.mirror.Replay(ctx, base, second, gate()))
	if got != again || got.Commits != 2 || got.Squashed || got.Empty {
		t.Errorf("got %+v, then %+v", got, again)
	}
	if content := f.inMirror(t, "show", got.Commit+":a", got.Commit+":moved"); content != "ONE\n2\n3\n4\n5\n6\n7\nEIGHT\n1\n2\n3\n4\n5\n6\nmore" {
		t.Errorf("content is %q", content)
	}
	if c := f.inMirror(t, "log", "-1", "--date=iso", "--format=%an|%ae|%ad|%cn|%ce|%cd", got.Commit+"~"); c !=
		"Ann Author|ann@example.com|2001-02-03 04:05:06 +0530|orch|orch@example.com|2001-02-03 04:05:06 +0530" {
		t.Errorf("identities: %s", c)
	}
	if raw := f.inMirror(t, "cat-file", "commit", got.Commit+"~"); !strings.HasSuffix(raw, "\n\n"+message) {
		t.Errorf("message: %q", raw)
	}

	forward := must[git.Replayed](t)(f.mirror.Replay(ctx, root, second, gate()))
	if forward.Commit != second || forward.Commits != 0 {
		t.Errorf("fast-forward gave %+v", forward)
	}
	for name, pair := range map[string][2]string{"behind": {second, root}, "same": {base, base}, "landed": {got.Commit, second}} {
		r := must[git.Replayed](t)(f.mirror.Replay(ctx, pair[0], pair[1], gate()))
		if !r.Empty || r.Commit != pair[0] {
			t.Errorf("%s gave %+v", name, r)
		}
	}
	if _, err := f.mirror.Replay(ctx, base, strings.Repeat("1", 40), gate()); err == nil {
		t.Error("an unknown commit is no error")
	}
	src.Git("checkout", "-q", "--orphan", "other")
	src.Commit("unrelated", map[string]string{"q": "q"})
	f.fetch(t)
	if _, err := f.mirror.Replay(ctx, base, src.Head(), gate()); !errors.Is(err, git.ErrUnrelated) {
		t.Errorf("unrelated: %v", err)
	}
}

func TestReplayConflict(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "b c": "1\n", "d": "1\n"})
	src := f.source
	src.Git("checkout", "-q", "-b", "topic")
	src.Commit("fine", map[string]string{"e": "e\n"})
	bad := src.Commit("bad", map[string]string{"a": "2\n", "b c": "2\n", "d": "2\n"})
	src.Git("checkout", "-q", "main")
	base := src.Commit("upstream", map[string]string{"a": "3\n", "b c": "3\n"})
	f.fetch(t)
	_, err := f.mirror.Replay(t.Context(), base, bad, gate())
	var conflict *git.ConflictError
	if !errors.As(err, &conflict) || strings.Join(conflict.Paths, "|") != "a|b c" || conflict.Commit != bad {
		t.Errorf("got %#v", err)
	}
}

// Merges are flattened when that loses nothing; else there is one commit, with just what the merge would have.
func TestReplayMerges(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"a": "1\n", "b": "1\n"})
	ctx, src := t.Context(), f.source
	src.Git("checkout", "-q", "-b", "side")
	src.Commit("on the side", map[string]string{"side": "s\n"})
	src.Git("checkout", "-q", "-b", "clean", "main")
	src.Commit("on the branch", map[string]string{"branch": "b\n"})
	src.Git("merge", "-q", "--no-ff", "-m", "merge side", "side")
	clean := src.Head()

	src.Git("checkout", "-q", "-b", "resolved", "main")
	src.Commit("mine", map[string]string{"a": "mine\n"})
	src.Git("checkout", "-q", "main")
	src.Commit("theirs", map[string]string{"a": "theirs\n"})
	src.Git("checkout", "-q", "resolved")
	if _, err := src.Try("merge", "main"); err == nil {
		t.Fatal("no conflict")
	}
	resolved := src.Commit("merge main", map[string]string{"a": "both\n", "evil": "only in the merge\n"})
	src.Git("checkout", "-q", "main")
	base := src.Commit("later", map[string]string{"b": "2\n"})
	f.fetch(t)

	got := must[git.Replayed](t)(f.mirror.Replay(ctx, base, clean, gate()))
	if got.Squashed || got.Commits != 2 || f.inMirror(t, "rev-list", "--merges", "--count", base+".."+got.Commit) != "0" {
		t.Errorf("clean merge gave %+v", got)
	}
	got = must[git.Replayed](t)(f.mirror.Replay(ctx, base, resolved, gate()))
	again := must[git.Replayed](t)(f.mirror.Replay(ctx, base, resolved, gate()))
	if !got.Squashed || got != again {
		t.Errorf("resolved merge gave %+v, then %+v", got, again)
	}
	if content := f.inMirror(t, "show", got.Commit+":a", got.Commit+":b", got.Commit+":evil"); content != "both\n2\nonly in the merge" {
		t.Errorf("content is %q", content)
	}
	if parent := f.inMirror(t, "rev-parse", got.Commit+"^@"); parent != base {
		t.Errorf("parents are %q", parent)
	}
	conflicting := src.Commit("clash", map[string]string{"a": "clash\n"})
	f.fetch(t)
	var conflict *git.ConflictError
	if _, err := f.mirror.Replay(ctx, conflicting, resolved, gate()); !errors.As(err, &conflict) || conflict.Paths[0] != "a" {
		t.Errorf("got %v", err)
	}
}

// Random histories are replayed as git cherry-pick does it.
func TestReplayLikeCherryPick(t *testing.T) {
	t.Parallel()
	f := setup(t, map[string]string{"seed": "s\n"})
	work := testgit.NewAt(t, filepath.Join(f.dir, "work"), map[string]string{"seed": "s\n"})
	origin := work.Head()
	mirror := must[*git.Mirror](t)(git.OpenMirror(t.Context(), f.git, filepath.Join(f.dir, "mirrors", "random")))
	rapid.Check(t, func(rt *rapid.T) {
		work.Git("checkout", "-q", "-f", "-B", "main", origin)
		randomCommits(rt, work, rapid.IntRange(1, 2).Draw(rt, "shared"))
		work.Git("checkout", "-q", "-f", "-B", "topic")
		randomCommits(rt, work, rapid.IntRange(1, 4).Draw(rt, "topic commits"))
		head := work.Head()
		work.Git("checkout", "-q", "-f", "main")
		randomCommits(rt, work, rapid.IntRange(1, 3).Draw(rt, "main commits"))
		base := work.Head()
		if err := mirror.Fetch(t.Context(), work.Dir); err != nil {
			rt.Fatal(err)
		}
		got, err := mirror.Replay(t.Context(), base, head, gate())
		paths, ok := cherryPick(rt, work, base, head)
		var conflict *git.ConflictError
		switch {
		case got.Empty && work.Git("diff", "--name-only", base, head) == "":
			// Two ways to the same: there is nothing to land, whatever happened on the way.
		case ok && err != nil:
			rt.Fatalf("cherry-pick succeeds, replay says %v", err)
		case ok && got.Tree != work.Git("rev-parse", "HEAD^{tree}"):
			work.Git("fetch", "-q", mirror.Dir(), got.Commit)
			rt.Fatalf("trees differ: %s", work.Git("diff-tree", "-r", "-p", "HEAD", got.Tree))
		case ok && got.Empty != (work.Git("diff", "--name-only", base, "HEAD") == ""):
			rt.Fatalf("empty is %v", got.Empty)
		case !ok && !errors.As(err, &conflict):
			rt.Fatalf("cherry-pick conflicts in %q, replay gives %+v, %v", paths, got, err)
		case !ok && strings.Join(conflict.Paths, "\n") != paths && paths != calledClean:
			rt.Fatalf("cherry-pick conflicts in %q, replay in %q", paths, conflict.Paths)
		}
		work.Git("reset", "-q", "--hard")
	})
}

// calledClean stands for the paths of a conflict that git tells of and then leaves in a commit.
const calledClean = "?"

// cherryPick replays with git itself; what becomes empty is skipped. False with the paths at a conflict.
func cherryPick(rt *rapid.T, work *testgit.Repo, base, head string) (string, bool) {
	work.Git("checkout", "-q", "-f", "--detach", base)
	all := strings.Fields(work.Git("rev-list", "--reverse", "--topo-order", base+".."+head))
	if paths, ok := cherryPickEach(rt, work, all); ok {
		return paths, ok
	}
	work.Git("checkout", "-q", "-f", "--detach", base)
	missing := strings.Fields(work.Git("rev-list", "--reverse", "--topo-order", "--cherry-pick", "--right-only", base+"..."+head))
	return cherryPickEach(rt, work, missing)
}

func cherryPickEach(rt *rapid.T, work *testgit.Repo, commits []string) (string, bool) {
	for _, c := range commits {
		out, err := work.Try("cherry-pick", "--allow-empty", c)
		switch {
		case err == nil && strings.Contains(out, "CONFLICT ("):
			return calledClean, false
		case err == nil:
			continue
		}
		if paths := work.Git("diff", "--name-only", "--diff-filter=U"); paths != "" {
			work.Git("cherry-pick", "--abort")
			return paths, false
		}
		if out, err := work.Try("diff", "--cached", "--stat", "--exit-code"); err != nil {
			rt.Fatalf("cherry-pick of %s stops, though nothing conflicts:\n%s", c, out)
		}
		if out, err := work.Try("cherry-pick", "--skip"); err != nil { // it has become empty
			rt.Fatal(out)
		}
	}
	return "", true
}

// randomCommits changes, adds, removes and renames files.
func randomCommits(rt *rapid.T, work *testgit.Repo, count int) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "dir/d", "dir/e"})
	for i := range count {
		for range rapid.IntRange(1, 2).Draw(rt, "changes") {
			file := name.Draw(rt, "file")
			path := filepath.Join(work.Dir, file)
			old, err := os.ReadFile(path)
			switch kind := rapid.IntRange(0, 9).Draw(rt, "kind"); {
			case err != nil:
				lines := strings.Repeat(file+" line\n", 3) + strings.Repeat("common\n", rapid.IntRange(5, 12).Draw(rt, "length"))
				work.Write(map[string]string{file: lines})
			case kind == 0:
				_ = os.Remove(path)
			case kind == 1:
				if to := name.Draw(rt, "to"); to != file {
					work.Write(map[string]string{to: string(old)})
					_ = os.Remove(path)
				}
			default:
				lines := strings.SplitAfter(string(old), "\n")
				lines[rapid.IntRange(0, len(lines)-1).Draw(rt, "line")] = fmt.Sprintf("changed %d\n", rapid.IntRange(0, 3).Draw(rt, "value"))
				work.Write(map[string]string{file: strings.Join(lines, "")})
			}
		}
		work.Commit(fmt.Sprintf("commit %d", i), nil)
	}
}
