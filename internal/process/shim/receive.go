package shim

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/bundle"
)

// receivePatience bounds the wait for a launcher that is stopped, or isn't one.
const receivePatience = 5 * time.Second

// receive reads the bundle from the standard input and puts nothing in its place.
func receive() (process.Bundle, error) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3) //nolint:mnd // after the standard ones
	if err != nil {
		return process.Bundle{}, fmt.Errorf("%w: %w", bundle.ErrNotWhole, err)
	}
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil || is.Mode&unix.S_IFMT != unix.S_IFSOCK && is.Mode&unix.S_IFMT != unix.S_IFIFO {
		_ = unix.Close(fd)
		return process.Bundle{}, fmt.Errorf("%w: standard input isn't orch's", bundle.ErrNotWhole)
	}
	// Only what doesn't block can be given up.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return process.Bundle{}, fmt.Errorf("%w: %w", bundle.ErrNotWhole, err)
	}
	pipe := os.NewFile(uintptr(fd), "bundle")
	defer func() { _ = pipe.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return process.Bundle{}, fmt.Errorf("close standard input: %w", err)
	}
	defer func() { _ = null.Close() }()
	if err := unix.Dup3(int(null.Fd()), 0, 0); err != nil {
		return process.Bundle{}, fmt.Errorf("close standard input: %w", err)
	}
	if err := pipe.SetReadDeadline(time.Now().Add(receivePatience)); err != nil {
		return process.Bundle{}, fmt.Errorf("%w: %w", bundle.ErrNotWhole, err)
	}
	return bundle.Receive(pipe)
}
