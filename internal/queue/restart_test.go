package queue_test

import (
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// The server is stopped and started while ends are written: before, in the middle, and when the answer was lost.
func TestServerRestartLosesNoEndAndDoublesNone(t *testing.T) {
	t.Parallel()
	server := testdb.NewServer(t)
	proxy := queuetest.NewProxy(t, server.ConnConfig())
	pool := queuetest.Pool(t, server.ConnConfig())
	b := benchOn(t, pool, queuetest.Pool(t, proxy.Config()), queuetest.Root(t, pool), queue.Config{QueryTimeout: 5 * time.Second})
	all := b.runningMany(12, queue.Insert{})
	before, middle, unanswered, undone := all[:3], all[3:6], all[6:9], all[9:]
	b.beat(all...)
	e := newEnding(b, 0)

	for _, c := range []struct {
		mode  queuetest.Mode
		batch []*queue.Lease
	}{{queuetest.DieAfter, unanswered}, {queuetest.DieBefore, undone}} {
		proxy.Set(c.mode, commit)
		for _, err := range e.together(c.batch...) {
			b.Is(err, queue.ErrUnavailable)
		}
		proxy.Set(queuetest.Pass, "")
	}
	b.lock(middle[1].Job().ID)
	told := make(chan []error, 1)
	go func() { told <- e.together(middle...) }()
	b.untilWaiting()
	server.Stop(t)
	for _, err := range queuetest.Wait(t, "answers", told) {
		b.Is(err, queue.ErrUnavailable)
	}
	for _, err := range e.together(before...) {
		b.Is(err, queue.ErrUnavailable)
	}
	if _, err := b.Q.Beat(t.Context(), b.W, all); err == nil {
		t.Fatal("a beat without a server")
	}
	for _, l := range all {
		queuetest.Equal(t, "ended or lost", l.Ended() || l.Lost(), false)
	}

	server.Start(t)
	queuetest.Until(t, "a beat comes through", func() bool {
		beat, err := b.Q.Beat(t.Context(), b.W, all)
		queuetest.Equal(t, "lost or orphans", len(beat.Lost)+beat.Orphans, 0)
		return err == nil
	})
	queuetest.Until(t, "the pool has found out", func() bool { return b.Pool.Ping(t.Context()) == nil })
	b.allNo(e.together(all...))
	b.endedOnce(all...)
}
