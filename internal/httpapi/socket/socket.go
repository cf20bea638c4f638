// Package socket makes the unix socket that a server is reached by from its own machine.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrServerRunning says that another server answers on the socket.
var ErrServerRunning = errors.New("a server is already running")

// maxPath is what the kernel takes, without the closing NUL.
const maxPath = 107

// Listener listens on a path that was made without a moment in which others could connect.
type Listener struct {
	*net.UnixListener
	path string
	info os.FileInfo
}

// Listen listens on path with mode 0600. A socket file that nobody answers on is what a killed server left, and
// is replaced; if somebody does answer, the error is ErrServerRunning.
//
// The socket is made in a directory that only we may enter, gets its mode there and is then renamed to its path. Two
// servers that start at once are kept apart by a lock beside the path: the second one finds the first one answering.
func Listen(ctx context.Context, path string) (*Listener, error) {
	unlock, err := lockFile(ctx, path+".lock")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer unlock()
	if err := vacate(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer os.RemoveAll(dir) // empty by then, and private
	temporary := filepath.Join(dir, "s")
	if len(temporary) > maxPath || len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path is too long for a socket: choose a data root of at most %d bytes",
			path, maxPath-len("/.s0000000000/s"))
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", temporary)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	made, err := publish(listener, temporary, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), listener.Close())
	}
	return made, nil
}

func publish(listener net.Listener, temporary, path string) (*Listener, error) {
	unixListener, ok := listener.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("unexpected listener %T", listener)
	}
	unixListener.SetUnlinkOnClose(false) // it would remove the temporary name
	if err := os.Chmod(temporary, 0o600); err != nil {
		return nil, err
	}
	info, err := os.Lstat(temporary)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return nil, err
	}
	return &Listener{UnixListener: unixListener, path: path, info: info}, nil
}

// Close stops listening and removes the path, unless it is somebody else's by now.
func (s *Listener) Close() error {
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.info) {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return errors.Join(fmt.Errorf("close the socket: %w", err), s.UnixListener.Close())
		}
	}
	return s.UnixListener.Close() //nolint:wrapcheck // net.ErrClosed is what net/http looks for
}

// vacate makes sure that nobody answers on path.
func vacate(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return errors.New("the path exists and is no socket; move it away")
	}
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		return errors.Join(ErrServerRunning, conn.Close())
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return nil // the rename replaces the file
	}
	// EAGAIN: its queue of connections is full, so there is somebody; EACCES: we can't know.
	return errors.Join(ErrServerRunning, err)
}

// lockFile waits, at most a few seconds, for an exclusive lock.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("another start holds "+path))
	defer cancel()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil // closing is what gives the lock back
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		}
	}
}
