package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process"
	"orch/internal/process/cgroup"
	"orch/internal/process/contact"
	"orch/internal/process/redact"
	"orch/internal/process/runlog"
	"orch/internal/transcript"
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
	output  *output
	timer   *bootTimer
	ends    *deadlines
	limited bool
	said    transcript.Said
	why     process.Why // empty until somebody wants the run to end
	killAt  int64       // BootClock; set once it is being ended
	saidAt  int64       // BootClock; when said.json was written last
	retryAt int64       // BootClock; when output that had no room is tried again
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
	secret, err := receive()
	if err != nil {
		return s.refuse(err.Error())
	}
	if s.spec.StartBy != 0 && process.BootClock() > s.spec.StartBy {
		return s.refuse("start_by has passed")
	}
	if err := s.prepare(); err != nil {
		return s.refuse(err.Error())
	}
	s.pids.Cgroup = cgroup.Of(s.spec.RunID, "") // told before it is made, so that none is left that nobody knows of
	if err := s.hold.WritePIDs(s.pids); err != nil {
		return err
	}
	if why, ok := s.hold.StopWanted(); ok {
		return s.record(process.Exit{Why: why, Error: "stopped before the start"})
	}
	return s.run(secret)
}

// prepare takes everything that could be missing once the program runs.
func (s *shim) prepare() error {
	if err := s.hold.Reserve(); err != nil {
		return err
	}
	var err error
	if s.output, err = newOutput(s.dir, s.spec); err != nil {
		return err
	}
	s.timer, err = newBootTimer()
	return err
}

// refuse records that nothing was started. If that can't be written nobody is misled: no shim was here then.
func (s *shim) refuse(reason string) error {
	return s.hold.WriteExit(process.Exit{Why: process.WhyNeverStarted, FinishedAt: time.Now(), Error: reason})
}

const (
	// recordFirst and recordMost are the pauses after a record that couldn't be written: how the program ended must not be
	// lost, and the run stays held until it is on disk.
	recordFirst = time.Second
	recordMost  = 30 * time.Second
)

func (s *shim) record(exit process.Exit) error {
	exit.FinishedAt = time.Now()
	cgroup.Remove(s.pids.Cgroup) // nobody looks for it after a record
	for pause := recordFirst; ; pause = min(2*pause, recordMost) {
		err := s.hold.WriteExit(exit)
		if err == nil {
			return s.hold.EmptyTemp()
		}
		if s.hold.Gone() {
			return s.restore(exit)
		}
		_, _ = fmt.Fprintf(os.Stderr, "orch shim: %v\n", err)
		<-time.After(pause)
	}
}

// restore is record for a run whose directory was taken away. Where there is no place for run directories any more nobody looks
// for a record either.
func (s *shim) restore(exit process.Exit) error {
	exit.LogLost = exit.LogBytes
	exit.Error = "its run directory was lost, and its output with it"
	return s.hold.Restore(s.spec, s.pids, s.said, exit)
}

func (s *shim) run(secret process.Bundle) error {
	defer s.timer.close()
	exit := process.Exit{Why: process.WhyExited, StartedAt: time.Now()}
	s.ends = newDeadlines(s.spec, process.BootClock())
	if !cgroup.Make(s.pids.Cgroup) { // then the run is held together by less
		s.pids.Cgroup = ""
	}
	var err error
	s.program, err = startProgram(s.dir, s.spec, s.pids.Cgroup, secret.Env, redact.New(secret.Secrets, s.output))
	if err != nil {
		exit.Code, exit.Unstarted, exit.Error = startCode(err), true, err.Error()
		_, _, err = s.output.close()
		return errors.Join(err, s.record(exit))
	}
	if err := s.introduce(); err != nil { // a program that nobody could find must not run
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
	return s.finish(exit)
}

// introduce makes the program known to others.
func (s *shim) introduce() error {
	if s.program.anonymous != nil {
		return s.program.anonymous
	}
	s.pids.Agent = s.program.identity
	return s.hold.WritePIDs(s.pids)
}

// supervise returns when the program has ended.
func (s *shim) supervise() {
	for {
		s.arm()
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
		case <-s.output.news:
		case <-s.timer.C:
		}
		s.tick(process.BootClock())
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

// tick does what is due.
func (s *shim) tick(now int64) {
	s.keepUp(now)
	if s.why != "" {
		if now >= s.killAt {
			s.killEverything()
			s.killAt = now + int64(lookAgain) // the program may have forked meanwhile
		}
		return
	}
	at, why := s.ends.next(s.heard())
	if now < at || why == process.WhyOrphaned && !s.ends.orphaned(now, s.contact) {
		return
	}
	s.beginEnd(why)
}

// saidEvery is the shortest pause between two notes of what the program has said.
const saidEvery = time.Second

// keepUp notes what the program has said, and writes output that had no room.
func (s *shim) keepUp(now int64) {
	unsaid, behind, _ := s.output.look()
	if unsaid && now >= s.saidAt+int64(saidEvery) {
		s.saidAt = now
		if said, ok := s.output.say(); ok {
			s.limited = sleepsOnLimits(s.spec.Format, said)
			_ = s.hold.NoteSaid(said) // comes again, and at the end where there is room for it
		}
	}
	if behind && now >= s.retryAt {
		s.output.catchUp()
		s.retryAt = now + int64(runlog.RetryAfter)
	}
}

// arm sets the timer to the next moment at which something is due.
func (s *shim) arm() {
	next, _ := s.ends.next(s.heard())
	if s.why != "" {
		next = s.killAt
	}
	unsaid, behind, _ := s.output.look()
	if unsaid {
		next = min(next, s.saidAt+int64(saidEvery))
	}
	if behind {
		next = min(next, s.retryAt)
	}
	if next == never {
		next = 0
	}
	if err := s.timer.set(next); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "orch shim: %v\n", err)
	}
}

func (s *shim) heard() heard {
	_, _, tools := s.output.look()
	return heard{output: s.program.lastOutput.Load(), tools: tools, limited: s.limited}
}

// contact is the last one of an orch of this root.
func (s *shim) contact() (int64, error) { return contact.Read(filepath.Dir(s.dir)) }

func (s *shim) killEverything() {
	s.program.signalGroup(unix.SIGKILL) // the whole group in one go, however fast it forks
	cgroup.Kill(s.pids.Cgroup)
	s.family().Kill()
}

func (s *shim) family() process.Family {
	return process.Family{Shim: s.pids.Shim.PID, RunID: s.spec.RunID}
}

// finish ends what the program left behind, drains its output and writes the record.
func (s *shim) finish(exit process.Exit) error {
	s.program.closeStdin()
	err := errors.Join(s.endFamily(), s.program.drain())
	said, spoke, closed := s.output.close()
	if spoke {
		s.said = said
		closed = errors.Join(closed, s.hold.WriteSaid(said))
	}
	s.program.result(&exit)
	if exit.Why == process.WhyExited && !s.program.succeeded() && s.toldToEnd(exit) {
		// What orch wants of a program that has ended by itself comes too late, and changes nothing.
		if why, ok := s.hold.StopWanted(); !ok || why == process.WhyInterrupted {
			exit.Why = process.WhyInterrupted
		}
	}
	exit.LogBytes, exit.LogLost = s.output.sizes()
	if err = errors.Join(err, closed); err != nil {
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
