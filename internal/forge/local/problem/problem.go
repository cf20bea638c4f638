// Package problem tells what git said as what a person can do something about.
package problem

import (
	"errors"
	"fmt"
	"regexp"

	"orch/internal/forge"
)

// failure is the shape of an error of the git runner.
type failure interface {
	error
	ExitCode() int
	Said() string
}

// ExitCode is git's; -1 when it didn't come to one.
func ExitCode(err error) int {
	if f, ok := errors.AsType[failure](err); ok {
		return f.ExitCode()
	}
	return -1
}

// Said is what git wrote of its failure.
func Said(err error) string {
	if f, ok := errors.AsType[failure](err); ok {
		return f.Said()
	}
	return ""
}

// New makes a problem.
func New(code forge.Code, hint, format string, args ...any) *forge.ProblemError {
	return &forge.ProblemError{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Locked is the problem that a lock file is.
func Locked(path string) *forge.ProblemError {
	p := New(forge.CodeLocked, "if no git process works there, remove that file", "the repository is locked by %s", path)
	p.Retry = true
	return p
}

// Translate turns what git says of lock files and permissions into problems.
func Translate(err error) error {
	if err == nil {
		return nil
	}
	text := Said(err)
	if path := LockMet(err); path != "" {
		return Locked(path)
	}
	if m := regexp.MustCompile(`(?m)^.*(Permission denied|Read-only file system|insufficient permission).*$`).FindString(text); m != "" {
		return New(forge.CodeRefused, "let the user that orch runs as write to the repository", "git could not write: %s", m)
	}
	return err
}

// LockMet is the lock file that kept git from writing; "" when none did.
func LockMet(err error) string {
	if m := regexp.MustCompile(`Unable to create '(.+?)': File exists`).FindStringSubmatch(Said(err)); m != nil {
		return m[1]
	}
	return ""
}
