package queue

import (
	"errors"
	"fmt"
	"time"

	"orch/internal/db"
)

// Errors of leases and jobs. The first three are also the causes of a handler's context.
var (
	// ErrLeaseLost means that the job isn't this holder's any more: nothing may be written for it.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStopping means that the worker stops and the job is to be released.
	ErrStopping = errors.New("worker is stopping")
	// ErrCancelRequested means that someone asked for the job to be cancelled.
	ErrCancelRequested = errors.New("cancel requested")
	// ErrNotFound means that there is no such job.
	ErrNotFound = errors.New("job not found")
	// ErrUnavailable means that the database couldn't be asked for a lease: nobody's fault, and no reason to spend an
	// attempt.
	ErrUnavailable = errors.New("database unavailable")
	// ErrEnded means that this lease has ended its job already.
	ErrEnded = errors.New("job already ended by this lease")
	// ErrNotFenced means that a write of a lease was given a transaction that isn't its own.
	ErrNotFenced = errors.New("transaction is not one of the lease's Tx")
	// ErrDuplicate means that a job can't be queued again because a live one has its dedupe key.
	ErrDuplicate = errors.New("a live job has the same dedupe key")
	// ErrNotEnded means that a job can't be queued again because it is still queued or running.
	ErrNotEnded = errors.New("job has not ended")

	errTrailing = errors.New("data after the value")
)

// Failure is what a handler returns to say how an attempt failed; it is also the argument of RetryTx and FailTx.
type Failure struct { //nolint:errname // it is an argument too, and reads as one
	Code     string        // stable, snake_case
	Message  string        // for people; the text of Err when empty
	Terminal bool          // no further attempt
	After    time.Duration // earliest time of the next attempt from now; zero = back-off
	Err      error
}

// Error describes the failure.
func (f *Failure) Error() string {
	if text := f.text(); text != "" {
		return f.Code + ": " + text
	}
	return f.Code
}

// Unwrap returns the error behind the failure.
func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) text() string {
	if f.Message == "" && f.Err != nil {
		return db.Public(f.Err).Error() // it is kept, and shown to everybody
	}
	return f.Message
}

// Terminal makes an error that fails the job without another attempt.
func Terminal(code string, err error) error {
	return &Failure{Code: code, Terminal: true, Err: err}
}

// RetryAfter makes an error that spends the attempt and names the earliest time of the next one.
func RetryAfter(d time.Duration, code string, err error) error {
	return &Failure{Code: code, After: d, Err: err}
}

// SnoozeError is what a handler returns when the job has to wait for something. The attempt is given back.
type SnoozeError struct {
	After      time.Duration
	WaitingFor string // what for, shown to people
}

// Error describes the wait.
func (e *SnoozeError) Error() string { return "waiting for " + e.WaitingFor }

// unavailable marks errors of a database that is away.
func unavailable(err error) error {
	if db.Unreachable(err) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
