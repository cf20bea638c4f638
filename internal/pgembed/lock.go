package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// InUseError says that another process runs the database in Dir.
type InUseError struct {
	Dir string
	PID int // 0 if it isn't known yet
}

func (e *InUseError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("another process (pid %d)", e.PID)
	}
	return fmt.Sprintf("%s already runs the database in %s: stop it, or give this one a data root of its own", who, e.Dir)
}

// lock is held from before the first look at a cluster until its server is gone. The file stays: to remove it would let
// two processes lock two files of one name.
type lock struct{ file *os.File }

func acquire(ctx context.Context, dir string) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// A holder that was just killed needs a moment to be gone.
	locked, err := lockWithin(ctx, f, time.Second)
	if err == nil && !locked {
		err = &InUseError{Dir: dir, PID: holder(f)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &lock{file: f}
	if err := l.sign(); err != nil {
		l.release()
		return nil, fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return l, nil
}

// sign leaves our pid for the message that a second process prints.
func (l *lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release unlocks by name rather than by closing alone: a child that is being started holds a copy of the file until its exec.
func (l *lock) release() {
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}

func holder(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// lockWithin takes the lock on f if that is possible within the limit.
func lockWithin(ctx context.Context, f *os.File, limit time.Duration) (bool, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("wait for %s: %w", f.Name(), context.Cause(ctx))
		case <-deadline.C:
			return false, nil
		case <-tick.C:
		}
	}
}
