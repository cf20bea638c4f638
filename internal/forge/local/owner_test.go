package local_test

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/testgit"
)

// everything is what writes into the repository or works in its checkout.
func (f *fixture) everything(t *testing.T, to string) map[string]error {
	t.Helper()
	ctx := t.Context()
	_, check := f.local.Check(ctx, f.repo)
	_, land := f.local.Land(ctx, f.repo, f.landing(to))
	return map[string]error{
		"Check": check, "Land": land, "Refresh": f.local.Refresh(ctx, f.repo, "main", f.old, to),
		"Publish":   f.local.Publish(ctx, f.repo, f.mirror.Dir(), "refs/orch/land/k"),
		"Unpublish": f.local.Unpublish(ctx, f.repo, "refs/orch/land/k"),
	}
}

func TestRepositoryOfAnother(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": "1\n"}
	tests := map[string]struct {
		target  *testgit.Repo
		foreign func(r *testgit.Repo) string
		all     bool // also what touches no work tree
	}{
		"bare":     {testgit.NewBare(t, files), func(r *testgit.Repo) string { return r.Dir }, true},
		"the top":  {testgit.New(t, files), func(r *testgit.Repo) string { return r.Dir }, true},
		"git dir":  {testgit.New(t, files), func(r *testgit.Repo) string { return filepath.Join(r.Dir, ".git") }, true},
		"worktree": {testgit.New(t, files), elsewhere(t), false},
		"linked": {testgit.NewBare(t, files), func(r *testgit.Repo) string {
			r.Git("worktree", "add", "-q", r.Dir+"-linked", "main")
			return r.Dir + "-linked"
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, tt.target)
			to := f.commit(t, map[string]string{"a": "2\n"})
			path := tt.foreign(f.target)
			// Another user that no machine has a name for.
			f.local.SetOwner(func(p string) (int, error) {
				if p == path {
					return 4000000, nil
				}
				return os.Geteuid(), nil
			})
			for call, err := range f.everything(t, to) {
				if !tt.all && strings.HasSuffix(call, "ublish") {
					continue
				}
				wantProblem(t, err, forge.CodeForeign, path+" belongs to user 4000000")
				wantProblem(t, err, forge.CodeForeign, "run orch as user 4000000")
			}
			if f.target.Git("rev-parse", "refs/heads/main") != f.old {
				t.Error("landed")
			}
			if landed, err := f.local.Landed(t.Context(), f.repo, "main", f.old); err != nil || !landed {
				t.Errorf("reading it: %v, %v", landed, err)
			}
		})
	}
}

// elsewhere puts the main work tree where core.worktree says.
func elsewhere(t *testing.T) func(r *testgit.Repo) string {
	t.Helper()
	dir := t.TempDir()
	return func(r *testgit.Repo) string {
		r.Git("config", "core.worktree", dir)
		r.Git("reset", "-q", "--hard")
		return dir
	}
}

// As root, with a repository that really is another's: nothing in it runs or changes.
func TestRepositoryOfAnotherAsRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // only root can give files away; TestRepositoryOfAnother shows the same to everybody
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(nobody.Uid)
	if err != nil {
		t.Fatal(err)
	}
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n", ".gitattributes": "a filter=lfs\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	marker := filepath.Join(t.TempDir(), "ran")
	for _, key := range []string{"clean", "smudge", "process"} {
		f.target.Git("config", "filter.lfs."+key, "touch "+marker+"; cat")
	}
	if err := os.Chtimes(filepath.Join(f.target.Dir, "a"), testTime(), testTime()); err != nil {
		t.Fatal(err)
	}
	walk(t, f.target.Dir, func(path string, _ int) error { return os.Lchown(path, uid, uid) })
	for _, err := range f.everything(t, to) {
		wantProblem(t, err, forge.CodeForeign, f.target.Dir+" belongs to nobody")
		wantProblem(t, err, forge.CodeForeign, "run orch as nobody")
	}
	walk(t, f.target.Dir, func(path string, owner int) error {
		if owner != uid {
			t.Errorf("%s isn't its owner's any more", path)
		}
		return nil
	})
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program of the repository's configuration ran")
	}
}

func walk(t *testing.T, dir string, do func(path string, owner int) error) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		owner, err := local.OwnerOf(path)
		if err != nil {
			return err
		}
		return do(path, owner)
	})
	if err != nil {
		t.Fatal(err)
	}
}
