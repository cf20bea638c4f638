package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git/gitcmd"
	"orch/internal/testgit"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		do      func(r *testgit.Repo) (location, base string)
		want    forge.Code
		mention string
	}{
		{"missing", func(r *testgit.Repo) (string, string) { return r.Dir + "-not", "" }, forge.CodeMissing, "-not"},
		{"no repository", func(r *testgit.Repo) (string, string) { return filepath.Dir(r.Dir), "" }, forge.CodeNotRepository, "git init"},
		{"a directory within", func(r *testgit.Repo) (string, string) {
			r.Write(map[string]string{"sub/x": "x"})
			return filepath.Join(r.Dir, "sub"), ""
		}, forge.CodeNotToplevel, "give "},
		{"its inside", func(r *testgit.Repo) (string, string) { return filepath.Join(r.Dir, ".git"), "" }, forge.CodeNotToplevel, "give "},
		{"a linked work tree", func(r *testgit.Repo) (string, string) {
			r.Git("worktree", "add", "-q", r.Dir+"-linked")
			return r.Dir + "-linked", ""
		}, forge.CodeLinkedWorktree, "/repo"},
		{"no commits", func(r *testgit.Repo) (string, string) { r.Git("update-ref", "-d", "HEAD"); return r.Dir, "" }, forge.CodeNoCommits, "first commit"},
		{"no branch any more", func(r *testgit.Repo) (string, string) {
			r.Git("checkout", "-q", "--detach")
			r.Git("branch", "-D", "main")
			return r.Dir, "main"
		}, forge.CodeNoBranch, "no branch"},
		{"unknown branch", func(r *testgit.Repo) (string, string) {
			r.Git("branch", "develop")
			return r.Dir, "nope"
		}, forge.CodeNoBranch, "develop, main"},
		{"no obvious branch", func(r *testgit.Repo) (string, string) {
			r.Git("checkout", "-q", "--detach")
			r.Git("branch", "-m", "main", "trunk")
			return r.Dir, ""
		}, forge.CodeNoBranch, "trunk"},
		{"changed", func(r *testgit.Repo) (string, string) {
			r.Write(map[string]string{"a": "changed"})
			return r.Dir, ""
		}, forge.CodeDirty, "changes: a"},
		{"staged", func(r *testgit.Repo) (string, string) {
			r.Write(map[string]string{"new": "n"})
			r.Git("add", "new")
			return r.Dir, ""
		}, forge.CodeDirty, "changes: new"},
		{"changed in a linked work tree", func(r *testgit.Repo) (string, string) {
			r.Git("worktree", "add", "-q", "-b", "release", r.Dir+"-linked")
			testgit.Open(t, r.Dir+"-linked").Write(map[string]string{"a": "changed"})
			return r.Dir, "release"
		}, forge.CodeDirty, "-linked"},
		{"merging", func(r *testgit.Repo) (string, string) { conflict(r, "merge"); return r.Dir, "main" }, forge.CodeUnfinished, "merge"},
		{"rebasing", func(r *testgit.Repo) (string, string) { conflict(r, "rebase"); return r.Dir, "main" }, forge.CodeUnfinished, "rebase"},
		{"index in use", func(r *testgit.Repo) (string, string) {
			r.Write(map[string]string{".git/index.lock": ""})
			return r.Dir, ""
		}, forge.CodeLocked, "index.lock"},
		{"a filter", func(r *testgit.Repo) (string, string) {
			r.Git("config", "filter.crypt.smudge", "cat")
			r.Commit("attributes", map[string]string{".gitattributes": "a filter=crypt\n"})
			return r.Dir, ""
		}, forge.CodeFilters, "crypt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			location, base := tt.do(testgit.New(t, map[string]string{"a": "1\n"}))
			_, err := newLocal(t).Check(t.Context(), forge.Repo{Location: location, Base: base})
			wantProblem(t, err, tt.want, tt.mention)
		})
	}
}

func conflict(r *testgit.Repo, how string) {
	r.Git("checkout", "-q", "-b", "side")
	r.Commit("side", map[string]string{"a": "side\n"})
	r.Git("checkout", "-q", "main")
	r.Commit("main", map[string]string{"a": "main\n"})
	_, _ = r.Try(how, "side")
}

func newLocal(t *testing.T) *local.Local {
	t.Helper()
	g, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return local.New(g, local.Config{})
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()
	l, files := newLocal(t), map[string]string{"a": "1\n"}
	normal := testgit.New(t, files)
	normal.Write(map[string]string{"untracked": "u"})
	if err := os.Chtimes(filepath.Join(normal.Dir, "a"), testTime(), testTime()); err != nil { // differs by its date only
		t.Fatal(err)
	}
	got, err := l.Check(t.Context(), forge.Repo{Location: normal.Dir})
	if want := (forge.Checked{CheckedOut: normal.Dir, Base: "main", Head: normal.Head(), Path: normal.Dir}); err != nil || got != want {
		t.Errorf("normal: %+v, %v", got, err)
	}
	// What is checked out and dirty doesn't matter when it is another branch.
	normal.Git("checkout", "-q", "-b", "mine")
	normal.Write(map[string]string{"a": "changed"})
	if got, err = l.Check(t.Context(), forge.Repo{Location: normal.Dir, Base: "main"}); err != nil || got.CheckedOut != "" || got.Bare {
		t.Errorf("another branch: %+v, %v", got, err)
	}
	bare := testgit.NewBare(t, files)
	if got, err = l.Check(t.Context(), forge.Repo{Location: bare.Dir}); err != nil || !got.Bare || got.Base != "main" {
		t.Errorf("bare: %+v, %v", got, err)
	}
	elsewhere := testgit.New(t, files)
	tree := t.TempDir()
	elsewhere.Git("config", "core.worktree", tree)
	elsewhere.Git("reset", "-q", "--hard")
	if got, err = l.Check(t.Context(), forge.Repo{Location: elsewhere.Dir}); err != nil || got.CheckedOut != tree {
		t.Errorf("core.worktree: %+v, %v", got, err)
	}
	detached := testgit.New(t, files)
	detached.Git("checkout", "-q", "--detach")
	if got, err = l.Check(t.Context(), forge.Repo{Location: detached.Dir}); err != nil || got.Base != "main" || got.CheckedOut != "" {
		t.Errorf("detached: %+v, %v", got, err)
	}
	sha256 := testgit.NewAt(t, filepath.Join(t.TempDir(), "r"), files, "--object-format=sha256")
	if got, err = l.Check(t.Context(), forge.Repo{Location: sha256.Dir}); err != nil || len(got.Head) != 64 {
		t.Errorf("sha256: %+v, %v", got, err)
	}
}
