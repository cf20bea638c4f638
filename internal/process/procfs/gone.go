package procfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Gone waits until exactly the process that st describes has ended, or gives the cause of ctx or why it can't be waited for.
func Gone(ctx context.Context, st Stat) error {
	fd, err := unix.PidfdOpen(st.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", st.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	// The descriptor may be a later owner's of the pid. Where /proc hides the process, it is taken for the right one.
	if now, err := Read(st.PID); err == nil && (now.Started != st.Started || now.Zombie()) {
		return nil
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(0, 1)) })
	defer stop()
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", st.PID, err)
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor fits
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", st.PID, err)
	}
	return nil
}
