package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bundle is what a run needs and what is written nowhere.
type Bundle struct {
	// Env is the whole environment of the program, but for the mark.
	Env []string
	// Secrets are replaced by their names wherever the program prints them.
	Secrets []Secret
}

// Secret is a value that must not appear in a log.
type Secret struct{ Name, Value string }

// Launch starts `shim… dir` in a session of its own and gives the run back without waiting for it. The shim isn't bound
// to ctx or to this process, which only reaps it.
func Launch(ctx context.Context, shim []string, dir string, b Bundle) (*Run, error) {
	r, err := OpenRun(dir)
	if err != nil {
		return nil, err
	}
	if len(shim) == 0 {
		return nil, fmt.Errorf("launch shim: %w: no program", ErrBadSpec)
	}
	stderr, err := os.OpenFile(filepath.Join(dir, errFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("launch shim: %w", err)
	}
	defer func() { _ = stderr.Close() }()
	args := append(append([]string(nil), shim[1:]...), dir)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), shim[0], args...)
	cmd.Dir = dir
	cmd.Env = append([]string{}, b.Env...) // never nil, which would mean all of ours
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("launch shim: %w", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // the run directory says how it went
	}()
	r.shimGone = gone
	return r, nil
}

// waitExit waits until a process of this pid namespace is gone, or gives the cause of ctx or why it can't be waited for.
func waitExit(ctx context.Context, id Identity) error {
	switch Probe(id) {
	case Unknown:
		return ErrUnknown
	case Dead:
		return nil
	default:
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		return fmt.Errorf("open process %d: %w", id.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	if Probe(id) == Dead { // the descriptor may be a later owner's of the pid
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", id.PID, err)
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor fits
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", id.PID, err)
	}
	return nil
}
