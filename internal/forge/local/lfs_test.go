package local_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/lfs"
	"orch/internal/testgit"
)

// What the repository's configuration says of LFS is never run, be git-lfs installed or not.
func TestLFSIsntTheRepositorys(t *testing.T) {
	t.Setenv("PATH", programs(t))
	f, marker := lfsFixture(t)
	to := f.commit(t, map[string]string{"a.bin": "2\n"})
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	if err := f.refresh(t, to); err != nil || f.target.Read("a.bin") != "2\n" {
		t.Errorf("not refreshed: %v", err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a program of the repository's configuration ran")
	}
}

func TestLFSIsGitLFS(t *testing.T) {
	dir := programs(t)
	t.Setenv("PATH", dir)
	log := filepath.Join(t.TempDir(), "log")
	fake := "#!/bin/sh\necho \"$*\" >>" + log + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "git-lfs"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	f, marker := lfsFixture(t)
	if _, err := f.local.Check(t.Context(), f.repo); err == nil {
		t.Error("git-lfs failed, and nobody noticed")
	}
	if ran, err := os.ReadFile(log); err != nil || !strings.HasPrefix(string(ran), "filter-process\n") {
		t.Errorf("git-lfs ran with %q, %v", ran, err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a program of the repository's configuration ran")
	}
}

// Who has set git-lfs up for all repositories has nothing of it in this one's configuration, but the large files.
func TestLFSIsGitLFSWhereOnlyItsUserHasIt(t *testing.T) {
	dir := programs(t)
	t.Setenv("PATH", dir)
	log := filepath.Join(t.TempDir(), "log")
	fake := "#!/bin/sh\necho \"$*\" >>" + log + "\nexit 1\n"
	if err := os.WriteFile(filepath.Join(dir, "git-lfs"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, linked := range []bool{false, true} {
		f := setup(t, testgit.New(t, map[string]string{"a.bin": "1\n", ".gitattributes": "*.bin filter=lfs\n"}))
		checkout := f.target.Dir
		if linked {
			f.target.Git("checkout", "-q", "--detach")
			checkout = filepath.Join(t.TempDir(), "linked")
			f.target.Git("worktree", "add", "-q", checkout, "main")
		}
		if err := os.Chtimes(filepath.Join(checkout, "a.bin"), testTime(), testTime()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.local.Check(t.Context(), f.repo); err != nil {
			t.Errorf("a repository without large files: %v", err)
		}
		if err := os.MkdirAll(filepath.Join(f.target.Dir, ".git", "lfs", "objects"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := f.local.Check(t.Context(), f.repo); err == nil {
			t.Error("git-lfs failed, and nobody noticed")
		}
		if ran, err := os.ReadFile(log); err != nil || !strings.HasPrefix(string(ran), "filter-process\n") {
			t.Errorf("git-lfs ran with %q, %v", ran, err)
		}
		_ = os.Remove(log)
	}
}

// lfsFixture has a checkout with a file for LFS that git has to look into, and a filter that leaves the file marker.
func lfsFixture(t *testing.T) (f *fixture, marker string) {
	t.Helper()
	f = setup(t, testgit.New(t, map[string]string{"a.bin": "1\n", ".gitattributes": "*.bin filter=lfs\n"}))
	marker = filepath.Join(t.TempDir(), "ran")
	for _, key := range []string{"clean", "smudge", "process"} {
		f.target.Git("config", "filter.lfs."+key, "echo >"+marker+"; exec cat")
	}
	if err := os.Chtimes(filepath.Join(f.target.Dir, "a.bin"), testTime(), testTime()); err != nil {
		t.Fatal(err)
	}
	return f, marker
}

// programs is a directory with the few programs that git needs, for a PATH without git-lfs.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"git", "sh", "cat"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A landed pointer is worth nothing without the content that it names, which is beside the repository.
func TestLFSObjectsLandWithTheirPointers(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n"}))
	const content = "large\n"
	sum := sha256.Sum256([]byte(content))
	p := lfs.Pointer{OID: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	to := f.commit(t, map[string]string{
		"a.bin": fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", p.OID, p.Size),
	})
	mirror, target := lfs.Of(f.mirror.Dir()), lfs.Of(filepath.Join(f.target.Dir, ".git"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(mirror.Path(p)), 0o755), os.WriteFile(mirror.Path(p), []byte(content), 0o444)); err != nil {
		t.Fatal(err)
	}
	ways := map[string]func() error{
		"landing": func() error { return f.land(t, to) },
		"publishing": func() error {
			return f.local.Publish(t.Context(), f.repo, f.mirror.Dir(), "refs/orch/land/k")
		},
		"a branch": func() error { return f.local.Branch(t.Context(), f.repo, f.mirror.Dir(), to, "restored") },
	}
	for name, way := range ways {
		if err := errors.Join(os.RemoveAll(string(target)), way()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(target.Path(p)); err != nil || string(got) != content {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
