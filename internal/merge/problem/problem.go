// Package problem names what keeps a landing from going on.
package problem

import (
	"errors"
	"fmt"

	"orch/internal/forge"
)

// Codes of what ended a landing or keeps it waiting. Problems that the forge names come with its own codes.
const (
	Conflict   = "merge_conflict"
	TestRed    = "test_red"
	Superseded = "superseded"
	Cancelled  = "cancelled"
	BaseMoved  = "base_moved"
	Mirror     = "mirror_failed"
	Fetch      = "fetch_failed"
	NoBase     = "base_missing"
	NoBranch   = "branch_missing"
	Branch     = "branch_changed" // the branch isn't at the commit that passed the gates
	Replay     = "replay_failed"
	Method     = "method_unsupported"
	Test       = "test_not_run"
	Claim      = "claim_failed"
	Look       = "look_failed"
	Land       = "land_failed"
	NotLanded  = "not_landed"
	Refresh    = "refresh_failed"
	Publish    = "publish_failed"
)

// NeedsPerson says whether a landing that rests with this code goes on only once a person has done something. It is tried again all
// the same, and given up after some tries.
func NeedsPerson(code string) bool {
	switch code {
	case NoBase, NoBranch, Branch, Method:
		return true
	default:
		return forge.Code(code).NeedsPerson()
	}
}

// StepError is a problem of a step that another try, later, may not have.
type StepError struct {
	Code string
	Err  error
}

func (e *StepError) Error() string { return fmt.Sprintf("%s: %v", e.Code, e.Err) }

func (e *StepError) Unwrap() error { return e.Err }

// Reason is what a person is told.
func (e *StepError) Reason() string {
	var named *forge.ProblemError
	if errors.As(e.Err, &named) && named.Hint != "" {
		return named.Message + "; " + named.Hint
	}
	return e.Err.Error()
}

// Of makes the problem of a step; where the forge named it, with the forge's code. A full disk is a problem of its own.
func Of(code string, err error) error {
	var named *forge.ProblemError
	if errors.As(err, &named) && named.Code != "" {
		code = string(named.Code)
	}
	if outOfSpace(err) {
		code = FullDisk
	}
	return &StepError{Code: code, Err: err}
}
