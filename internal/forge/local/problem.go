package local

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

func exitCode(err error) int {
	if f, ok := errors.AsType[failure](err); ok {
		return f.ExitCode()
	}
	return -1
}

func said(err error) string {
	if f, ok := errors.AsType[failure](err); ok {
		return f.Said()
	}
	return ""
}

func problem(code forge.Code, hint, format string, args ...any) *forge.ProblemError {
	return &forge.ProblemError{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func locked(path string) *forge.ProblemError {
	p := problem(forge.CodeLocked, "if no git process works there, remove that file", "the repository is locked by %s", path)
	p.Retry = true
	return p
}

// translate turns what git says of lock files and permissions into problems.
func translate(err error) error {
	if err == nil {
		return nil
	}
	text := said(err)
	if path := lockMet(err); path != "" {
		return locked(path)
	}
	if m := regexp.MustCompile(`(?m)^.*(Permission denied|Read-only file system|insufficient permission).*$`).FindString(text); m != "" {
		return problem(forge.CodeRefused, "let the user that orch runs as write to the repository", "git could not write: %s", m)
	}
	return err
}
