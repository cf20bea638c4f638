package process

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/process/durable"
	"orch/internal/process/runlock"
	"orch/internal/transcript"
)

// Names in a run directory.
const (
	specFile  = "spec.json"
	stdinFile = "stdin"
	tmpDir    = "tmp"
	pidFile   = "pid.json"
	stopFile  = "stop"
	saidFile  = "said.json"
	exitFile  = "exit.json"
	errFile   = "shim.err"
)

const (
	// DefaultLogCap bounds a log whose spec names no cap.
	DefaultLogCap int64 = 64 << 20
	// DefaultKillGrace is the time between SIGTERM and SIGKILL when the spec names none.
	DefaultKillGrace = 10 * time.Second
)

var (
	// ErrExists means that the run directory is there already.
	ErrExists = errors.New("run directory exists")
	// ErrBadSpec means that a spec can't be run.
	ErrBadSpec = errors.New("bad run spec")
)

// Spec says what to run.
type Spec struct {
	RunID string   `json:"run_id"`
	Argv  []string `json:"argv"`
	// Dir is the absolute path of the working directory.
	Dir string `json:"dir"`
	// Stdin is the name of a file in the run directory; empty for none.
	Stdin string `json:"stdin,omitempty"`
	// EnvNames tells a reader which variables are set; the values are in no file.
	EnvNames []string `json:"env_names,omitempty"`
	// Timeout bounds the whole run, StallTimeout a silence; zero is no limit.
	Timeout      time.Duration `json:"timeout_ns,omitempty"`
	StallTimeout time.Duration `json:"stall_timeout_ns,omitempty"`
	KillGrace    time.Duration `json:"kill_grace_ns,omitempty"`
	// Format is how the output is to be understood; empty: not at all. ToolStallTimeout takes the place of StallTimeout
	// while the program waits for a tool of its own; zero is StallTimeout.
	Format           transcript.Format `json:"format,omitempty"`
	ToolStallTimeout time.Duration     `json:"tool_stall_timeout_ns,omitempty"`
	// OrphanGrace is how long the run goes on while no orch of its root is in contact with the database; zero is without
	// end. OrphanPatience bounds how much longer it may go on when it finds that out late, because the machine slept: both
	// and the ending must fit before another host may have the job.
	OrphanGrace    time.Duration `json:"orphan_grace_ns,omitempty"`
	OrphanPatience time.Duration `json:"orphan_patience_ns,omitempty"`
	// Contact is when there was contact for certain, in nanoseconds of CLOCK_BOOTTIME: before the intent was written.
	Contact int64 `json:"contact,omitempty"`
	// LogCap bounds the log in bytes.
	LogCap int64 `json:"log_cap,omitempty"`
	// StartBy is the latest start, in nanoseconds of CLOCK_BOOTTIME; zero is no limit.
	StartBy int64 `json:"start_by,omitempty"`
}

// StdinPath is the file that the program of a run directory is fed.
func StdinPath(dir string) string { return filepath.Join(dir, stdinFile) }

func (s Spec) validate() error {
	switch {
	case s.RunID == "":
		return fmt.Errorf("%w: no run id", ErrBadSpec)
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return fmt.Errorf("%w: no command", ErrBadSpec)
	case !filepath.IsAbs(s.Dir):
		return fmt.Errorf("%w: directory %q is not absolute", ErrBadSpec, s.Dir)
	case min(s.Timeout, s.StallTimeout, s.KillGrace, s.ToolStallTimeout, s.OrphanGrace, s.OrphanPatience) < 0 || s.LogCap < 0:
		return fmt.Errorf("%w: negative limit", ErrBadSpec)
	}
	return nil
}

// Grace is the time between SIGTERM and SIGKILL: KillGrace or the default.
func (s Spec) Grace() time.Duration {
	if s.KillGrace == 0 {
		return DefaultKillGrace
	}
	return s.KillGrace
}

// Why says what brought a run to its end.
type Why string

