package root

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Alone does something that one process of the root does at a time, and says whether it was this one. It waits for nobody.
func (r *Root) Alone(what string, fn func() error) (bool, error) {
	f, err := os.OpenFile(filepath.Join(r.path, what+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, fmt.Errorf("%s: %w", what, err)
	}
	l := &lock{file: f}
	defer func() { _ = f.Close() }()
	err = l.try(unix.LOCK_EX)
	if errors.Is(err, ErrInUse) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = l.unlock() }()
	return true, fn()
}
