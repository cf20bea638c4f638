package lifespan

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// PanicError is a panic that was recovered.
type PanicError struct {
	What  string // what was being done
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error implements error. The stack isn't part of it.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%s panicked: %v", e.What, e.Value)
}

// Unwrap answers the error that was passed to panic, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Guard runs one unit of work. A panic of fn is logged with its stack and comes back as a *PanicError.
func Guard(log *slog.Logger, what string, fn func() error) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		panicked := &PanicError{What: what, Value: value, Stack: debug.Stack()}
		orDiscard(log).LogAttrs(context.Background(), slog.LevelError, "recovered from a panic",
			slog.String("what", what), slog.String("panic", fmt.Sprint(value)), slog.String("stack", string(panicked.Stack)))
		err = panicked
	}()
	return fn()
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
