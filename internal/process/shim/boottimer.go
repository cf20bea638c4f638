package shim

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// bootTimer fires at a moment of CLOCK_BOOTTIME, also when the machine slept through it.
type bootTimer struct {
	// C has a value after each expiry.
	C    <-chan struct{}
	file *os.File
}

func newBootTimer() (*bootTimer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	c := make(chan struct{}, 1)
	t := &bootTimer{C: c, file: os.NewFile(uintptr(fd), "timer")}
	go func() {
		var expirations [8]byte
		for {
			if _, err := t.file.Read(expirations[:]); err != nil {
				return // closed
			}
			select {
			case c <- struct{}{}:
			default: // one is waiting to be seen
			}
		}
	}()
	return t, nil
}

// set replaces the moment; zero is never.
func (t *bootTimer) set(at int64) error {
	conn, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	var settime error
	err = conn.Control(func(fd uintptr) {
		settime = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
	if err == nil {
		err = settime
	}
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

func (t *bootTimer) close() { _ = t.file.Close() }
