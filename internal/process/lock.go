package process

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

type lock struct{ file *os.File }

// tryLock takes the lock of a run directory without waiting and without creating it.
func tryLock(dir string, how int) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDONLY, 0) // os opens with O_CLOEXEC
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
		return &lock{file: f}, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrHeld
	}
	return nil, fmt.Errorf("take lock: %w", err)
}

// lockExclusively waits for lookers to go. It gives ErrHeld at once when a holder excludes even lookers.
func lockExclusively(dir string) (*lock, error) {
	deadline := BootClock() + int64(lockPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		l, err := tryLock(dir, unix.LOCK_EX)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		shared, err := tryLock(dir, unix.LOCK_SH)
		if err != nil {
			return nil, err
		}
		shared.release()
		if BootClock() > deadline {
			return nil, ErrHeld
		}
		<-time.After(pause)
	}
}

// release unlocks by word, not by closing: a child that is just being forked may still hold a copy of the descriptor.
func (l *lock) release() {
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}
