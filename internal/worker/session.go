package worker

import (
	"context"
	"log/slog"
	"sync"

	"orch/internal/lifespan"
	"orch/internal/queue"
)

// session is one Run. It lives under three contexts: the caller's, whose end is the first stop signal; hard, which
// ends with the grace; and last, which ends with the time for releasing what is left then.
type session struct {
	w       *Worker
	outages *outages
	endHard context.CancelCauseFunc
	endLast context.CancelCauseFunc

	loops   sync.WaitGroup // lanes and the tick
	working sync.WaitGroup // jobs whose handler runs or whose end isn't written

	mu         sync.Mutex
	stopping   bool
	abandoning bool // the grace is over
	jobs       map[*queue.Lease]*entry
}

// entry is a job of this session.
type entry struct {
	beats   bool // its handler runs
	counted bool // its end is in the stats
}

func newSession(w *Worker) *session {
	return &session{w: w, outages: &outages{w: w, codes: map[string]string{}}, jobs: map[*queue.Lease]*entry{}}
}

// guard keeps a panic inside the unit of work that it happened in.
func (s *session) guard(_ context.Context, what string, fn func() error) error {
	return lifespan.Guard(s.w.log, what, fn) //nolint:contextcheck // it logs, nothing else
}

// register writes the worker's row before anything is claimed; it returns false when the stop came first.
func (s *session) register(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := s.guard(ctx, "register worker", func() error {
			return s.w.cfg.Queue.RegisterWorker(ctx, s.w.cfg.Worker)
		})
		if err == nil {
			s.outages.over(ctx, "register")
			return ctx.Err() == nil
		}
		if ctx.Err() != nil {
			return false
		}
		s.outages.failed(ctx, "register", err)
		if !sleep(ctx, jittered(s.w.cfg.Poll)) {
			return false
		}
	}
	return false
}

// start starts the loops, and returns the beat, which ends by itself only when it is told.
func (s *session) start(ctx, hard, last context.Context) *beats {
	b := startBeats(context.WithoutCancel(ctx), s)
	s.loops.Go(func() { s.tick(ctx) })
	for _, l := range s.w.lanes {
		s.loops.Go(func() { s.serve(hard, last, ctx.Done(), l) })
	}
	s.w.log.InfoContext(ctx, "worker started", slog.String("worker_id", s.w.cfg.Worker.ID.String()), slog.Int("lanes", len(s.w.lanes)))
	return b
}

// tick calls OnTick once a poll, whatever the lanes do.
func (s *session) tick(ctx context.Context) {
	for sleep(ctx, jittered(s.w.cfg.Poll)) {
		_ = s.guard(ctx, "tick", func() error { s.w.cfg.OnTick(); return nil }) // guard logged it
	}
}

// beaten returns the leases whose handlers run: a living worker must not keep a dead handler's job alive.
func (s *session) beaten() []*queue.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make([]*queue.Lease, 0, len(s.jobs))
	for lease, job := range s.jobs {
		if job.beats && !lease.Lost() {
			leases = append(leases, lease)
		}
	}
	return leases
}

func (s *session) leaveBeat(lease *queue.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[lease].beats = false
}

func (s *session) leave(lease *queue.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.jobs, lease)
}

// countOnce says whether the job's end still has to be counted: an abandoned handler may return after the release.
func (s *session) countOnce(lease *queue.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[lease]
	if job == nil {
		return true // it never began, or its handler is gone without an end
	}
	first := !job.counted
	job.counted = true
	return first
}

func (s *session) isAbandoning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abandoning
}

func (s *session) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}
