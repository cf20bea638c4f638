package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sweep ends whatever still runs in the data directory and removes the lock files that died with it. It is called under
// the lock, so nothing that it meets has an owner. PostgreSQL alone would refuse to start where the old postmaster is a
// zombie, or where its pid belongs to another process of the same user by now.
func (c *cluster) sweep(ctx context.Context) error {
	file, err := readPIDFile(c.data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// Garbage names no process; the search by directory finds them all.
		c.log.LogAttrs(ctx, slog.LevelWarn, "database pid file unreadable", slog.Any("error", err))
	}
	if err := c.end(ctx, c.data, file.pid); err != nil {
		return err
	}
	for _, path := range []string{
		filepath.Join(c.data, "postmaster.pid"),
		filepath.Join(c.socket, socketName+".lock"),
		filepath.Join(c.socket, socketName),
	} {
		err := os.Remove(path)
		if err == nil {
			c.log.LogAttrs(ctx, slog.LevelInfo, "stale database file removed", slog.String("path", path))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// end stops the server processes whose working directory is dir; all of a cluster stand in theirs. The postmaster gets the time
// to finish properly, the others have nobody left to finish for.
func (c *cluster) end(ctx context.Context, dir string, postmaster int) error {
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
		all    bool
	}{
		{syscall.SIGINT, 30 * time.Second, false},
		{syscall.SIGQUIT, 5 * time.Second, true},
		{syscall.SIGKILL, 10 * time.Second, true},
	}
	for _, step := range steps {
		pids, err := c.standingIn(ctx, dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		signalled := false
		for _, pid := range pids {
			if step.all || pid == postmaster {
				c.log.LogAttrs(ctx, slog.LevelWarn, "left-over database process signalled", slog.Int("pid", pid), slog.String("signal", step.signal.String()))
				_ = syscall.Kill(pid, step.signal) // it may have ended meanwhile
				signalled = true
			}
		}
		if !signalled {
			continue
		}
		if err := c.waitGone(ctx, dir, step.wait); err != nil {
			return err
		}
	}
	pids, err := c.standingIn(ctx, dir)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("processes %s in %s don't end: end them, or restart the machine", joinInts(pids), dir)
	}
	return err
}

// waitGone waits until nobody stands in dir, or for that long.
func (c *cluster) waitGone(ctx context.Context, dir string, limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		pids, err := c.standingIn(ctx, dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for processes %s in %s to end: %w", joinInts(pids), dir, context.Cause(ctx))
		case <-deadline.C:
			return nil
		case <-tick.C:
		}
	}
}

// standingIn lists the live server processes whose working directory is dir; a zombie has none any more. Others may stand
// there too, like the shell of an operator who has a look.
func (c *cluster) standingIn(ctx context.Context, dir string) ([]int, error) {
	target, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var (
		pids   []int
		denied bool
	)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if !isServer(pid) {
			continue
		}
		cwd, err := os.Readlink("/proc/" + entry.Name() + "/cwd")
		if err == nil && cwd == target {
			pids = append(pids, pid)
		}
		denied = denied || errors.Is(err, fs.ErrPermission)
	}
	if denied && c.account.other {
		return c.standingInAsOwner(ctx, target)
	}
	return pids, nil
}

// standingInAsOwner is standingIn for a root without CAP_SYS_PTRACE, as in most containers: it may not look into another
// user's processes, but it may become that user, who may.
func (c *cluster) standingInAsOwner(ctx context.Context, dir string) ([]int, error) {
	const script = `for p in /proc/[0-9]*; do [ "$p/cwd" -ef "$1" ] && [ "${p#/proc/}" != $$ ] && echo "${p#/proc/}"; done; :`
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "sh", dir)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), c.account.attributes()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list processes in %s: %w", dir, err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("list processes in %s: %w", dir, err)
		}
		if isServer(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isServer tells by the name of the program, which everyone may read.
func isServer(pid int) bool {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return err == nil && slices.Contains([]string{"postgres", "initdb"}, strings.TrimSpace(string(name)))
}