// The reasons for an end.
const (
	WhyExited       Why = "exited"
	WhyTimeout      Why = "timeout"
	WhyStalled      Why = "stalled"
	WhyCancelled    Why = "cancelled"
	WhyOrphaned     Why = "orphaned"
	WhyInterrupted  Why = "interrupted"
	WhyNeverStarted Why = "never_started"
	// WhyCeiling is the end of a run that went on past its own limit, as its shim didn't end it.
	WhyCeiling Why = "ceiling"
	// WhyHostDead is never in a record either: another host has got the job, since the run's was silent for too long.
	WhyHostDead Why = "host_dead"
	// WhyShimDead is never in a record: it is for those who note that there is none.
	WhyShimDead Why = "shim_dead"
)

// recorded reports whether a record may give the reason.
func (w Why) recorded() bool {
	switch w {
	case WhyExited, WhyTimeout, WhyStalled, WhyCancelled, WhyOrphaned, WhyInterrupted, WhyNeverStarted, WhyCeiling:
		return true
	default:
		return false
	}
}

// Exit is how a run ended. A program that was started has either a Code or a Signal.
type Exit struct {
	Code       *int      `json:"code,omitempty"`
	Signal     string    `json:"signal,omitempty"`
	Why        Why       `json:"why"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// UserTime, SystemTime and MaxRSSBytes are the program's own, without descendants that it didn't wait for. The kernel
	// counts the moment before the exec too, so MaxRSSBytes is never less than the shim's own.
	UserTime    time.Duration `json:"user_time_ns,omitempty"`
	SystemTime  time.Duration `json:"system_time_ns,omitempty"`
	MaxRSSBytes int64         `json:"max_rss_bytes,omitempty"`
	// LogBytes counts all output, dropped or not; LogLost is how much of it was never written, as there was no room.
	LogBytes int64 `json:"log_bytes"`
	LogLost  int64 `json:"log_lost,omitempty"`
	// Unstarted means that the program isn't there or can't be run; Error says why.
	Unstarted bool `json:"unstarted,omitempty"`
	// Error says what went wrong around the program: it wasn't found, or something could not be ended.
	Error string `json:"error,omitempty"`
}

// sound reports whether a shim can have written it.
func (e Exit) sound() bool {
	return e.Why.recorded() && (e.Code == nil || *e.Code >= 0 && *e.Code <= math.MaxUint8) &&
		(e.Signal == "" || unix.SignalNum(e.Signal) != 0)
}

// PIDs are the processes of a run; zero until they are known.
type PIDs struct {
	Shim  Identity `json:"shim"`
	Agent Identity `json:"agent"`
	// Cgroup is where the program and all that came from it are, if there could be one.
	Cgroup string `json:"cgroup,omitempty"`
}

// sound reports whether a shim can have written it: one that names at least itself.
func (p PIDs) sound() bool {
	return p.Shim.named() && (p.Agent.IsZero() || p.Agent.named())
}

// Create makes a run directory with everything that a shim needs. It is there afterwards or it isn't; ErrExists if
// it was there before, even as one that was only forbidden.
func Create(dir string, spec Spec, stdin []byte) error {
	spec.Stdin = ""
	if len(stdin) > 0 {
		spec.Stdin = stdinFile
	}
	if err := spec.validate(); err != nil {
		return err
	}
	return place(dir, func(tmp string) error {
		if err := os.Mkdir(filepath.Join(tmp, tmpDir), 0o700); err != nil {
			return fmt.Errorf("create temporary directory: %w", err)
		}
		if spec.Stdin != "" {
			if err := os.WriteFile(filepath.Join(tmp, stdinFile), stdin, 0o600); err != nil {
				return fmt.Errorf("write stdin: %w", err)
			}
		}
		return durable.WriteJSON(tmp, specFile, spec)
	})
}

// place fills a new directory with a lock file and whatever fill adds, and gives it its name only then.
func place(dir string, fill func(tmp string) error) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), newPrefix+"*")
	if err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	err = os.WriteFile(filepath.Join(tmp, runlock.Name), nil, 0o600)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_NOREPLACE)
	}
	if err == nil { // a power cut must not take it back: a run that was intended has a directory or has none for ever
		return durable.SyncDir(filepath.Dir(dir))
	}
	_ = os.RemoveAll(tmp)
	if errors.Is(err, fs.ErrExist) {
		err = ErrExists
	}
	return fmt.Errorf("create run directory: %w", err)
}
