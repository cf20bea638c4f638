package shim

import (
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
)

// signalWithin is how long a signal may take to come that was sent to the shim and its program at once.
const signalWithin = time.Second

// toldToEnd reports whether a signal to end has come that supervise didn't get to: a machine that shuts down gives it to
// the shim and to the program, which may be gone first. If SIGTERM has ended the program, the shim's may be on its way.
func (s *shim) toldToEnd(exit process.Exit) bool {
	within := time.Duration(0)
	if endedBySIGTERM(exit) {
		within = signalWithin
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case sig := <-s.signals:
			if sig != unix.SIGHUP {
				return true
			}
		case <-timer.C:
			for len(s.signals) > 0 {
				if <-s.signals != unix.SIGHUP {
					return true
				}
			}
			return false
		}
	}
}

// endedBySIGTERM reports whether a program died of SIGTERM, or says as a shell does that something of it did.
func endedBySIGTERM(exit process.Exit) bool {
	const byTerm = 128 + int(unix.SIGTERM)
	return exit.Signal == "SIGTERM" || exit.Code != nil && *exit.Code == byTerm
}
