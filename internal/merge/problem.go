package merge

import (
	"errors"
	"fmt"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/merge/lease"
	"orch/internal/queue"
)

// MethodRebase replays the task's commits onto the target, one by one.
const (
	MethodRebase      = "rebase"
	MethodFastForward = "fast-forward" // the same: the replayed commits land by a fast-forward
)

// Codes of what ended a landing or keeps it waiting. Problems that the forge names come with its own codes.
const (
	CodeConflict   = "merge_conflict"
	CodeTestRed    = "test_red"
	CodeSuperseded = "superseded"
	CodeCancelled  = "cancelled"
	CodeBaseMoved  = "base_moved"
	CodeMirror     = "mirror_failed"
	CodeFetch      = "fetch_failed"
	CodeNoBase     = "base_missing"
	CodeNoBranch   = "branch_missing"
	CodeBranch     = "branch_changed" // the branch isn't at the commit that passed the gates
	CodeReplay     = "replay_failed"
	CodeMethod     = "method_unsupported"
	CodeTest       = "test_not_run"
	CodeLook       = "look_failed"
	CodeLand       = "land_failed"
	CodeNotLanded  = "not_landed"
	CodeRefresh    = "refresh_failed"
	CodePublish    = "publish_failed"
)

// stepError is a problem of a step that another try, later, may not have.
type stepError struct {
	code string
	err  error
}

func (e *stepError) Error() string { return fmt.Sprintf("%s: %v", e.code, e.err) }

func (e *stepError) Unwrap() error { return e.err }

// reason is what a person is told.
func (e *stepError) reason() string {
	var problem *forge.ProblemError
	if errors.As(e.err, &problem) && problem.Hint != "" {
		return problem.Message + ". " + problem.Hint
	}
	return e.err.Error()
}

// failed makes the problem of a step; where the forge named it, with the forge's code.
func failed(code string, err error) error {
	var problem *forge.ProblemError
	if errors.As(err, &problem) && problem.Code != "" {
		code = string(problem.Code)
	}
	return &stepError{code: code, err: err}
}

// untested sorts what a Tester returned instead of a result: the queue's own answers go on as they are.
func untested(err error) error {
	var snooze *queue.SnoozeError
	switch {
	case errors.Is(err, queue.ErrStopping), errors.Is(err, queue.ErrCancelRequested),
		errors.Is(err, queue.ErrLeaseLost), errors.Is(err, lease.ErrLost), errors.As(err, &snooze):
		return err
	case db.Unreachable(err):
		return fmt.Errorf("test the landing: %w", err)
	}
	return failed(CodeTest, err)
}
