// Package exit has the exit codes of orch's commands, and errors that carry one.
package exit

import "fmt"

// The codes.
const (
	Done     = 0
	Failed   = 1
	Usage    = 2
	NoServer = 4
)

// Error ends a command with a code; its text, if any, is what the person reads.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// With ends a command with a code and what a person reads.
func With(code int, err error) error { return &Error{Code: code, Err: err} }

// Silently ends a command that has said all there is to say.
func Silently(code int) error { return &Error{Code: code} }

// Usagef refuses what was said on the command line.
func Usagef(format string, args ...any) error { return With(Usage, fmt.Errorf(format, args...)) }
