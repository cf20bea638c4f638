package queue

import "context"

// PatientCompleter is a Completer that doesn't write because time has passed.
func PatientCompleter(q *Queue, w Worker, running func() int) *Completer {
	c := NewCompleter(q, w, running)
	c.ends.BePatient()
	return c
}

// Pending is how many ends wait to be written.
func Pending(c *Completer) int { return c.ends.Pending() }

// Of is the queue that a lease is of.
func Of(l *Lease) *Queue { return l.q }

// CompleteAlone is what Complete does after ErrAlone.
func CompleteAlone(ctx context.Context, l *Lease) error { return l.completeAlone(ctx) }
