package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
)

// State is where a job stands.
type State string

// The states of a job. The last three are terminal.
const (
	StateQueued    State = "queued"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateCancelled State = "cancelled"
)

// Terminal says whether a job in this state has ended for good.
func (s State) Terminal() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCancelled
}

// Job is one row of the queue.
type Job struct {
	ID          int64           `db:"id"`
	Kind        string          `db:"kind"`
	Lane        string          `db:"lane"`
	Repo        string          `db:"repo"` // repository it works on, "" when on none
	Args        json.RawMessage `db:"args"`
	State       State           `db:"state"`
	Priority    int             `db:"priority"` // higher goes first
	RunAt       time.Time       `db:"run_at"`
	Attempt     int             `db:"attempt"` // attempts spent, the running one included
	MaxAttempts int             `db:"max_attempts"`
	Recoveries  int             `db:"recoveries"` // times its worker died under it
	Epoch       int             `db:"epoch"`      // grants so far: the fencing token

	WorkerID     *uuid.UUID `db:"worker_id"`
	RootID       *uuid.UUID `db:"root_id"`
	Host         *string    `db:"host"`
	BootID       *string    `db:"boot_id"`
	PID          *int       `db:"pid"`            // the agent's while a run lives, else the worker's
	PIDStartedAt *int64     `db:"pid_started_at"` // clock ticks after boot

	TaskID         *int64     `db:"task_id"`
	RunID          *uuid.UUID `db:"run_id"` // the run it is pinned by
	PinnedRoot     *uuid.UUID `db:"pinned_root"`
	DedupeKey      *string    `db:"dedupe_key"`
	ConcurrencyKey *string    `db:"concurrency_key"`

	Phase    *string         `db:"phase"`    // what it is doing, or what it waits for while queued
	Progress json.RawMessage `db:"progress"` // the handler's own

	HeartbeatAt       *time.Time `db:"heartbeat_at"`
	LeaseExpiresAt    *time.Time `db:"lease_expires_at"`
	CancelRequestedAt *time.Time `db:"cancel_requested_at"`
	StartedAt         *time.Time `db:"started_at"` // of the newest grant
	FinishedAt        *time.Time `db:"finished_at"`
	CreatedAt         time.Time  `db:"created_at"`
	WaitingSince      *time.Time `db:"waiting_since"` // since when it snoozes without an attempt spent

	ErrorCode *string `db:"error_code"`
	Error     *string `db:"error"`
}

// CodeBadArgs is the code of a job whose arguments its handler can't read.
const CodeBadArgs = "bad_args"

// Decode reads the job's arguments into a struct, strictly: unknown fields and trailing data are errors. The error is a
// terminal *Failure with code bad_args, for a handler to return as it is.
func (j Job) Decode(into any) error {
	dec := json.NewDecoder(bytes.NewReader(j.Args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return Terminal(CodeBadArgs, fmt.Errorf("decode args of job %d: %w", j.ID, err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return Terminal(CodeBadArgs, fmt.Errorf("decode args of job %d: %w", j.ID, errTrailing))
	}
	return nil
}
