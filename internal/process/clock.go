package process

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is CLOCK_BOOTTIME in nanoseconds: it goes on while the machine sleeps and never jumps.
func BootClock() int64 {
	var ts unix.Timespec
	// The kernel refuses only unknown clocks.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// sleep waits, or gives the cause of ctx's end.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
