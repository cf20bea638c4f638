package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrTooBig means that a content needs more room than was taken for it.
var ErrTooBig = errors.New("more than the room that was taken")

// Room is room in a directory that becomes a file of it.
type Room struct {
	file *os.File
	size int64
}

// Reserve takes room for size bytes.
func Reserve(dir string, size int64) (*Room, error) {
	f, err := os.CreateTemp(dir, ".room-*")
	if err != nil {
		return nil, fmt.Errorf("take room: %w", err)
	}
	r := &Room{file: f, size: size}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		if _, err = f.Write(make([]byte, size)); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		r.Drop()
		return nil, fmt.Errorf("take room for %d bytes: %w", size, err)
	}
	return r, nil
}

// Size is how many bytes it has room for.
func (r *Room) Size() int64 { return r.size }

// Become gives the file its content and its name, in place of what has that name: after it returns nil, a power cut can't
// take it back. The room is used up, also by a failure.
func (r *Room) Become(path string, content []byte) error {
	err := r.become(path, content)
	if err != nil {
		r.Drop()
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	r.file = nil
	return nil
}

func (r *Room) become(path string, content []byte) error {
	if r.file == nil || int64(len(content)) > r.size {
		return ErrTooBig
	}
	_, err := r.file.WriteAt(content, 0)
	if err == nil {
		err = r.file.Truncate(int64(len(content)))
	}
	if err == nil {
		err = r.file.Sync()
	}
	if err == nil {
		err = os.Rename(r.file.Name(), path)
	}
	if err == nil {
		err = SyncDir(filepath.Dir(path))
	}
	if err == nil {
		err = r.file.Close()
	}
	return err //nolint:wrapcheck // by the caller
}

// Drop gives the room back, if it is still there.
func (r *Room) Drop() {
	if r == nil || r.file == nil {
		return
	}
	_ = os.Remove(r.file.Name())
	_ = r.file.Close()
	r.file = nil
}
