package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"orch/internal/git/gitcmd"
)

// LockWait is how long locks of a mirror are waited for, unless WaitFor says otherwise: as long as whoever has one may
// work with it. Only a process that was stopped has it longer.
const LockWait = gitcmd.DefaultTimeout

// flock opens path and locks it, waiting as long as patience allows (ErrBusy) and ctx isn't done. Closing the file gives the lock back, but
// only once every process that inherited the file has closed it too: a git process that outlives a
// killed orch keeps the lock for as long as it works.
func flock(ctx context.Context, patience time.Duration, path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	wait := time.Millisecond
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
		case <-enough.C:
			_ = file.Close()
			return nil, fmt.Errorf("wait %s for lock %s: %w", patience, path, ErrBusy)
		case <-timer.C:
			wait = min(2*wait, 50*time.Millisecond)
			timer.Reset(wait)
		}
	}
}

// write runs a git command that takes git's own lock files in the mirror. Its process shares the
// writers' lock. When it meets a lock file, whoever made that one is either at work, and then shares
// the writers' lock, or was killed: with the lock taken exclusively, every lock file left is stale.
func (m *Mirror) write(ctx context.Context, c gitcmd.Call) error {
	err := m.writeShared(ctx, c)
	if err == nil || !lockFileMet(err) {
		return err
	}
	if err := m.removeStaleLocks(ctx); err != nil {
		return err
	}
	return m.writeShared(ctx, c)
}

func (m *Mirror) writeShared(ctx context.Context, c gitcmd.Call) error {
	lock, err := flock(ctx, m.lockWait, m.lockPath(), syscall.LOCK_SH)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	c.GitDir = m.dir
	c.Hold = append(c.Hold, lock)
	_, err = m.git.Do(ctx, c)
	return err
}

func (m *Mirror) removeStaleLocks(ctx context.Context) error {
	lock, err := flock(ctx, m.lockWait, m.lockPath(), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	return filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(m.dir, "objects") || path == m.TempDir()) {
			return fs.SkipDir
		}
		// A ref's name can't end in .lock, so that nothing but a lock file is called so.
		if d.Type().IsRegular() && strings.HasSuffix(path, ".lock") {
			m.git.Logger().WarnContext(ctx, "stale git lock removed", slog.String("path", path))
			return os.Remove(path) //nolint:gosec // only orch writes here
		}
		return nil
	})
}

func lockFileMet(err error) bool {
	var ge *gitcmd.Error
	return errors.As(err, &ge) && strings.Contains(ge.Stderr, ".lock': File exists")
}

func (m *Mirror) lockPath() string { return filepath.Join(m.dir, "orch-writers") }
