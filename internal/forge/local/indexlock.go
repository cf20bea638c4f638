package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// lockContent is what an index.lock of orch's has in it; git's own has an index.
const lockContent = "orch\n"

// indexLock is git's index.lock, taken by orch. It is flocked too, so that one whose holder was killed can be told from
// one that is in use: git would take either for in use. git processes that do orch's work share it.
type indexLock struct {
	file *os.File
	path string
}

// takeIndexLock takes the lock, also over from a holder that was killed. One that isn't orch's is a problem that may pass.
func takeIndexLock(path string) (*indexLock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as git makes it
	if errors.Is(err, fs.ErrExist) {
		if file = takeOver(path); file == nil {
			return nil, locked(path)
		}
		return &indexLock{file: file, path: path}, nil
	}
	if err != nil {
		return nil, err
	}
	l := &indexLock{file: file, path: path}
	if err := flockNow(file); err != nil {
		l.release()
		return nil, err
	}
	if _, err := file.WriteString(lockContent); err != nil {
		l.release()
		return nil, err
	}
	return l, nil
}

func (l *indexLock) release() {
	_ = os.Remove(l.path)
	_ = l.file.Close()
}

// takeOver opens a lock that is orch's and whose holder is gone; nil when it isn't.
func takeOver(path string) *os.File {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	content, err := io.ReadAll(io.LimitReader(file, int64(len(lockContent)+1)))
	if err == nil && string(content) == lockContent && flockNow(file) == nil && stillThere(file, path) {
		return file
	}
	_ = file.Close()
	return nil
}

// oursAndStale says whether a lock would be taken over.
func oursAndStale(path string) bool {
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

// copyFile copies a file; one that isn't there leaves none.
func copyFile(from, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644) //nolint:gosec // as git makes it
}
