package local_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"orch/internal/forge"
	"orch/internal/testgit"
)

func TestLandOnACheckout(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "gone": "g\n", "dir/x": "x\n", "kept": "k\n", ".gitignore": "ignored*\n"}))
	marker := plantHooks(t, filepath.Join(f.target.Dir, ".git"))
	f.target.Write(map[string]string{"untracked": "u", "dir/untracked": "u", "ignored": "i"})
	if err := os.Chtimes(filepath.Join(f.target.Dir, "a"), testTime(), testTime()); err != nil {
		t.Fatal(err)
	}
	before := f.status(t)
	_ = os.Remove(marker) // the owner's own status ran its fsmonitor
	f.work.Git("rm", "-q", "gone", "dir/x")
	to := f.commit(t, map[string]string{"a": "2\n", "new/file": "n\n"})
	if err := f.refresh(t, to); err == nil {
		t.Error("refreshed before it was landed")
	}
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	for range 3 { // it may be repeated
		if err := f.refresh(t, to); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something of the repository's configuration ran")
	}
	if after := f.status(t); after != before && after != strings.ReplaceAll(before, "dir/untracked", "dir/") {
		t.Errorf("status is %q, was %q", after, before)
	}
	if f.target.Head() != to || f.target.Read("a") != "2\n" || f.target.Read("new/file") != "n\n" || f.target.Read("dir/untracked") != "u" {
		t.Error("the checkout didn't follow")
	}
	if _, err := os.Stat(filepath.Join(f.target.Dir, "gone")); err == nil {
		t.Error("a deleted file is still there")
	}
	for _, name := range []string{"index.lock", "orch-index", "orch-index.lock", "FETCH_HEAD"} {
		if _, err := os.Stat(filepath.Join(f.target.Dir, ".git", name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	if log := f.target.Git("reflog", "-1", "--format=%gs"); log != "orch: land k" {
		t.Errorf("HEAD's reflog has %q", log)
	}
}

func TestLandRefusesWhatCouldntFollow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string // what stands in the target's checkout
		want  forge.Code
	}{
		{"changed", map[string]string{"a": "mine"}, forge.CodeDirty},
		{"changed elsewhere", map[string]string{"kept": "mine"}, forge.CodeDirty},
		{"untracked", map[string]string{"new/file": "mine"}, forge.CodeOverwrites},
		{"ignored", map[string]string{"ignored": "mine"}, forge.CodeOverwrites},
		{"a file for a directory", map[string]string{"new": "mine"}, forge.CodeOverwrites},
		{"a directory for a file", map[string]string{"ignored/in": "mine"}, forge.CodeOverwrites},
		{"index.lock", map[string]string{".git/index.lock": ""}, forge.CodeLocked},
		{"unfinished", map[string]string{".git/MERGE_HEAD": ""}, forge.CodeUnfinished},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "kept": "k\n", ".gitignore": "ignored*\n"}))
			f.work.Write(map[string]string{"a": "2\n", "new/file": "n\n", "ignored": "i\n"})
			f.work.Git("add", "-f", "ignored")
			to := f.commit(t, nil)
			f.target.Write(tt.files)
			wantProblem(t, f.land(t, to), tt.want, "")
			if f.target.Git("rev-parse", "main") != f.old {
				t.Error("landed")
			}
			for name, content := range tt.files {
				if f.target.Read(name) != content {
					t.Errorf("%s was touched", name)
				}
			}
		})
	}
}

func TestRefreshLinkedWorkTree(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	linked := testgit.Open(t, filepath.Join(t.TempDir(), "linked"))
	f.target.Git("worktree", "add", "-q", linked.Dir, "main")
	to := f.commit(t, map[string]string{"a": "2\n"})
	result, err := f.local.Land(t.Context(), f.repo, f.landing(to))
	if err != nil || result.CheckedOut != linked.Dir {
		t.Fatalf("%+v, %v", result, err)
	}
	if err := f.refresh(t, to); err != nil {
		t.Fatal(err)
	}
	if linked.Read("a") != "2\n" || linked.Git("status", "--porcelain") != "" {
		t.Error("the linked work tree didn't follow")
	}
}

