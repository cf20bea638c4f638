// Package gather collects what many have to write, so that it is written in one go. It says when, and to whom that is left;
// what writing means, and who is told of it, is the caller's.
package gather

import (
	"context"
	"slices"
	"sync"
	"time"

	"orch/internal/queue/internal/clock"
)

const (
	size  = 500      // pending ones that are written without waiting for more
	most  = 2 * size // of one write
	after = 50 * time.Millisecond
)

// Gatherer holds what is pending. What is due is written when there is enough of it, when nobody is at work who may still
// bring more, or when the oldest has waited for long enough. One write at a time: those that come meanwhile are the next.
type Gatherer[T comparable] struct {
	write   func(ctx context.Context, batch []T)
	running func() int    // those still at work: with none, nobody else is about to come
	after   time.Duration // the longest that one waits for others

	flushes sync.WaitGroup

	mu       sync.Mutex
	pending  []entry[T]
	flushing bool        // one write at a time: those that come meanwhile are the next
	timer    *time.Timer // set while something is pending and not due
	closed   bool
}

type entry[T comparable] struct {
	what  T
	since time.Duration // boot clock
}

// New makes a Gatherer. running says how many are at work who may still bring something.
func New[T comparable](running func() int, write func(ctx context.Context, batch []T)) *Gatherer[T] {
	return &Gatherer[T]{running: running, write: write, after: after}
}

// BePatient makes waiting be no reason to write.
func (g *Gatherer[T]) BePatient() { g.after = time.Hour }

// Pending is how many wait to be written.
func (g *Gatherer[T]) Pending() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending)
}

// Close writes what is pending and waits for it. Nothing is taken any more then.
func (g *Gatherer[T]) Close(ctx context.Context) {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.kick(ctx, true)
	g.flushes.Wait()
}

// Add is false once the Gatherer is closed.
func (g *Gatherer[T]) Add(ctx context.Context, what T) bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	g.pending = append(g.pending, entry[T]{what, clock.Boot()})
	full := len(g.pending) >= size
	g.mu.Unlock()
	// Asked after it is pending: of those that come at the same time, the last one to look sees none left.
	g.kick(ctx, full || g.running() == 0)
	return true
}

// Withdraw is false when it isn't pending any more.
func (g *Gatherer[T]) Withdraw(what T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := slices.IndexFunc(g.pending, func(e entry[T]) bool { return e.what == what })
	if n < 0 {
		return false
	}
	g.pending = slices.Delete(g.pending, n, n+1)
	return true
}

// Look is to be called when somebody is done who brought nothing: it may be the one that others waited for.
func (g *Gatherer[T]) Look(ctx context.Context) { g.kick(ctx, g.running() == 0) }

// kick starts to write what is pending, or sees to it that this happens in time.
func (g *Gatherer[T]) kick(ctx context.Context, due bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case len(g.pending) == 0 || g.flushing: // who flushes looks again at its end
	case due || g.closed:
		g.flushing = true
		ctx := context.WithoutCancel(ctx)
		g.flushes.Go(func() { g.flush(ctx) })
	default:
		g.arm(ctx)
	}
}

// arm makes the oldest pending one due in time. mu is held.
func (g *Gatherer[T]) arm(ctx context.Context) {
	if g.timer != nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	left := g.pending[0].since + g.after - clock.Boot()
	g.timer = time.AfterFunc(max(left, 0), func() {
		g.mu.Lock()
		g.timer = nil
		g.mu.Unlock()
		g.kick(ctx, true)
	})
}

// flush writes until nothing is due.
func (g *Gatherer[T]) flush(ctx context.Context) {
	for batch := g.take(g.running() == 0); len(batch) > 0; batch = g.take(g.running() == 0) {
		g.write(ctx, batch)
	}
	// One that came since running was asked relied on this flush. Now it's asked again, when nobody does so any more.
	g.kick(ctx, g.running() == 0)
}

// take returns what is due, or ends the flush.
func (g *Gatherer[T]) take(idle bool) []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.pending)
	if n > 0 && (idle || g.closed || n >= size || clock.Boot()-g.pending[0].since >= g.after) {
		batch := make([]T, 0, min(n, most))
		for _, e := range g.pending[:min(n, most)] {
			batch = append(batch, e.what)
		}
		g.pending = slices.Delete(g.pending, 0, len(batch))
		return batch
	}
	g.flushing = false
	return nil
}
