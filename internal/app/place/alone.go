package place

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/queue"
	"orch/internal/worker"
)

// busyPause is how long a job rests while another process is at its task's files.
const busyPause = 2 * time.Second

// Alone runs fn, which changes what a task has on disk, while no other process of this data root and no other handler of
// this one does, and only under a lease that still holds. Without it a process that was stopped in the middle of such work,
// and lost the job meanwhile, would go on under the agent that another one started. It isn't waited for: it may stay
// stopped for long.
//
// The lock is a byte of one file, the one at the task's id: it needs no clean-up, and goes with the process that holds it.
func (p *Places) Alone(ctx context.Context, l *queue.Lease, taskID int64, fn func() error) error {
	return p.locked(taskID, func() error {
		if err := l.Check(ctx); err != nil {
			return err
		}
		return fn()
	})
}

// locked runs fn while nobody else is at the task's files.
func (p *Places) locked(taskID int64, fn func() error) (err error) {
	file, err := os.OpenFile(filepath.Join(p.root.Path(), "tasks.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock the files of task %d: %w", taskID, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// By name: closing alone would wait for copies that a child being started holds until its exec.
	defer func() { err = errors.Join(err, lockByte(file, unix.F_UNLCK, taskID)) }()
	switch err := lockByte(file, unix.F_WRLCK, taskID); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return &queue.SnoozeError{After: busyPause, WaitingFor: "workspace_busy"}
	case err != nil:
		return fmt.Errorf("lock the files of task %d: %w", taskID, err)
	}
	return fn()
}

// lockByte doesn't wait. The lock belongs to this opening of the file, so that two in one process exclude each other too.
func lockByte(file *os.File, how int16, at int64) error {
	lock := unix.Flock_t{Type: how, Start: at, Len: 1}
	for {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Retiring has a clean-up done alone: from its look at the task to the removal of what is left, nobody else is at the
// task's files.
func (p *Places) Retiring(retire worker.Handler) worker.Handler {
	return worker.HandlerFunc(func(ctx context.Context, l *queue.Lease) error {
		id := l.Job().TaskID
		if id == nil {
			return retire.Run(ctx, l)
		}
		return p.Alone(ctx, l, *id, func() error { return retire.Run(ctx, l) })
	})
}
