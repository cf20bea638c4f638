// Package clock is the only local clock that the queue goes by.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot is the time since boot, sleep included.
func Boot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // can't happen on a kernel that runs Go
	}
	return time.Duration(ts.Nano())
}