// What a killed Refresh may leave: files as in new, files cut short, and its lock.
func TestRefreshGoesOn(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "b": "1\n", "c": "1\n", "d": "1\n", "x.sh": "#!\n", "gone": "g\n"}))
	f.work.Git("rm", "-q", "gone", "d")
	for link, target := range map[string]string{"link": "a", "link2": "b"} {
		f.work.Symlink(target, link)
	}
	if err := os.Chmod(filepath.Join(f.work.Dir, "x.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	to := f.commit(t, map[string]string{"a": "22\n", "b": "22\n", "c": "22\n", "d/e": "e\n" + strings.Repeat("long\n", 1000), "n": "new\n"})
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	f.target.Write(map[string]string{"a": "22\n", "b": "2", "n": "", ".git/index.lock": "orch\n", ".git/orch-index.lock": "torn", ".git/orch-index": "torn"})
	for _, name := range []string{"c", "d", "gone"} {
		f.target.Remove(name)
	}
	f.target.Symlink("a", "link")
	f.target.Write(map[string]string{"d/e": "e\nlon"})
	if err := f.refresh(t, to); err != nil {
		t.Fatal(err)
	}
	if status := f.status(t); status != "" {
		t.Errorf("status is %q", status)
	}
	// Done, but not cleaned up: also fine.
	f.target.Write(map[string]string{".git/index.lock": "orch\n"})
	if err := f.refresh(t, to); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(f.target.Dir, ".git", "index.lock")); err == nil {
		t.Error("the lock is left")
	}
}

func TestRefreshTouchesNobodysWork(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.New(t, map[string]string{"a": "1\n", "b": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	if err := f.land(t, to); err != nil {
		t.Fatal(err)
	}
	f.target.Write(map[string]string{"a": "between landing and refresh\n"})
	wantProblem(t, f.refresh(t, to), forge.CodeDirty, "a")
	f.target.Write(map[string]string{".git/index.lock": "git's"})
	wantProblem(t, f.refresh(t, to), forge.CodeLocked, "index.lock")
	_ = os.Remove(filepath.Join(f.target.Dir, ".git", "index.lock"))
	f.target.Write(map[string]string{"a": "1\n", "b": "mine\n"}) // another file doesn't hinder it
	if err := f.refresh(t, to); err != nil {
		t.Fatal(err)
	}
	if f.target.Read("a") != "2\n" || f.target.Read("b") != "mine\n" {
		t.Error("not refreshed, or too much")
	}
	next := f.target.Commit("the owner goes on", nil)
	if err := f.refresh(t, to); err != nil || f.target.Head() != next {
		t.Errorf("overtaken: %v", err)
	}
}

func TestRefreshKilledAnywhere(t *testing.T) {
	t.Parallel()
	files, changed := map[string]string{}, map[string]string{}
	for i := range 400 {
		name := "d" + strconv.Itoa(i%7) + "/f" + strconv.Itoa(i)
		files[name] = strings.Repeat("old\n", i)
		changed[name] = strings.Repeat("new\n", 3*i)
	}
	f := setup(t, testgit.New(t, files))
	for i := range 10 {
		changed["d0/added"+strconv.Itoa(i)] = "a\n"
		f.work.Git("reset", "-q", "--hard", f.old)
		f.work.Git("rm", "-q", "d1/f1", "d2/f2")
		delete(changed, "d1/f1")
		delete(changed, "d2/f2")
		to := f.commit(t, changed)
		if err := f.land(t, to); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(120))*time.Millisecond)
		cmd := exec.CommandContext(ctx, os.Args[0], f.target.Dir, f.old, to)
		cmd.Env = append(os.Environ(), helperEnv+"=1")
		_ = cmd.Run()
		cancel()
		f.refreshOnceFree(t, to)
		if status := f.status(t); status != "" {
			t.Fatalf("round %d: status is %q", i, status)
		}
		f.target.Git("reset", "-q", "--hard", f.old)
	}
}

// refreshOnceFree repeats Refresh while git processes of a killed one are still at work.
func (f *fixture) refreshOnceFree(t *testing.T, to string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(4 * time.Minute); ; <-tick.C {
		err := f.refresh(t, to)
		if err == nil {
			return
		}
		var p *forge.ProblemError
		if !errors.As(err, &p) || !p.Retry || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
