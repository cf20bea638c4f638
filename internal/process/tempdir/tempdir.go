// Package tempdir empties directories that programs have worked in.
package tempdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Empty deletes everything in a directory, also what is in directories that were closed to writing, as Go closes its
// module cache. Symbolic links aren't followed. A directory that isn't there is empty; what is
// no directory is deleted itself.
func Empty(dir string) error {
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() { // a link in its place leads to what is somebody else's
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("empty %s: %w", filepath.Base(dir), err)
		}
		return nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", filepath.Base(dir), err)
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if os.RemoveAll(path) == nil {
			continue
		}
		unlock(path)
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("empty %s: %w", filepath.Base(dir), err))
		}
	}
	return errors.Join(errs...)
}

// unlock opens a tree of directories to its owner. What it can't open, RemoveAll tells.
func unlock(path string) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	unlockIn(root, filepath.Base(path))
}

func unlockIn(parent *os.Root, name string) {
	info, err := parent.Lstat(name)
	if err != nil || !info.IsDir() {
		return
	}
	_ = parent.Chmod(name, 0o700)
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			unlockIn(dir, entry.Name())
		}
	}
}
