// Package runlock is the lock of a run directory, by which those who look tell whether its shim lives.
package runlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that somebody holds the lock of a run directory in a way that excludes the one asked for.
var ErrHeld = errors.New("lock is held")

// lockPatience bounds the wait for those who only look: they hold the lock for an instant.
const lockPatience = 5 * time.Second

// Name is the file in the run directory.
const Name = "lock"

// Lock is held until Release, or until its process is gone.
type Lock struct{ file *os.File }

// Try takes the lock of a run directory without waiting and without creating it.
func Try(dir string, how int) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDONLY|unix.O_NONBLOCK, 0) // os opens with O_CLOEXEC; a pipe would block
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return &Lock{file: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrHeld
	}
	return nil, fmt.Errorf("take lock: %w", err)
}

// Exclusively waits for lookers to go. It gives [ErrHeld] at once when a holder excludes even lookers.
func Exclusively(dir string) (*Lock, error) {
	deadline := time.Now().Add(lockPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		l, err := Try(dir, unix.LOCK_EX)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		shared, err := Try(dir, unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		shared.Release()
		if time.Now().After(deadline) {
			return nil, ErrHeld
		}
		<-time.After(pause)
	}
}

// Release unlocks by word, not by closing: a child that is just being forked may still hold a copy of the descriptor.
func (l *Lock) Release() {
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}
