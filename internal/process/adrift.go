package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/procfs"
)

// ShimOf finds the living shim of a run of this boot and pid namespace whose directory is gone: it leads a session, and its
// argument is the directory, by whatever path. pid is what was noted of it, 0 when nothing was. Zero when there is no such
// process, [ErrUnknown] when that can't be told.
//
// Who finds none opens the directory once more: a shim whose directory is lost leaves its record in a new one, and goes.
func ShimOf(dir string, pid int) (Identity, error) {
	self, err := here()
	if err != nil {
		return Identity{}, fmt.Errorf("look for shim: %w: %w", ErrUnknown, err)
	}
	candidates := []int{pid}
	if pid <= 0 {
		if candidates, err = leaders(); err != nil {
			return Identity{}, err
		}
	}
	for _, pid := range candidates {
		st, err := procfs.Read(pid)
		named := false
		if err == nil && st.Session == st.PID && !st.Zombie() {
			named, err = procfs.HasPath(pid, filepath.Base(dir))
		}
		switch {
		case err != nil && hidden(pid, err): // or this process has no file left to look with: that is no reason to end anybody
			return Identity{}, fmt.Errorf("look for shim: %w: process %d is hidden", ErrUnknown, pid)
		case named:
			self.PID, self.StartedAt = pid, st.Started
			return self, nil
		}
	}
	return Identity{}, nil
}

// leaders are the pids of all who lead a session.
func leaders() ([]int, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, fmt.Errorf("look for shim: %w", err)
	}
	var pids []int
	for _, st := range all {
		if st.Session == st.PID {
			pids = append(pids, st.PID)
		}
	}
	return pids, nil
}

// hidden reports whether a process lives that /proc doesn't show.
func hidden(pid int, unread error) bool {
	if !errors.Is(unread, fs.ErrNotExist) && !errors.Is(unread, unix.ESRCH) {
		return true
	}
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// WaitGone waits until a process of this pid namespace has ended, or gives the cause of ctx or why it can't be waited for.
func WaitGone(ctx context.Context, id Identity) error {
	if err := waitExit(ctx, id); err != nil {
		return fmt.Errorf("wait for process %d: %w", id.PID, err)
	}
	return nil
}

// StopAdrift asks a shim whose directory is gone to end its run, and waits until it has or patience is over. Whoever asks keeps the
// reason: there is no place for it.
func StopAdrift(ctx context.Context, shim Identity, patience time.Duration) (gone bool, err error) {
	if err := errors.Join(stopShim(shim), Wake(shim)); err != nil {
		return false, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch err := waitExit(waiting, shim); {
	case err == nil:
		return true, nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return false, nil
	default:
		return false, fmt.Errorf("stop run: %w", err)
	}
}
