package problem

import (
	"errors"
	"strings"
	"syscall"

	"orch/internal/forge"
	"orch/internal/git"
)

// Class says what a problem waits for. The problems of an author (conflict, red test) aren't in it: they end the landing.
type Class string

// The classes. Each has a cap of its own, but for Waiting.
const (
	Moved    Class = "moved"    // what is landed, or on what: it is made anew at once
	Later    Class = "later"    // what time may cure
	Operator Class = "operator" // what a person has to change
	Waiting  Class = "waiting"  // nobody's fault and over by itself: never counted
)

// FullDisk is the code of a problem with a disk that has no room.
const FullDisk = "disk_space"

// Class of the problem.
func (e *StepError) Class() Class {
	var named *forge.ProblemError
	switch {
	case e.Code == FullDisk:
		return Waiting
	case e.Code == BaseMoved, errors.Is(e.Err, forge.ErrChanged):
		return Moved
	case errors.As(e.Err, &named):
		if named.Code.Class() == forge.Operator {
			return Operator
		}
		return Later
	case errors.Is(e.Err, git.ErrUnrelated):
		return Operator
	}
	switch e.Code {
	case NoBase, NoBranch, Branch, Method:
		return Operator
	default:
		return Later
	}
}

// outOfSpace says that a disk is full: over when there is room again. Programs only say so.
func outOfSpace(err error) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	var program interface{ Said() string }
	if !errors.As(err, &program) {
		return false
	}
	said := program.Said()
	return strings.Contains(said, "No space left on device") || strings.Contains(said, "Disk quota exceeded")
}
