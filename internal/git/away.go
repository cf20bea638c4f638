package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// away is an ErrAway when the repository at a path isn't there for now: nothing has its path, its mount point is empty, or
// it can't be read. A directory with something else in it is there, and so is a repository that is damaged.
func away(source string) error {
	if !filepath.IsAbs(source) {
		return nil // an URL
	}
	entries, err := os.ReadDir(source)
	switch {
	case err == nil && len(entries) == 0:
		return fmt.Errorf("%w: %s is empty", ErrAway, source)
	case err != nil && unreachable(err):
		return fmt.Errorf("%w: %w", ErrAway, err)
	case err != nil:
		return nil //nolint:nilerr // something else is wrong: git has said what
	}
	for _, dir := range []string{filepath.Join(source, ".git"), source} {
		for _, name := range []string{"HEAD", "objects", "refs"} {
			err := unix.Access(filepath.Join(dir, name), unix.R_OK) // opening could wait
			if err != nil && !errors.Is(err, fs.ErrNotExist) && unreachable(err) {
				return fmt.Errorf("%w: read %s: %w", ErrAway, filepath.Join(dir, name), err)
			}
		}
	}
	return nil
}

// unreachable tells the errors of a path that isn't there for now from those of one that is wrong.
func unreachable(err error) bool {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	return slices.ContainsFunc([]syscall.Errno{
		unix.EIO, unix.ESTALE, unix.ENOTCONN, unix.ENODEV, unix.ENXIO, unix.EREMOTEIO, unix.EHOSTDOWN, unix.ETIMEDOUT,
	}, func(e syscall.Errno) bool { return errors.Is(err, e) })
}
