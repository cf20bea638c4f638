// Package snapshot keeps one value that is costly to build and often asked for.
package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed says that there is no value and won't be one.
var ErrClosed = errors.New("no more snapshots are taken")

const (
	// buildShare bounds builds to one twentieth of the time.
	buildShare = 20
	// maxFresh bounds how long a slow build may keep a snapshot from being renewed.
	maxFresh = 5 * time.Second
)

// Cache keeps the value that Build returned last. One build runs at a time, at most one per Fresh. With Overlap a
// value of up to twice that age is served at once while the next one is being built, so that busy pollers don't wait.
type Cache[T any] struct {
	Build   func(ctx context.Context) (T, error)
	Fresh   time.Duration
	Timeout time.Duration // of one build
	Overlap bool

	mu     sync.Mutex
	value  T
	err    error
	at     time.Time // when the last build began; zero before the first one ended
	cost   time.Duration
	flight chan struct{} // closed at the end of the build that runs now
	drops  int           // how often what was built, or is being built, was given up
	cancel context.CancelFunc
	closed bool
	wg     sync.WaitGroup
}

// Drop gives up the value, and the one that is being built: whoever asks from now on waits for one that begins after it.
func (c *Cache[T]) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	c.at = time.Time{}
}

// Get returns the value, or the error of the newest build.
func (c *Cache[T]) Get(ctx context.Context) (T, error) {
	for {
		value, err, dropped := c.get(ctx)
		if !dropped {
			return value, err
		}
	}
}

// get is Get, unless the value that it waited for was dropped meanwhile.
func (c *Cache[T]) get(ctx context.Context) (value T, err error, dropped bool) {
	c.mu.Lock()
	window := max(c.Fresh, min(buildShare*c.cost, maxFresh))
	age := time.Since(c.at)
	if !c.at.IsZero() && age < window {
		defer c.mu.Unlock()
		return c.value, c.err, false
	}
	flight := c.launch(ctx)
	if c.Overlap && !c.at.IsZero() && c.err == nil && age < 2*window {
		defer c.mu.Unlock()
		return c.value, c.err, false
	}
	c.mu.Unlock()
	select {
	case <-flight:
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("wait for a snapshot: %w", context.Cause(ctx)), false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.err, c.at.IsZero() && !c.closed
}

// launch starts a build unless one is running. The build outlives the request that asked for it: others wait for it.
func (c *Cache[T]) launch(ctx context.Context) <-chan struct{} {
	if c.flight != nil {
		return c.flight
	}
	flight := make(chan struct{})
	if c.closed {
		if c.at.IsZero() {
			c.err = ErrClosed
		}
		close(flight)
		return flight
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	c.flight, c.cancel = flight, cancel
	began, drops := time.Now(), c.drops
	c.wg.Go(func() {
		defer cancel()
		value, err := c.guarded(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.value, c.err, c.cost = value, err, time.Since(began)
		if drops == c.drops {
			c.at = began
		}
		c.flight = nil
		close(flight)
	})
	return flight
}

// guarded keeps a panic of the build from ending the process: it isn't in a handler's goroutine.
func (c *Cache[T]) guarded(ctx context.Context) (value T, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			err = fmt.Errorf("build a snapshot: panic: %v", caught)
		}
	}()
	return c.Build(ctx)
}

// Close ends a running build and waits for it.
func (c *Cache[T]) Close() {
	c.mu.Lock()
	c.closed = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
