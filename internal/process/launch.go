package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"orch/internal/process/bundle"
	"orch/internal/process/procfs"
	"orch/internal/process/redact"
)

// Bundle is what a run needs and what is written nowhere.
type Bundle = bundle.Bundle

// Secret is a value that must not appear in a log.
type Secret = redact.Secret

// Launch starts `shim… dir` in a session of its own and gives the run back without waiting for it. The shim isn't bound
// to ctx or to this process, which only reaps it. It gets the bundle through its standard input; one that doesn't get it
// whole, because this process died meanwhile, starts nothing.
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
	read, write, err := channel()
	if err != nil {
		return nil, fmt.Errorf("launch shim: %w", err)
	}
	defer func() { _ = read.Close() }()
	args := append(append([]string(nil), shim[1:]...), dir)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), shim[0], args...)
	cmd.Dir = dir
	cmd.Env = b.Open()
	cmd.Stdin, cmd.Stderr = read, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil, fmt.Errorf("launch shim: %w", err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // the run directory says how it went
		_ = write.Close()
	}()
	go func() { // more than the channel holds waits for the shim to read, or to be gone
		_ = b.Send(write) // a shim that got less says so in the run directory
		_ = write.Close()
	}()
	r.shimGone = gone
	return r, nil
}

// channel is a pair of sockets and not a pipe: until the shim has protected itself, a pipe could be opened through /proc by
// every process of the same user.
func channel() (read, write *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a channel: %w", err)
	}
	read = os.NewFile(uintptr(pair[0]), "bundle")
	if err := unix.SetNonblock(pair[1], true); err != nil { // so that closing it ends a write
		_ = read.Close()
		_ = unix.Close(pair[1])
		return nil, nil, fmt.Errorf("make a channel: %w", err)
	}
	return read, os.NewFile(uintptr(pair[1]), "bundle"), nil
}

// waitExit waits until a process of this pid namespace is gone, or gives the cause of ctx or why it can't be waited for.
func waitExit(ctx context.Context, id Identity) error {
	switch Probe(id) {
	case Unknown:
		return ErrUnknown
	case Dead:
		return nil
	default:
		return procfs.Gone(ctx, procfs.Stat{PID: id.PID, Started: id.StartedAt})
	}
}
