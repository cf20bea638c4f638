package shim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
)

const (
	// memory is the heap that the shim aims at. It lives as long as its program, in as many copies as there are runs.
	memory = 12 << 20
	// lookAgain is the pause between two looks for what should be gone.
	lookAgain = 100 * time.Millisecond
)

// Run runs the program of a run directory and leaves its record there; it is the body of `orch shim DIR` and
// expects the process to itself. The result is the exit code of the shim: 0 when the directory says how the run ended.
func Run(dir string) int {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(20)
	debug.SetMemoryLimit(memory)
	// First of all: a stop that comes from now on isn't lost. SIGHUP is caught, not ignored, as ignoring is inherited.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if err := run(dir, signals); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "orch shim: %v\n", err)
		return 1
	}
	return 0
}

type shim struct {
	dir     string
	hold    *process.Hold
	spec    process.Spec
	pids    process.PIDs
	signals <-chan os.Signal
	program *program
	timer   *bootTimer
	started int64       // BootClock
	why     process.Why // empty until somebody wants the run to end
	killAt  int64       // BootClock; set once it is being ended
}

func run(dir string, signals <-chan os.Signal) error {
	s := &shim{dir: dir, signals: signals}
	self, err := process.Self() // before /proc/self closes
	if err != nil {
		return err
	}
	s.pids.Shim = self
	if err := process.Protect(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	s.hold, err = process.TakeHold(dir)
	if errors.Is(err, process.ErrHeld) {
		return nil // another shim has it, or it is being forbidden
	}
	if err != nil {
		return err
	}
	defer s.hold.Release()
	return s.decide()
}

// decide starts the program unless the run was decided before, is forbidden, or comes too late.
func (s *shim) decide() error {
	decided, err := s.hold.Decided()
	if err != nil || decided {
		return err // never twice
	}
	if s.spec, err = s.hold.Spec(); err != nil {
		return err
	}
	if s.spec.StartBy != 0 && process.BootClock() > s.spec.StartBy {
		return s.record(process.Exit{Why: process.WhyNeverStarted, Error: "start_by has passed"})
	}
	if err := s.hold.WritePIDs(s.pids); err != nil {
		return err
	}
	if why, ok := s.hold.StopWanted(); ok {
		return s.record(process.Exit{Why: why, Error: "stopped before the start"})
	}
	return s.run()
}

// roomAgain is how often a full disk is looked at again: how the program ended must not be lost, and the run stays held
// until it is on disk.
const roomAgain = time.Second

func (s *shim) record(exit process.Exit) error {
	exit.FinishedAt = time.Now()
	for {
		err := s.hold.WriteExit(exit)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			return err
		}
		<-time.After(roomAgain)
	}
}

func (s *shim) run() error {
	log, err := newLogWriter(s.dir, s.spec.LogCap)
	if err != nil {
		return err
	}
	if s.timer, err = newBootTimer(); err != nil {
		return err
	}
	defer s.timer.close()
	exit := process.Exit{Why: process.WhyExited, StartedAt: time.Now()}
	s.started = process.BootClock()
	s.program, err = startProgram(s.dir, s.spec, log)
	if err != nil {
		exit.Code, exit.Error = startCode(err), err.Error()
		return errors.Join(log.Close(), s.record(exit))
	}
	if err = s.program.anonymous; err == nil {
		s.pids.Agent = s.program.identity
		err = s.hold.WritePIDs(s.pids)
	}
	if err != nil { // a program that nobody could find must not run
		s.beginEnd(process.WhyInterrupted)
		exit.Error = err.Error()
	}
	debug.FreeOSMemory()
	s.supervise()
	if s.why != "" {
		exit.Why = s.why
	} else if why, ok := s.hold.StopWanted(); ok && !s.program.succeeded() {
		exit.Why = why // who asked for it couldn't find the shim, and ended the program
	}
	return s.finish(exit, log)
}

// supervise returns when the program has ended.
func (s *shim) supervise() {
	s.arm()
	for {
		select {
		case <-s.program.ended:
			return
		case sig := <-s.signals:
			if sig == unix.SIGHUP {
				continue
			}
			why, ok := s.hold.StopWanted()
			if !ok {
				why = process.WhyInterrupted // not by orch: the machine shuts down, or a person did it
			}
			s.beginEnd(why)
		case <-s.timer.C:
			s.tick(process.BootClock())
		}
		s.arm()
	}
}

// beginEnd is the gentle half of ending; the timer does the rest.
func (s *shim) beginEnd(why process.Why) {
	if s.why != "" {
		return
	}
	s.why = why
	s.program.closeStdin()
	s.program.signalGroup(unix.SIGTERM)
	s.killAt = process.BootClock() + int64(s.spec.Grace())
}

func (s *shim) tick(now int64) {
	switch total, stall := s.deadlines(); {
	case s.why != "" && now >= s.killAt:
		s.killEverything()
		s.killAt = now + int64(lookAgain) // the program may have forked meanwhile
	case s.why != "":
	case now >= total:
		s.beginEnd(process.WhyTimeout)
	case now >= stall:
		s.beginEnd(process.WhyStalled)
	}
}

func (s *shim) deadlines() (total, stall int64) {
	total, stall = math.MaxInt64, math.MaxInt64
	if s.spec.Timeout > 0 {
		total = s.started + int64(s.spec.Timeout)
	}
	if s.spec.StallTimeout > 0 {
		stall = max(s.started, s.program.lastOutput.Load()) + int64(s.spec.StallTimeout)
	}
	return total, stall
}

func (s *shim) arm() {
	total, stall := s.deadlines()
	next := min(total, stall)
	if s.why != "" {
		next = s.killAt
	}
	if next == math.MaxInt64 {
		next = 0
	}
	if err := s.timer.set(next); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "orch shim: %v\n", err)
	}
}

func (s *shim) killEverything() {
	s.program.signalGroup(unix.SIGKILL) // the whole group in one go, however fast it forks
	s.family().Kill()
}

func (s *shim) family() process.Family {
	return process.Family{Shim: s.pids.Shim.PID, RunID: s.spec.RunID}
}

// finish ends what the program left behind, drains its output and writes the record.
func (s *shim) finish(exit process.Exit, log *logWriter) error {
	s.program.closeStdin()
	err := errors.Join(s.endFamily(), s.program.drain(), log.Close())
	s.program.result(&exit)
	exit.LogBytes = log.size.Load()
	if err != nil {
		exit.Error = err.Error()
	}
	return s.record(exit)
}

// endFamily repeats until the kernel confirms what looking through /proc shows: a look can miss a process that is
// just being forked.
func (s *shim) endFamily() error {
	grace := min(s.spec.Grace(), process.RemainsGrace)
	if s.why != "" && process.BootClock() >= s.killAt {
		grace = 0 // they had theirs
	}
	giveUp := process.BootClock() + int64(grace+process.KillPatience)
	for {
		if err := s.family().End(context.Background(), grace); err != nil {
			return err
		}
		select {
		case <-s.program.childless:
			return nil
		case <-time.After(lookAgain):
		}
		if process.BootClock() > giveUp {
			return process.ErrSurvivors
		}
	}
}

// startCode is what a shell would say: 127 for a command that isn't there, 126 for one that can't be run.
func startCode(err error) *int {
	var code int
	switch {
	case errors.Is(err, errNoDir):
		return nil
	case errors.Is(err, unix.ENOENT) || errors.Is(err, errNotFound):
		code = 127
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EISDIR):
		code = 126
	default:
		return nil
	}
	return &code
}
