// Package indexlock takes git's index.lock so that one whose holder was killed can be told from one that is in use. git
// itself would take either for in use.
package indexlock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrHeld means that the lock isn't orch's, or that its holder is at work.
var ErrHeld = errors.New("the index is locked")

// lockContent is what an index.lock of orch's has in it; git's own has an index.
const lockContent = "orch\n"

// Lock is git's index.lock, taken by orch. It is flocked too. git processes that do orch's work share it.
type Lock struct {
	file *os.File
	path string
}

// Take takes the lock, also over from a holder that was killed. ErrHeld when that isn't so.
func Take(path string) (*Lock, error) {
	file, err := place(path)
	if errors.Is(err, fs.ErrExist) {
		if file = takeOver(path); file == nil {
			return nil, fmt.Errorf("take %s: %w", path, ErrHeld)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("take %s: %w", path, err)
	}
	return &Lock{file: file, path: path}, nil
}

// File is what processes that share the lock are to hold.
func (l *Lock) File() *os.File { return l.file }

// place makes the lock, flocked and with its content from the first moment that it has a name: one that a kill left
// empty could never be told from git's.
func place(path string) (*os.File, error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	var file *os.File
	switch {
	case err == nil:
		file = os.NewFile(uintptr(fd), path)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EISDIR): // not every file system has nameless files
		if file, err = os.CreateTemp(filepath.Dir(path), "orch-index-lock-*"); err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(file.Name()) }()
	default:
		return nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	_, err = file.WriteString(lockContent)
	if err == nil {
		err = flockNow(file)
	}
	if err == nil {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Release gives the lock back.
func (l *Lock) Release() {
	_ = os.Remove(l.path)
	_ = l.file.Close()
}

// takeOver opens a lock that is orch's and whose holder is gone; nil when it isn't.
func takeOver(path string) *os.File {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	var content []byte
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() { // a pipe would never end
		content, err = io.ReadAll(io.LimitReader(file, int64(len(lockContent)+1)))
	}
	if err == nil && string(content) == lockContent && flockNow(file) == nil && stillThere(file, path) {
		return file
	}
	_ = file.Close()
	return nil
}

// Stale says whether a lock would be taken over.
func Stale(path string) bool {
	file := takeOver(path)
	if file == nil {
		return false
	}
	_ = file.Close()
	return true
}

// stillThere guards against a holder that released, and so removed, the file between opening and locking it.
func stillThere(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, there)
}

func flockNow(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
