package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/gather"
)

const flushTries = 3 // of a transaction that met another one

var (
	// ErrAlone means that an end can't be written together with others, whatever is wrong with which of them.
	ErrAlone = errors.New("job is to be ended alone")

	errMarked = errors.New("a lease was marked lost before the commit")
)

// Completer ends jobs of one worker as succeeded, many in one transaction. doc.go says what it guarantees.
type Completer struct {
	q      *Queue
	worker Worker
	ends   *gather.Gatherer[*completion]
}

// completion is an end that its caller waits for.
type completion struct {
	lease *Lease
	done  func(error)
}

// NewCompleter makes a Completer. running says how many handlers are at work whose end may still come.
func NewCompleter(q *Queue, w Worker, running func() int) *Completer {
	c := &Completer{q: q, worker: w}
	c.ends = gather.New(running, c.write)
	return c
}

// Hand has the job ended as succeeded together with others, and calls done once: with nil when that is committed;
// with ErrLeaseLost or ErrEnded when this lease ends nothing any more; with ErrAlone or ErrUnavailable when the end isn't
// known to be written, and CompleteTx in a Tx of the lease, as often as it takes, finds out and writes it. done may be
// called before Hand returns, and on the goroutine that ends all other jobs: it must not wait for anything.
func (c *Completer) Hand(ctx context.Context, l *Lease, done func(error)) {
	c.hand(ctx, &completion{lease: l, done: done})
}

func (c *Completer) hand(ctx context.Context, e *completion) {
	if err := e.lease.refused(); err != nil {
		e.done(err)
		c.HandlerReturned(ctx)
		return
	}
	if !c.ends.Add(ctx, e) {
		e.done(ErrAlone)
	}
}

// HandlerReturned is to be called when a handler ended its job in another way: it may be the one that others waited for.
func (c *Completer) HandlerReturned(ctx context.Context) { c.ends.Look(ctx) }

// Complete is Hand for one who waits, and who leaves the rest to it, too.
func (c *Completer) Complete(ctx context.Context, l *Lease) error {
	answers := make(chan error, 1)
	e := &completion{lease: l, done: func(err error) { answers <- err }}
	c.hand(ctx, e)
	var err error
	select {
	case err = <-answers:
	case <-ctx.Done():
		if c.ends.Withdraw(e) {
			return fmt.Errorf("complete job %d: %w", l.id, context.Cause(ctx))
		}
		err = <-answers // it's being written, in bounded time
	}
	if errors.Is(err, ErrAlone) {
		return l.completeAlone(ctx)
	}
	if err != nil {
		return fmt.Errorf("complete job %d: %w", l.id, err)
	}
	return nil
}

// completeAlone ends the job in a transaction of its own, which tells what is wrong with this job, if anything is. It
// also finds out what became of an end whose COMMIT had no answer.
func (l *Lease) completeAlone(ctx context.Context) error {
	err := l.Tx(ctx, func(tx pgx.Tx) error { return l.CompleteTx(ctx, tx) })
	if errors.Is(err, ErrEnded) && l.Outcome() == OutcomeSucceeded {
		return nil
	}
	return err
}

// Close writes what is pending and waits for it. Later ends are written one by one.
func (c *Completer) Close(ctx context.Context) { c.ends.Close(ctx) }

// write ends a batch and answers each of it. What may be one job's fault is left to each alone.
func (c *Completer) write(ctx context.Context, batch []*completion) {
	for try := 1; ; {
		batch = standing(batch)
		if len(batch) == 0 {
			return
		}
		err := c.commit(ctx, batch)
		switch {
		case err == nil:
			return
		case errors.Is(err, errMarked):
			continue // without those that are marked now
		case claimLost(err) && try < flushTries:
			try++
			continue
		case db.Unreachable(err):
			answer(batch, unavailable(err))
		default:
			c.q.cfg.Logger.WarnContext(ctx, "ends of jobs not written together, each is tried alone",
				slog.Int("jobs", len(batch)), slog.String("error_code", db.Code(err)))
			answer(batch, ErrAlone)
		}
		return
	}
}

// standing drops those whose lease refuses by itself, and tells them.
func standing(batch []*completion) []*completion {
	return slices.DeleteFunc(batch, func(e *completion) bool {
		err := e.lease.refused()
		if err != nil {
			e.done(err)
		}
		return err != nil
	})
}

func answer(batch []*completion, err error) {
	for _, e := range batch {
		e.done(err)
	}
}
