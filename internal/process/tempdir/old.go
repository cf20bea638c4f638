package tempdir

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Remove deletes a directory and everything in it, as Empty does.
func Remove(dir string) error {
	err := Empty(dir)
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}

// Discard takes a directory's name away, for one with a prefix, and then deletes it; one that isn't there is no error. A new
// name takes no room, as a new directory to put it into would: on a full disk this is what makes some.
func Discard(dir, prefix string) error {
	aside := filepath.Join(filepath.Dir(dir), prefix+rand.Text())
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, aside, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take %s away: %w", filepath.Base(dir), err)
	}
	return Remove(aside)
}

// RemoveOld deletes what is in a directory, has a name that begins with one of the prefixes, and was last changed longer
// ago than the age.
func RemoveOld(dir string, age time.Duration, prefixes ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for old directories: %w", err)
	}
	var failed []error
	for _, entry := range entries {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry.Name(), prefix) }) {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < age {
			continue // gone, or young
		}
		failed = append(failed, Remove(filepath.Join(dir, entry.Name())))
	}
	return errors.Join(failed...)
}
