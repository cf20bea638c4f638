package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/launch"
	"orch/internal/agent/ledger"
	"orch/internal/agent/verdict"
	"orch/internal/process"
)

// ErrBadRequest means that a request can't be executed whatever happens.
var ErrBadRequest = launch.ErrBadProgram

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

// Result is what came of a run.
type Result struct {
	RunID uuid.UUID
	// Agent and Preset are those that ran, whatever the configuration says by now.
	Agent, Preset string
	// ResumedFrom is the run whose session was gone on with.
	ResumedFrom *uuid.UUID
	ledger.End
	// LogTail is the end of the output, made valid UTF-8.
	LogTail string
	// Resumed says that the run wasn't started by this call.
	Resumed bool
}

const (
	defaultStartWithin  = 15 * time.Second
	defaultListenEvery  = 5 * time.Second
	defaultKillPatience = 10 * time.Second
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
	// HomesDir holds a HOME for each agent. Empty: HOME is the run's temporary directory.
	HomesDir string
	// Environ is where allowed variables come from; nil is this process's environment.
	Environ []string
	// Secrets are values of orch's own that must not appear in any output.
	Secrets   []process.Secret
	KillGrace time.Duration
	// KillPatience is how much longer than its grace a shim may take to end its run, before it is killed itself.
	KillPatience time.Duration
	// StartWithin bounds the time from the intent to the start of the program. It must be shorter than the lease.
	StartWithin time.Duration
	// ListenEvery is the time between looks at what a run says.
	ListenEvery time.Duration
	// LookEvery is the time between calls of Recover: while many runs seem dead at once, each decides about one at most.
	LookEvery time.Duration
	// OrphanGrace and OrphanPatience are those of process.Spec; zero: no run is ended for lack of contact.
	OrphanGrace, OrphanPatience time.Duration
	// LogCap bounds the output kept of a run, in bytes.
	LogCap int64
	// PortBase is the first port of the first run, PortsPerRun how many each has; zero is none.
	PortBase, PortsPerRun int
	// Room is asked before a run is begun; its error keeps it from that. Nil: there is always room.
	Room func(ctx context.Context) error
	// NamespaceGone says whether nothing of a pid namespace of this boot is left, for runs whose shim has died there. Nil: it
	// is taken for gone.
	NamespaceGone func(ctx context.Context, of process.Identity) (bool, error)
	// At is called at the steps of a run, for tests that stop there. Nil: nothing is.
	At     func(point string)
	Logger *slog.Logger
}

// Runs starts, follows and remembers runs of one data root.
type Runs struct {
	ledger.Reader

	cfg     Config
	ledger  *ledger.Store
	log     *slog.Logger
	shims   launch.Shims
	launch  launch.Config
	breaker verdict.Breaker

	adriftMu   sync.Mutex
	toldAdrift map[uuid.UUID]bool // it was told of these that they are: few in the life of a process
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
	for duration, usual := range map[*time.Duration]time.Duration{
		&cfg.StartWithin: defaultStartWithin, &cfg.ListenEvery: defaultListenEvery, &cfg.KillGrace: process.DefaultKillGrace,
		&cfg.KillPatience: defaultKillPatience,
	} {
		if *duration <= 0 {
			*duration = usual
		}
	}
	if cfg.Room == nil {
		cfg.Room = func(context.Context) error { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	store := ledger.New(ledger.Config{
		Pool: cfg.Pool, Root: cfg.RootID, Self: cfg.Self, Slots: cfg.slots(), OrphanGrace: cfg.OrphanGrace, Logger: cfg.Logger,
	})
	return &Runs{
		Reader: store.Reader, cfg: cfg, ledger: store, log: cfg.Logger, breaker: verdict.Breaker{Every: cfg.LookEvery},
		toldAdrift: map[uuid.UUID]bool{}, launch: launch.Config{
			Shim: cfg.Shim, HomesDir: cfg.HomesDir, Environ: cfg.Environ, Secrets: cfg.Secrets, KillGrace: cfg.KillGrace,
			OrphanGrace: cfg.OrphanGrace, OrphanPatience: cfg.OrphanPatience, LogCap: cfg.LogCap, StartWithin: cfg.StartWithin,
			PortBase: cfg.PortBase, PortsPerRun: cfg.PortsPerRun,
		},
	}, nil
}

// slots is how many ranges of ports there are.
func (c Config) slots() int {
	const ports = 1 << 16
	if c.PortsPerRun <= 0 {
		return 0
	}
	return max(ports-c.PortBase, 0) / c.PortsPerRun
}

func (r *Runs) dir(id uuid.UUID) string { return filepath.Join(r.cfg.Dir, id.String()) }
