package worker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"orch/internal/lifespan"
	"orch/internal/queue"
)

// session is one Run. It lives under three contexts: that of the run, whose end is the first stop signal; hard, which
// ends with the grace; and last, which ends with the time for releasing what is left then.
type session struct {
	w         *Worker
	outages   *outages
	completer *queue.Completer
	endRun    context.CancelCauseFunc
	endHard   context.CancelCauseFunc
	endLast   context.CancelCauseFunc

	loops    sync.WaitGroup // lanes and the tick
	working  sync.WaitGroup // jobs whose handler runs or whose end isn't written
	handlers atomic.Int64   // handlers that run
	beatenAt atomic.Int64   // boot clock, taken before the last beat that came through was sent
	muted    atomic.Bool    // that is too long ago, so lanes wait for the next

	mu         sync.Mutex
	stopping   bool
	abandoning bool // the grace is over
	jobs       map[*queue.Lease]*entry
	lateAt     time.Duration // boot clock, when late was asked last
	repos      []string
}

// entry is a job of this session.
type entry struct {
	beats   bool          // its handler runs
	counted bool          // its end is in the stats
	lost    bool          // late has seen that the lease is lost while its handler runs
	told    bool          // and has returned it
	late    time.Duration // for which its handler has run on then
}

func newSession(w *Worker, endRun context.CancelCauseFunc) *session {
	s := &session{w: w, endRun: endRun, outages: &outages{w: w, codes: map[string]string{}}, jobs: map[*queue.Lease]*entry{}}
	s.completer = queue.NewCompleter(w.cfg.Queue, w.cfg.Worker, func() int { return int(s.handlers.Load()) })
	return s
}

// look asks what the worker serves now. Beats tell the last answer: they run nobody else's code, so nobody delays them.
func (s *session) look() queue.Worker {
	repos := s.w.cfg.Repos()
	s.mu.Lock()
	s.repos = repos
	s.mu.Unlock()
	return s.self()
}

// self is who the worker is, and what it served when it looked last.
func (s *session) self() queue.Worker {
	self := s.w.cfg.Worker
	s.mu.Lock()
	defer s.mu.Unlock()
	self.Repos = s.repos
	return self
}

// guard keeps a panic inside the unit of work that it happened in.
func (s *session) guard(_ context.Context, what string, fn func() error) error {
	return lifespan.Guard(s.w.log, what, fn) //nolint:contextcheck // it logs, nothing else
}

// register writes the worker's row, and beats once, before anything is claimed; it returns false when the stop came
// while the database was away. Who migrates looks at the rows after it said so: either it sees this one, or this beat
// sees what it said.
func (s *session) register(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := s.guard(ctx, "register worker", func() error {
			if err := s.w.cfg.Queue.RegisterWorker(ctx, s.look()); err != nil {
				return err
			}
			return s.sendBeat(ctx, nil)
		})
		if err == nil {
			s.outages.over(ctx, "register")
			return true
		}
		if ctx.Err() != nil {
			return true // the row may be there, and is to say goodbye
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

// tick calls Tick once a poll, whatever the lanes do.
func (s *session) tick(ctx context.Context) {
	for sleep(ctx, jittered(s.w.cfg.Poll)) {
		_ = s.guard(ctx, "tick", func() error { s.look(); s.w.cfg.Tick(ctx); return nil }) // guard logged it
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

// late returns the leases whose handlers don't mind that they are lost, each once: nobody can end them, and they keep
// their slots. Only time in which a handler could have minded counts against it: after a pause that is longer than beats
// explain, since the process was stopped or the machine slept, it has its time anew; a shorter one counts for a heartbeat at most.
func (s *session) late(now time.Duration) []*queue.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := now - s.lateAt
	s.lateAt = now
	stopped := passed > 2*s.w.cfg.Heartbeat+s.w.cfg.Queue.QueryTimeout()
	var leases []*queue.Lease
	for lease, job := range s.jobs {
		switch {
		case !job.beats || !lease.Lost() || job.told:
			continue
		case !job.lost || stopped:
			job.lost, job.late = true, 0
			continue
		}
		job.late += min(passed, s.w.cfg.Heartbeat)
		if job.told = job.late >= lateBeats*s.w.cfg.Heartbeat; job.told {
			leases = append(leases, lease)
		}
	}
	return leases
}

// handlerReturned takes the lease out of the beat: nothing works on the job any more.
func (s *session) handlerReturned(lease *queue.Lease) {
	s.handlers.Add(-1)
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
