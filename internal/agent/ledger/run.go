package ledger

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/process"
)

var (
	// ErrNotFound means that there is no such run.
	ErrNotFound = errors.New("run not found")
	// ErrConsumed means that a run's result was used before, or that it has none yet.
	ErrConsumed = errors.New("run has no result to consume")
)

// Purpose says what a run is for.
type Purpose string

// The purposes of a run.
const (
	PurposeAgent Purpose = "agent"
	PurposeGate  Purpose = "gate"
	PurposeMerge Purpose = "merge"
)

// State is how far a run got.
type State string

// The states of a run.
const (
	StateIntended State = "intended"
	StateRunning  State = "running"
	StateFinished State = "finished"
)

// Run is a row of table runs.
type Run struct {
	ID           uuid.UUID  `db:"id"`
	TaskID       int64      `db:"task_id"`
	JobID        int64      `db:"job_id"`
	JobEpoch     int        `db:"job_epoch"`
	Purpose      Purpose    `db:"purpose"`
	Key          string     `db:"key"`
	Stage        string     `db:"stage"`
	Round        int        `db:"round"`
	Attempt      int        `db:"attempt"`
	Agent        string     `db:"agent"`
	State        State      `db:"state"`
	RootID       uuid.UUID  `db:"root_id"`
	Host         string     `db:"host"`
	BootID       string     `db:"boot_id"`
	PIDNamespace string     `db:"pid_namespace"`
	ShimPID      *int       `db:"shim_pid"`
	PID          *int       `db:"pid"`
	PIDStartedAt *int64     `db:"pid_started_at"`
	CreatedAt    time.Time  `db:"created_at"`
	StartedAt    *time.Time `db:"started_at"`
	FinishedAt   *time.Time `db:"finished_at"`
	ConsumedAt   *time.Time `db:"consumed_at"`
	ExitCode     *int       `db:"exit_code"`
	Signal       *string    `db:"signal"`
	// Ended is the reason of the end: a process.Why.
	Ended        *string          `db:"ended"`
	Outcome      *outcome.Outcome `db:"outcome"`
	ResetAt      *time.Time       `db:"reset_at"`
	SessionID    *string          `db:"session_id"`
	Summary      string           `db:"summary"`
	Question     string           `db:"question"`
	CostUSD      *float64         `db:"cost_usd"`
	InputTokens  *int64           `db:"input_tokens"`
	OutputTokens *int64           `db:"output_tokens"`
	Turns        *int             `db:"turns"`
	LogBytes     int64            `db:"log_bytes"`
	Preset       string           `db:"preset"`
	// ResumedFrom is the run whose session this one went on with; SessionLost says that nobody can go on with this one's.
	ResumedFrom *uuid.UUID `db:"resumed_from"`
	SessionLost bool       `db:"session_lost"`
	// CachedTokens are part of InputTokens.
	CachedTokens *int64        `db:"cached_tokens"`
	SessionTotal *SessionTotal `db:"session_total"`
	// Detail is the sentence that the outcome was read from, Error what went wrong around the program.
	Detail string `db:"detail"`
	Error  string `db:"error"`
	// Slot says which range of ports is the run's.
	Slot      *int       `db:"slot"`
	RemovedAt *time.Time `db:"removed_at"`
	// UserMS, SystemMS and MaxRSSBytes are the program's own, once it has ended.
	UserMS      *int64 `db:"user_ms"`
	SystemMS    *int64 `db:"system_ms"`
	MaxRSSBytes *int64 `db:"max_rss_bytes"`
}

// End is what was noted of a run's end.
func (r Run) End() End {
	e := End{
		Exit: process.Exit{Code: r.ExitCode, LogBytes: r.LogBytes, Error: r.Error}, ResetAt: r.ResetAt, Summary: r.Summary, Question: r.Question,
		Detail: r.Detail, Total: r.SessionTotal, SessionLost: r.SessionLost, Usage: Usage{
			CostUSD: r.CostUSD, InputTokens: count(r.InputTokens), CachedTokens: count(r.CachedTokens), OutputTokens: count(r.OutputTokens),
		},
	}
	if r.Turns != nil {
		e.Usage.Turns = *r.Turns
	}
	if r.SessionID != nil {
		e.SessionID = *r.SessionID
	}
	if r.Signal != nil {
		e.Exit.Signal = *r.Signal
	}
	if r.Ended != nil {
		e.Exit.Why = process.Why(*r.Ended)
	}
	if r.Outcome != nil {
		e.Outcome = *r.Outcome
	}
	return e
}
