package queue

import (
	"context"
	"time"
)

// PatientCompleter is a Completer that doesn't write because time has passed.
func PatientCompleter(q *Queue, w Worker, running func() int) *Completer {
	c := NewCompleter(q, w, running)
	c.after = time.Hour
	return c
}

// Pending is how many ends wait to be written.
func Pending(c *Completer) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}

// Of is the queue that a lease is of.
func Of(l *Lease) *Queue { return l.q }

// CompleteAlone is what Complete does after ErrAlone.
func CompleteAlone(ctx context.Context, l *Lease) error { return l.completeAlone(ctx) }
