package git

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoRef means that a ref or a branch isn't there.
	ErrNoRef = errors.New("no such ref")
	// ErrRefMoved means that a ref wasn't at the value which the caller expected.
	ErrRefMoved = errors.New("ref is not at the expected value")
	// ErrBusy means that another process has a lock of the mirror, and had it all the time that it was waited for.
	ErrBusy = errors.New("another process has it")
	// ErrUnrelated means that two commits have no common ancestor.
	ErrUnrelated = errors.New("no common history")
	// ErrPartial means that a repository can't be fetched because it is a clone without everything in its history.
	ErrPartial = errors.New("it is a partial clone that lacks part of its history: run git fetch --refetch --no-filter there")
	// ErrAway means that a repository isn't there for now: its disk isn't mounted, say, or it was moved, or can't be read.
	ErrAway = errors.New("the repository is away")
	// ErrForeign means that a directory isn't what orch would have made there, so that orch won't replace it.
	ErrForeign = errors.New("directory was not made by orch")
)

// ConflictError means that a replay met changes to the same places.
type ConflictError struct {
	Commit string // the commit that couldn't be replayed; empty for a merge of everything at once
	Paths  []string
}

func (e *ConflictError) Error() string {
	if e.Commit == "" {
		return "conflict in " + strings.Join(e.Paths, ", ")
	}
	return fmt.Sprintf("commit %.12s conflicts in %s", e.Commit, strings.Join(e.Paths, ", "))
}

// ignore is nil when err is the one to ignore, and err otherwise.
func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
