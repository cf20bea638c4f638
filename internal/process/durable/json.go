package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mostBytes is more than any file holds that orch reads whole.
const mostBytes = 16 << 20

// ErrGarbled means that a file holds something else than what belongs there.
var ErrGarbled = errors.New("undecodable")

// WriteJSON replaces dir/name: after it returns nil, a power cut can't take the content back.
func WriteJSON(dir, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return write(dir, name, append(raw, '\n'))
}

func write(dir, name string, content []byte) error {
	f, err := os.CreateTemp(dir, name+".tmp*") // each writer its own: two may forbid a run at once
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	} else {
		err = SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}

// ReadFile reads a small file that others than orch may have put there: it waits for no pipe, follows no link, and takes
// no more memory than a file of orch's needs. What can't be one is [ErrGarbled].
func ReadFile(path string) ([]byte, error) {
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err == nil && len(raw) > mostBytes {
		err = fmt.Errorf("%w: more than %d bytes", ErrGarbled, mostBytes)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// OpenFile opens a regular file for reading; what isn't one is [ErrGarbled].
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) { // a link, a socket
		return nil, fmt.Errorf("%w: not a file", ErrGarbled)
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // names the file
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a file", ErrGarbled)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadJSON reports false when the file isn't there. Files are renamed into place, so orch leaves none torn; one that is all
// the same gives [ErrGarbled] and nothing of its content.
func ReadJSON[T any](dir, name string, into *T) (bool, error) {
	raw, err := ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return false, fmt.Errorf("read %s: %w: %w", name, ErrGarbled, err)
	}
	*into = v
	return true, nil
}
