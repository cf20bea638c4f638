package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"orch/internal/queue"
)

const (
	hurryLimit   = 1500 * time.Millisecond // from the second signal to the end, with a margin to 2 s
	partingLimit = 500 * time.Millisecond  // for abandoned handlers that do return once told
)

var errTooLate = errors.New("the stop took too long")

// stop is the end of a session, step by step as in doc.go. It is over in bounded time, whatever handlers do.
func (s *session) stop(hard, last context.Context, b *beats) {
	begun := s.noMore()
	s.w.log.InfoContext(last, "worker stopping", slog.Int("jobs", len(begun)))
	for _, lease := range begun {
		lease.BeginStop()
	}
	go s.limitLast(hard, last)

	done := make(chan struct{})
	go func() { // outlives the stop when a handler never returns
		s.loops.Wait()
		s.working.Wait()
		close(done)
	}()
	grace := time.NewTimer(s.w.cfg.StopGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
		s.abandon(last, done)
	case <-s.w.hurry:
		s.abandon(last, done)
	}
	b.stop()
	s.closeCompleter(last)
	s.farewell(last)
}

// closeCompleter doesn't wait for a flush that hangs: the leases in it were marked lost, or its COMMIT is on its way.
func (s *session) closeCompleter(last context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.completer.Close(last)
	}()
	select {
	case <-closed:
	case <-last.Done():
	}
}

// noMore is the moment after which no job begins. It returns those that have.
func (s *session) noMore() []*queue.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	leases := make([]*queue.Lease, 0, len(s.jobs))
	for lease := range s.jobs {
		leases = append(leases, lease)
	}
	return leases
}

// abandon gives up the jobs that are left. Marked lost first, none of their later writes is kept, and their ends are
// never recorded, whether or not the release itself comes through. Then what was told to return may do so for a moment.
func (s *session) abandon(last context.Context, done <-chan struct{}) {
	left := s.noMore()
	s.mu.Lock()
	s.abandoning = true
	s.mu.Unlock()
	for _, lease := range left {
		lease.MarkLost(queue.ErrStopping)
	}
	s.endHard(queue.ErrStopping)
	var releases sync.WaitGroup
	for _, lease := range left {
		releases.Go(func() { s.release(last, lease) })
	}
	releases.Wait()
	parting := time.NewTimer(partingLimit)
	defer parting.Stop()
	select {
	case <-done:
	case <-parting.C:
		s.w.log.WarnContext(last, "handlers abandoned", slog.Int("jobs", len(s.noMore())))
	case <-last.Done():
	}
}

// release gives a job back at once. When that fails, the farewell tries again, and then whoever finds the worker dead.
func (s *session) release(last context.Context, lease *queue.Lease) {
	err := lease.Release(last, queue.Release{})
	switch {
	case err == nil:
		if s.countOnce(lease) {
			s.w.stats.count(lease.Outcome())
		}
		s.w.log.InfoContext(last, "job released, the worker is stopping", slog.Int64("job_id", lease.Job().ID))
	case errors.Is(err, queue.ErrLeaseLost): // it ended just before, or somebody else has it
	default:
		lease.Forget()
		s.outages.failed(last, "release", err)
	}
}

// limitLast ends the last context a while after the grace, sooner after the second signal.
func (s *session) limitLast(hard, last context.Context) {
	limit := s.w.hurryLimit
	select {
	case <-last.Done():
		return
	case <-s.w.hurry:
	case <-hard.Done():
		timer := time.NewTimer(s.w.cfg.Queue.QueryTimeout())
		defer timer.Stop()
		select {
		case <-last.Done():
			return
		case <-s.w.hurry:
		case <-timer.C:
			limit = 0
		}
	}
	sleep(last, limit)
	s.endLast(errTooLate)
}

// farewell releases what a lost answer may have left behind, and notes that the worker is gone. Both are courtesies:
// without them others find out. A migration waits for that, so a slow database gets the time that any question gets.
func (s *session) farewell(last context.Context) {
	ctx, cancel := context.WithTimeoutCause(last, s.w.cfg.Queue.QueryTimeout(), errTooLate)
	defer cancel()
	beat, err := s.w.cfg.Queue.Beat(ctx, s.w.cfg.Worker, nil) // it serves no repository any more
	s.w.stats.released.Add(int64(beat.Orphans))
	if err == nil {
		err = s.w.cfg.Queue.WorkerStopped(ctx, s.w.cfg.Worker)
	}
	if err != nil {
		s.outages.failed(last, "farewell", err)
	}
	s.w.log.InfoContext(last, "worker stopped")
}
