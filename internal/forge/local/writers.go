package local

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

	"golang.org/x/sys/unix"

	"orch/internal/forge"
	"orch/internal/forge/local/problem"
)

// writersFile is a file in the repository's git directory. Each git of orch that writes refs shares its flock for as long as it
// lives, with or without the orch that started it.
const writersFile = "orch-writers"

// maxStale is how many lock files of the dead one git may meet.
const maxStale = 64

// write runs a git that writes refs. Below refs/orch nobody but orch writes: a lock file that it meets there is of a git that is
// at work, which shares the writers' lock, or of one that died together with its orch, which is taken away. Any other lock file may
// be anybody's, and stays.
func (l *Local) write(ctx context.Context, r *repository, stdin []byte, args ...string) error {
	for tries := 0; ; tries++ {
		err := l.writeOnce(ctx, r, stdin, args...)
		met := problem.LockMet(err)
		if met == "" || tries == maxStale || !l.removeStale(ctx, r, met) {
			return err
		}
	}
}

func (l *Local) writeOnce(ctx context.Context, r *repository, stdin []byte, args ...string) error {
	lock, err := openWriters(r)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := share(ctx, lock); err != nil {
		return err
	}
	_, err = l.git.RunHolding(ctx, lock, r.gitDir, "", "", stdin, args...)
	return err
}

// share waits for who has the lock alone, which looks at one file only. Where files can't be locked no lock file is ever taken
// away, and nobody needs to share.
func share(ctx context.Context, lock *os.File) error {
	err := flock(ctx, lock, unix.LOCK_SH, 5*time.Second)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		p := problem.New(forge.CodeLocked, "end or continue the process of orch that is stopped there", "%s is held", lock.Name())
		p.Retry = true
		return p
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return nil
	}
}

// alone says whether the lock could be had alone. It takes a moment: a process that any thread of this one has just forked shares
// its locks until it becomes another program.
func alone(ctx context.Context, lock *os.File) bool {
	return flock(ctx, lock, unix.LOCK_EX, time.Second) == nil
}

// flock asks for a lock until it is had, or patience or ctx is over: EWOULDBLOCK when others have it.
func flock(ctx context.Context, lock *os.File, how int, patience time.Duration) error {
	const pause = 5 * time.Millisecond
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; {
		err := unix.Flock(int(lock.Fd()), how|unix.LOCK_NB)
		held := errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR)
		if !held || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func openWriters(r *repository) (*os.File, error) {
	path := filepath.Join(r.gitDir, writersFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644) //nolint:gosec // it tells nothing
	if err == nil {
		info, failed := file.Stat()
		if failed == nil && info.Mode().IsRegular() {
			return file, nil
		}
		_ = file.Close()
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return nil, problem.New(forge.CodeRefused, "let the user that orch runs as write to the repository", "%s can't be written", path)
	case err == nil, errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return nil, problem.New(forge.CodeRefused, "remove it", "%s is no file of orch's", path)
	default:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
}

// removeStale takes away a lock file of orch's that nobody holds any more. While any git of orch is at work nobody knows.
func (l *Local) removeStale(ctx context.Context, r *repository, path string) bool {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.gitDir, path)
	}
	if !r.ours(path) || !strings.HasSuffix(path, ".lock") {
		return false
	}
	lock, err := openWriters(r)
	if err != nil {
		return false
	}
	defer func() { _ = lock.Close() }()
	if !alone(ctx, lock) {
		return false
	}
	if info, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return true // somebody was first
	} else if err != nil || !info.Mode().IsRegular() {
		return false
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	l.log.WarnContext(ctx, "stale git lock removed: the git of orch that had it died", slog.String("path", path))
	return true
}

// ours says whether a file is below refs/orch, without a link on the way.
func (r *repository) ours(path string) bool {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false
	}
	top, err := filepath.EvalSymlinks(r.gitDir)
	return err == nil && strings.HasPrefix(dir+"/", filepath.Join(top, "refs", "orch")+"/")
}
