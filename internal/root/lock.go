package root

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const lockName = "root.lock"

// lock is the open root.lock. It belongs to this opening of the file, so two in one process exclude each other too.
type lock struct{ file *os.File }

func openLock(path string) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the root's lock: %w", err)
	}
	return &lock{file: f}, nil
}

// try takes the lock in the given way (LOCK_SH, LOCK_EX) unless others hold it in a way that excludes it.
func (l *lock) try(how int) (bool, error) {
	for {
		err := unix.Flock(int(l.file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, fmt.Errorf("lock %s: %w", l.file.Name(), err)
		}
	}
}

// unlock lets go by name: closing alone would wait for copies that a child being started holds until its exec.
func (l *lock) unlock() error {
	return unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
}

func (l *lock) close() error { return errors.Join(l.unlock(), l.file.Close()) }
