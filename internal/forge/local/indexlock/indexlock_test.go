package indexlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"orch/internal/forge/local/indexlock"
)

func TestLockIsTakenOverFromAHolderThatIsGone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "index.lock")
	lock, err := indexlock.Take(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := indexlock.Take(path); !errors.Is(err, indexlock.ErrHeld) || indexlock.Stale(path) {
		t.Errorf("the lock of a living holder: %v", err)
	}
	_ = lock.File().Close() // as a kill does
	if !indexlock.Stale(path) {
		t.Error("the lock of a holder that is gone isn't stale")
	}
	if lock, err = indexlock.Take(path); err != nil {
		t.Fatal(err)
	}
	lock.Release()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("released, and there: %v", err)
	}
}

// Nobody can tell whether git, or whoever else, still works under such a lock.
func TestLockOfAnotherIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "an index": "DIRC", "more": "orch\nmore"} {
		path := filepath.Join(t.TempDir(), "index.lock")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := indexlock.Take(path); !errors.Is(err, indexlock.ErrHeld) || indexlock.Stale(path) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%s: it has %q now, %v", name, got, err)
		}
	}
	if _, err := indexlock.Take(filepath.Join(t.TempDir(), "nowhere", "index.lock")); err == nil || errors.Is(err, indexlock.ErrHeld) {
		t.Errorf("without a directory: %v", err)
	}
}

// What isn't a file is nobody's lock that orch knows, and isn't waited for.
func TestLockThatIsNoFileIsHeld(t *testing.T) {
	t.Parallel()
	orchs := filepath.Join(t.TempDir(), "orchs")
	if err := os.WriteFile(orchs, []byte("orch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"link":          func(path string) error { return os.Symlink(orchs, path) },
		"dangling link": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "index.lock")
			if err := plant(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := indexlock.Take(path); !errors.Is(err, indexlock.ErrHeld) || indexlock.Stale(path) {
				t.Errorf("got %v", err)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
				t.Errorf("it was replaced: %v", err)
			}
		})
	}
}
