package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/clock"
)

const (
	flushSize  = 500           // pending ends that are written without waiting for more
	flushMost  = 2 * flushSize // ends in one transaction
	flushAfter = 50 * time.Millisecond
	flushTries = 3 // of a transaction that met another one
)

var (
	// ErrAlone means that an end can't be written together with others, whatever is wrong with which of them.
	ErrAlone = errors.New("job is to be ended alone")

	errMarked = errors.New("a lease was marked lost before the commit")
)

// Completer ends jobs of one worker as succeeded, many in one transaction. doc.go says what it guarantees.
type Completer struct {
	q       *Queue
	worker  Worker
	running func() int    // handlers still at work: with none, nobody else is about to come
	after   time.Duration // the longest that an end waits for others

	flushes sync.WaitGroup

	mu       sync.Mutex
	pending  []*completion
	flushing bool        // one transaction at a time: those that come meanwhile are the next
	timer    *time.Timer // set while something is pending and not due
	closed   bool
}

// completion is an end that its caller waits for.
type completion struct {
	lease *Lease
	since time.Duration // boot clock
	done  func(error)
}

// NewCompleter makes a Completer. running says how many handlers are at work whose end may still come.
func NewCompleter(q *Queue, w Worker, running func() int) *Completer {
	return &Completer{q: q, worker: w, running: running, after: flushAfter}
}

// Hand has the job ended as succeeded together with others, and calls done once: with nil when that is committed;
// with ErrLeaseLost or ErrEnded when this lease ends nothing any more; with ErrAlone or ErrUnavailable when the end isn't
// known to be written, and CompleteTx in a Tx of the lease, as often as it takes, finds out and writes it. done may be
// called before Hand returns, and on the goroutine that ends all other jobs: it must not wait for anything.
func (c *Completer) Hand(ctx context.Context, l *Lease, done func(error)) {
	c.hand(ctx, &completion{lease: l, since: clock.Boot(), done: done})
}

func (c *Completer) hand(ctx context.Context, e *completion) {
	if err := e.lease.refused(); err != nil {
		e.done(err)
		c.HandlerReturned(ctx)
		return
	}
	if !c.add(ctx, e) {
		e.done(ErrAlone)
	}
}

// HandlerReturned is to be called when a handler ended its job in another way: it may be the one that others waited for.
func (c *Completer) HandlerReturned(ctx context.Context) { c.kick(ctx, c.running() == 0) }

// Complete is Hand for one who waits, and who leaves the rest to it, too.
func (c *Completer) Complete(ctx context.Context, l *Lease) error {
	answers := make(chan error, 1)
	e := &completion{lease: l, since: clock.Boot(), done: func(err error) { answers <- err }}
	c.hand(ctx, e)
	var err error
	select {
	case err = <-answers:
	case <-ctx.Done():
		if c.withdraw(e) {
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
func (c *Completer) Close(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.kick(ctx, true)
	c.flushes.Wait()
}

// add is false once the Completer is closed.
func (c *Completer) add(ctx context.Context, e *completion) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.pending = append(c.pending, e)
	full := len(c.pending) >= flushSize
	c.mu.Unlock()
	// Asked after the end is pending: of handlers that return at the same time, the last one to look sees none left.
	c.kick(ctx, full || c.running() == 0)
	return true
}

// withdraw is false when the end isn't pending any more.
func (c *Completer) withdraw(e *completion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := slices.Index(c.pending, e)
	if n < 0 {
		return false
	}
	c.pending = slices.Delete(c.pending, n, n+1)
	return true
}

// kick starts to write what is pending, or sees to it that this happens in time.
func (c *Completer) kick(ctx context.Context, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.pending) == 0 || c.flushing: // who flushes looks again at its end
	case due || c.closed:
		c.flushing = true
		ctx := context.WithoutCancel(ctx)
		c.flushes.Go(func() { c.flush(ctx) })
	default:
		c.arm(ctx)
	}
}

// arm makes the oldest pending end due in time. mu is held.
func (c *Completer) arm(ctx context.Context) {
	if c.timer != nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	left := c.pending[0].since + c.after - clock.Boot()
	c.timer = time.AfterFunc(max(left, 0), func() {
		c.mu.Lock()
		c.timer = nil
		c.mu.Unlock()
		c.kick(ctx, true)
	})
}

// flush writes until nothing is due.
func (c *Completer) flush(ctx context.Context) {
	for batch := c.take(c.running() == 0); len(batch) > 0; batch = c.take(c.running() == 0) {
		c.write(ctx, batch)
	}
	// An end that came since running was asked relied on this flush. Now it's asked again, when nobody does so any more.
	c.kick(ctx, c.running() == 0)
}

// take returns what is due, or ends the flush.
func (c *Completer) take(idle bool) []*completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.pending)
	if n > 0 && (idle || c.closed || n >= flushSize || clock.Boot()-c.pending[0].since >= c.after) {
		batch := slices.Clone(c.pending[:min(n, flushMost)])
		c.pending = slices.Delete(c.pending, 0, len(batch))
		return batch
	}
	c.flushing = false
	return nil
}

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
