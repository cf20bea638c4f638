package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/process"
	"orch/internal/transcript"
)

// Purpose says what a run is for.
type Purpose string

// The purposes of a run.
const (
	PurposeAgent Purpose = "agent"
	PurposeGate  Purpose = "gate"
	PurposeMerge Purpose = "merge"
)

// ErrBadRequest means that a request can't be executed whatever happens.
var ErrBadRequest = errors.New("bad run request")

// Request says what to run, and for what.
type Request struct {
	Purpose Purpose
	// Key names the work within the task; a run of the same task and key is continued, not repeated.
	Key    string
	TaskID int64
	Stage  string
	Round  int
	// Start says what to run, and makes ready for it. It is called only before a new run, maybe without one following,
	// and must bear to be repeated: a run that is under way is followed whatever has become of its configuration.
	Start func(ctx context.Context) (Program, error)
}

// Program is what a run starts.
type Program struct {
	// Agent is the name of the agent's entry, Preset that of its kind; empty for gates and tests.
	Agent, Preset string
	// Format is how the output is to be understood.
	Format transcript.Format
	Argv   []string
	// Dir is the working directory.
	Dir string
	// Env holds "K=V" entries beyond the allowed ones; they win over those.
	Env []string
	// Inherit names more variables to pass on from this process. Those of orch itself are never passed on.
	Inherit []string
	Stdin   []byte
	// Timeout bounds the run, StallTimeout a silence of its output, ToolStallTimeout one while it waits for a tool of its
	// own; zero is no limit.
	Timeout, StallTimeout, ToolStallTimeout time.Duration
	// ResumedFrom is the run whose session this one goes on with.
	ResumedFrom *uuid.UUID
}

func (r Request) validate() error {
	switch {
	case r.Key == "" || r.TaskID == 0:
		return fmt.Errorf("%w: no task or key", ErrBadRequest)
	case r.Start == nil:
		return fmt.Errorf("%w: nothing to start", ErrBadRequest)
	}
	switch r.Purpose {
	case PurposeAgent, PurposeGate, PurposeMerge:
		return nil
	default:
		return fmt.Errorf("%w: purpose %q", ErrBadRequest, r.Purpose)
	}
}

func (p Program) validate() error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return fmt.Errorf("%w: no command", ErrBadRequest)
	case !filepath.IsAbs(p.Dir):
		return fmt.Errorf("%w: directory %q is not absolute", ErrBadRequest, p.Dir)
	default:
		return nil
	}
}

// Result is what came of a run.
type Result struct {
	RunID   uuid.UUID
	Exit    process.Exit
	Outcome Outcome
	// Summary and Question are what the program said of itself.
	Summary, Question string
	// CostUSD is nil when the program didn't say.
	CostUSD *float64
	// LogTail is the end of the output, made valid UTF-8.
	LogTail string
	// Resumed says that the run wasn't started by this call.
	Resumed bool
}

const (
	defaultStartWithin  = 15 * time.Second
	defaultQueryTimeout = 10 * time.Second
)

// Config is what Runs needs. Zero durations and caps have defaults.
type Config struct {
	Pool *pgxpool.Pool
	// Dir holds the run directories.
	Dir    string
	RootID uuid.UUID
	Self   process.Identity
	// Shim is the command line of the shim, without the directory.
	Shim []string
	// HomesDir holds a HOME for each agent, and one for each other purpose, unless the request's Env names a HOME. Empty:
	// HOME is the run's temporary directory.
	HomesDir string
	// Environ is where allowed variables come from; nil is this process's environment.
	Environ   []string
	KillGrace time.Duration
	// StartWithin bounds the time from the intent to the start of the program. It must be shorter than the lease.
	StartWithin time.Duration
	// LogCap bounds the output kept of a run, in bytes.
	LogCap int64
	Logger *slog.Logger
}

// Runs starts, follows and remembers runs of one data root.
type Runs struct {
	cfg   Config
	log   *slog.Logger
	shims shims
}

// New checks the configuration.
func New(cfg Config) (*Runs, error) {
	switch {
	case cfg.Pool == nil:
		return nil, fmt.Errorf("configure runs: %w: no pool", ErrBadRequest)
	case !filepath.IsAbs(cfg.Dir):
		return nil, fmt.Errorf("configure runs: %w: directory %q is not absolute", ErrBadRequest, cfg.Dir)
	case len(cfg.Shim) == 0:
		return nil, fmt.Errorf("configure runs: %w: no shim", ErrBadRequest)
	case cfg.RootID == uuid.Nil || cfg.Self.IsZero():
		return nil, fmt.Errorf("configure runs: %w: no identity", ErrBadRequest)
	}
	if cfg.StartWithin <= 0 {
		cfg.StartWithin = defaultStartWithin
	}
	if cfg.KillGrace <= 0 {
		cfg.KillGrace = process.DefaultKillGrace
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runs{cfg: cfg, log: cfg.Logger}, nil
}

func (r *Runs) dir(id uuid.UUID) string { return filepath.Join(r.cfg.Dir, id.String()) }
