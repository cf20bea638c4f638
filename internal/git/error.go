package git

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

var (
	// ErrTooOld means that the git program lacks what orch needs.
	ErrTooOld = errors.New("git 2.38 or newer is needed")
	// ErrNoRef means that a ref or a branch isn't there.
	ErrNoRef = errors.New("no such ref")
	// ErrRefMoved means that a ref wasn't at the value which the caller expected.
	ErrRefMoved = errors.New("ref is not at the expected value")
	// ErrUnrelated means that two commits have no common ancestor.
	ErrUnrelated = errors.New("no common history")
	// ErrForeign means that a directory isn't what orch would have made there, so that orch won't replace it.
	ErrForeign = errors.New("directory was not made by orch")
)

// GitError is a git command that ended with an error.
//
//nolint:revive // git.Error wouldn't say whose error it is: git's, or this package's
type GitError struct {
	Args   []string // without credentials
	Code   int      // exit code; -1 when a signal ended it or it didn't start
	Stderr string   // bounded and without credentials
	Err    error    // what starting or waiting for it said
}

func (e *GitError) Error() string {
	said := strings.TrimSpace(e.Stderr)
	if said == "" && e.Err != nil {
		said = e.Err.Error()
	}
	if len(said) > 2000 {
		said = said[:2000] + "…"
	}
	return fmt.Sprintf("git %s: exit %d: %s", subcommand(e.Args), e.Code, said)
}

func (e *GitError) Unwrap() error { return e.Err }

// ExitCode is Code, for callers that know the error by its shape only.
func (e *GitError) ExitCode() int { return e.Code }

// Said is Stderr, for callers that know the error by its shape only.
func (e *GitError) Said() string { return e.Stderr }

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

func gitError(args []string, err error, stderr string) *GitError {
	clean := make([]string, len(args))
	for i, a := range args {
		clean[i] = redact(a)
	}
	code := -1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	}
	return &GitError{Args: clean, Code: code, Stderr: redact(stderr), Err: err}
}

// exitCode is the exit code of a git command that failed with err, or -1.
func exitCode(err error) int {
	if ge, ok := errors.AsType[*GitError](err); ok {
		return ge.Code
	}
	return -1
}

// redact hides the credentials of URLs.
func redact(s string) string {
	if !strings.Contains(s, "@") {
		return s
	}
	return regexp.MustCompile(`://[^/@\s]+@`).ReplaceAllString(s, "://***@")
}

// subcommand is the first argument that names a command, for messages.
func subcommand(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-c" || args[i] == "-C":
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return ""
}

// ignore is nil when err is the one to ignore, and err otherwise.
func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
