package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
)

// Outcome is what a check answers.
type Outcome string

// The answers of a check.
const (
	Pass    Outcome = "pass"
	Fail    Outcome = "fail"
	Pending Outcome = "pending"
)

// Subject is what a gate is asked about.
type Subject struct {
	TaskID     int64
	TaskKey    string
	Stage      string
	Round      int
	Commit     string   // head of the task's branch; empty when the branch doesn't exist
	Tree       string   // tree of Commit
	BaseCommit string   // commit of the base branch that the branch started from
	Upstream   bool     // Commit is in the history of the base branch: the branch has nothing of its own
	Dirty      []string // paths of the workspace that Commit doesn't hold, changed or untracked
}

// Result is the answer of one check. Reason and OutputTail are valid UTF-8 and bounded.
type Result struct {
	Name       string
	Outcome    Outcome
	Reason     string // why it isn't a pass
	OutputTail string // last bytes of what the command printed
	ExitCode   *int
	Duration   time.Duration
	Reused     bool       // taken from kept evidence; nothing ran
	RunID      *uuid.UUID // the run behind the answer
	EvidenceID int64      // row of gate_evidence
	Until      time.Duration
	WaitingFor string // for pending: what it waits for, looked at again after Until
}

// CommandRun asks for one run of a command in a throw-away checkout of exactly Commit.
type CommandRun struct {
	Purpose string // "gate"
	Key     string // the run is re-entrant by task and key
	TaskID  int64
	TaskKey string
	Stage   string
	Round   int
	Commit  string
	Command string
	Timeout time.Duration
}

// CommandResult is how a CommandRun ended. Why is the shim's word for it: exited, timeout,
// stalled, interrupted and others.
type CommandResult struct {
	RunID      uuid.UUID
	ExitCode   *int // nil when a signal ended it
	Why        string
	Duration   time.Duration
	OutputTail string
}

// Runner runs commands under a shim. An error is no verdict: Check returns it as it is.
type Runner interface {
	RunCommand(ctx context.Context, l *queue.Lease, c CommandRun) (CommandResult, error)
}

// Config of a Registry.
type Config struct {
	Pool      *pgxpool.Pool
	Runner    Runner
	Logger    *slog.Logger                                                // nil = silent
	ConsumeTx func(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error // marks a run's result as used
	Timeout   time.Duration                                               // of a command without one; zero = 30 minutes
	TailBytes int                                                         // kept of a command's output; zero = 8 KiB
}

const (
	// DefaultTimeout bounds a command that brings no timeout.
	DefaultTimeout   = 30 * time.Minute
	defaultTailBytes = 8 << 10
)

// Registry answers gates.
type Registry struct {
	cfg    Config
	log    *slog.Logger
	checks map[string]check
}

// check answers one gate. It writes its evidence itself, since a check that ran something has to consume the run in
// the same transaction.
type check func(ctx context.Context, l *queue.Lease, d Definition, s Subject) (Result, error)

// New returns a registry with all known checks.
func New(cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.TailBytes <= 0 {
		cfg.TailBytes = defaultTailBytes
	}
	r := &Registry{cfg: cfg, log: cfg.Logger}
	r.checks = map[string]check{Commits: r.commits, Command: r.command}
	return r
}

// Check asks one gate about s on behalf of the job that l holds. The returned error is never a verdict:
// *UnjudgedError when the gate's run ended without one, else what the database, the runner or the fence said.
func (r *Registry) Check(ctx context.Context, l *queue.Lease, d Definition, s Subject) (Result, error) {
	if err := d.Validate(); err != nil {
		return Result{}, fmt.Errorf("check gate: %w", err)
	}
	answer, known := r.checks[d.Name]
	if !known {
		return Result{}, fmt.Errorf("check gate: %w %q", ErrUnknown, d.Name)
	}
	result, err := answer(ctx, l, d, s)
	if err != nil {
		return Result{}, fmt.Errorf("check gate %s: %w", d.Name, err)
	}
	r.log.InfoContext(ctx, "gate answered", slog.String("gate", d.Name), slog.String("task", s.TaskKey),
		slog.String("stage", s.Stage), slog.Int("round", s.Round), slog.String("commit", s.Commit),
		slog.String("outcome", string(result.Outcome)), slog.Bool("reused", result.Reused))
	return result, nil
}

// UnjudgedError says that a gate's run ended without a verdict on the branch (it was interrupted, or never started).
// The run is consumed: asking again runs the command again. As a *queue.SnoozeError it gives the attempt back.
type UnjudgedError struct {
	Gate  string
	Why   string
	RunID uuid.UUID
	After time.Duration
}

func (e *UnjudgedError) Error() string {
	return fmt.Sprintf("the run of gate %s ended without a verdict (%s)", e.Gate, e.Why)
}

// As turns the error into the queue's word for "not my fault, ask again".
func (e *UnjudgedError) As(target any) bool {
	snooze, ok := target.(**queue.SnoozeError)
	if !ok {
		return false
	}
	*snooze = &queue.SnoozeError{After: e.After, WaitingFor: "gate_run_" + e.Why}
	return true
}

var errNoRunner = errors.New("no runner for commands is configured")
