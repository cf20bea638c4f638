package gitcmd

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
	// ErrTimeout means that a call took longer than it may.
	ErrTimeout = errors.New("git took longer than it may")
)

// Error is a git command that ended with an error.
type Error struct {
	Args   []string // without credentials
	Code   int      // exit code; -1 when a signal ended it or it didn't start
	Stderr string   // bounded and without credentials
	Err    error    // what starting or waiting for it said
}

func (e *Error) Error() string {
	said := strings.TrimSpace(e.Stderr)
	if said == "" && e.Err != nil {
		said = e.Err.Error()
	}
	if len(said) > 2000 {
		said = said[:2000] + "…"
	}
	return fmt.Sprintf("git %s: exit %d: %s", subcommand(e.Args), e.Code, said)
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is Code, for callers that know the error by its shape only.
func (e *Error) ExitCode() int { return e.Code }

// Said is Stderr, for callers that know the error by its shape only.
func (e *Error) Said() string { return e.Stderr }

func newError(args []string, err error, stderr string) *Error {
	clean := make([]string, len(args))
	for i, a := range args {
		clean[i] = redact(a)
	}
	code := -1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	}
	return &Error{Args: clean, Code: code, Stderr: redact(stderr), Err: err}
}

// ExitCode is the exit code of a git command that failed with err, or -1.
func ExitCode(err error) int {
	if ge, ok := errors.AsType[*Error](err); ok {
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
