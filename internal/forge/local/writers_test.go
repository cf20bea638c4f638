package local_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/forge"
	"orch/internal/testgit"
)

// leaveLock makes the lock file that a git leaves which is killed together with its orch, e.g. with their container.
func leaveLock(t *testing.T, f *fixture, ref string) string {
	t.Helper()
	path := filepath.Join(f.target.Dir, ref+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestLockFilesThatOrchsDeadGitLeftAreTakenAway(t *testing.T) {
	t.Parallel()
	const head = "refs/orch/head/k"
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	f.work.Git("push", "-q", f.mirror.Dir(), "HEAD:"+head)
	for what, step := range map[string]func() error{
		"claim":   func() error { return f.claim(t, "main", "one", 3) },
		"publish": func() error { return f.local.Publish(t.Context(), f.repo, f.mirror.Dir(), head) },
	} {
		locks := []string{leaveLock(t, f, gateRef), leaveLock(t, f, head)}
		if err := step(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if there(locks[0]) && there(locks[1]) {
			t.Errorf("%s: both are there", what)
		}
	}
	lock := leaveLock(t, f, gateRef)
	landing := f.landing(to)
	landing.Claim = forge.Claim{Owner: "one", Epoch: 3}
	if _, err := f.local.Land(t.Context(), f.repo, landing); err != nil || there(lock) || f.target.Git("rev-parse", "main") != to {
		t.Errorf("land: %v", err)
	}
	lock = leaveLock(t, f, head)
	if err := f.local.Unpublish(t.Context(), f.repo, head); err != nil || there(lock) {
		t.Errorf("unpublish: %v", err)
	}
}

// Whoever shares the writers' lock for a moment longer than the git that died, as a process that was just forked does, keeps no lock
// file in the way.
func TestLockFileIsTakenAwayOnceNobodySharesTheLock(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	path := filepath.Join(f.target.Dir, "orch-writers")
	forked, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = forked.Close() }()
	if err := unix.Flock(int(forked.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	opened := opensOf(t, path)
	lock := leaveLock(t, f, gateRef)
	claimed := make(chan error, 1)
	go func() { claimed <- f.local.Claim(t.Context(), f.repo, "main", forge.Claim{Owner: "one", Epoch: 3}) }()
	opened() // by the git that meets the lock file
	opened() // by who looks whether its owner lives
	if err := forked.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil || there(lock) {
		t.Error(err)
	}
}

// opensOf returns what waits for the next opening of a file. What closes it is watched too, since equal events in a row are one.
func opensOf(t *testing.T, path string) (next func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	watch := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { _ = watch.Close() })
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		var event [unix.SizeofInotifyEvent]byte // of a file, so without a name
		for binary.NativeEndian.Uint32(event[4:])&unix.IN_OPEN == 0 {
			if err := watch.SetReadDeadline(time.Now().Add(4 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := watch.Read(event[:]); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What may be somebody's stays: of a git that is at work, and of a ref that others write too.
func TestLockFilesThatMayBeSomebodysStay(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	to := f.commit(t, map[string]string{"a": "2\n"})
	lock := leaveLock(t, f, "refs/heads/main")
	wantProblem(t, f.land(t, to), forge.CodeLocked, lock)

	working, err := os.Create(filepath.Join(f.target.Dir, "orch-writers"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = working.Close() }()
	if err := unix.Flock(int(working.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	mine := leaveLock(t, f, gateRef)
	wantProblem(t, f.claim(t, "main", "one", 3), forge.CodeLocked, mine)

	elsewhere := t.TempDir()
	if err := working.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(f.target.Dir, "refs", "orch")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(f.target.Dir, "refs", "orch")); err != nil {
		t.Fatal(err)
	}
	mine = leaveLock(t, f, gateRef)
	wantProblem(t, f.claim(t, "main", "one", 3), forge.CodeLocked, gateRef)
	for _, path := range []string{lock, mine} {
		if !there(path) {
			t.Errorf("%s is gone", path)
		}
	}
}

func TestWhatStandsInThePlaceOfTheWritersFileIsTold(t *testing.T) {
	t.Parallel()
	f := setup(t, testgit.NewBare(t, map[string]string{"a": "1\n"}))
	path := filepath.Join(f.target.Dir, "orch-writers")
	for what, put := range map[string]func() error{
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"pipe":      func() error { return unix.Mkfifo(path, 0o600) },
		"link":      func() error { return os.Symlink("HEAD", path) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		t.Log(what)
		wantProblem(t, f.claim(t, "main", "one", 3), forge.CodeRefused, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
