package reaper_test

import (
	"context"
	"testing"
	"time"

	"orch/internal/process/runtest"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/reaper"
	"orch/internal/testdb"
)

func TestSwitchedOffItReleasesOnceAtTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.otherRoot()
	own := w.plain(w.worker(dead(t))).Job().ID
	others := w.plain(w.worker(dead(t), func(worker *queue.Worker) { worker.RootID = other })).Job().ID
	r := w.reaper(func(c *reaper.Config) {
		c.Off, c.Recover = true, func(context.Context) error { t.Error("it ticks"); return nil }
	})
	ctx, stop := context.WithCancelCause(t.Context())
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, func() { close(ready) }) }()
	<-ready
	w.jobIs(own, "queued attempt 0 recoveries 1")
	w.jobIs(others, "running attempt 1 recoveries 0")
	stop(nil)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := r.Snapshot(); s.Enabled || !s.LastRun.IsZero() {
		t.Errorf("%+v", s)
	}
}

// A start in the very moment in which the database is away must not leave for good what a dead process held.
func TestSwitchedOffItReleasesOnceTheDatabaseIsBackAndNeverAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.plain(w.worker(dead(t))).Job().ID
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(w.pool))
	away := through(queuetest.Pool(t, proxy.Config()))
	proxy.Set(queuetest.Refuse, "")
	r := w.reaper(func(c *reaper.Config) { c.Off, c.Queue, c.Interval = true, away, time.Millisecond })
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.Release(runtest.Bound(t), func() { close(ready) })
	}()
	runtest.Eventually(t, "its first try", func() bool { return r.Snapshot().LastError == "database_unreachable" })
	select {
	case <-ready:
		t.Error("ready before anything was given back")
	default:
	}
	proxy.Set(queuetest.Pass, "")
	<-ready
	w.jobIs(own, "queued attempt 0 recoveries 1")
	<-done // it looks no more
	if s := r.Snapshot(); s.LastError != "" {
		t.Errorf("%+v", s)
	}
	if said := w.log.of("part of the reaper's tick not done, tried again"); len(said) != 1 {
		t.Errorf("log: %v", said)
	}
}

// One job that can't be given back keeps no worker from its first claim, and is tried until it is.
func TestSwitchedOffItWaitsForNoRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	locked, good := w.plain(gone).Job().ID, w.plain(gone).Job().ID
	let := w.lock(locked)
	r := w.reaper(func(c *reaper.Config) { c.Off, c.Interval = true, time.Millisecond })
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		r.Release(runtest.Bound(t), func() { close(ready) })
	}()
	<-ready
	w.jobIs(good, "queued attempt 0 recoveries 1")
	w.jobIs(locked, "running attempt 1 recoveries 0")
	let()
	<-done
	w.jobIs(locked, "queued attempt 0 recoveries 1")
}
