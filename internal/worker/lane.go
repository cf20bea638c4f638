package worker

import (
	"context"
	"sync/atomic"
	"time"

	"orch/internal/queue"
)

// lane is a named share of the worker's concurrency. Only its own loop claims for it.
type lane struct {
	name  string
	slots int
	kinds []string
	wake  chan struct{}
	freed chan struct{}
	busy  atomic.Int64
}

// gather is how long a lane waits for more slots to become free before it claims for the first: ends are written many
// at a time, and a claim of many costs little more than a claim of one.
const gather = time.Millisecond

func (l *lane) free() int { return l.slots - int(l.busy.Load()) }

func (l *lane) poke() { poke(l.wake) }

// freeSlot is called when a job's end is written, not when its handler returned: without a database a worker that
// took more work couldn't keep it.
func (l *lane) freeSlot() {
	l.busy.Add(-1)
	poke(l.freed)
}

// serve claims for a lane until the stop. The poll is what finds jobs; being woken makes it find them sooner.
func (s *session) serve(hard, last context.Context, stop <-chan struct{}, l *lane) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for more := false; ; {
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-l.wake:
		case <-l.freed:
			if !more {
				continue // there was a slot for each job that is due
			}
			if l.busy.Load() > 0 {
				sleep(hard, gather)
			}
		}
		select {
		case <-stop: // it may have been there first
			return
		default:
		}
		next := jittered(s.w.cfg.Poll)
		_ = s.guard(hard, "claim jobs", func() error { // guard logs it
			var again time.Duration
			if more, again = s.fill(hard, last, l); again > 0 {
				next = min(next, again)
			}
			return nil
		})
		timer.Reset(next)
	}
}

// fill claims until the lane is full, then more may be due, or until nothing more is to be had; again is when there may be,
// if that is known. A claim isn't interrupted by the stop: an answer that nobody waits for leaves granted jobs behind.
func (s *session) fill(hard, last context.Context, l *lane) (more bool, again time.Duration) {
	for !s.isStopping() {
		free := l.free()
		if free <= 0 || len(l.kinds) == 0 {
			return true, 0
		}
		if s.silent(hard) {
			return false, 0
		}
		self := s.look()
		leases, err := s.w.cfg.Queue.Claim(hard, queue.ClaimRequest{
			Worker: self, Lane: l.name, Kinds: l.kinds, Repos: self.Repos, Limit: free,
		})
		if err != nil {
			if hard.Err() == nil { // else the end of the grace interrupted it, and the last beat cleans up
				s.outages.failed(hard, "claim", err)
			}
			return false, 0
		}
		s.outages.over(hard, "claim")
		s.w.stats.claimed.Add(int64(len(leases)))
		for _, lease := range leases {
			s.begin(hard, last, l, lease)
		}
		if len(leases) < free {
			return false, s.w.cfg.Queue.LookAgain(self.ID, l.name)
		}
	}
	return false, 0
}

// begin starts a job, or gives it back when the stop was first: one of the two, decided under the lock that the stop
// takes too.
func (s *session) begin(hard, last context.Context, l *lane, lease *queue.Lease) {
	if s.admit(l, lease) {
		go s.work(hard, l, lease)
		return
	}
	s.release(last, lease)
}

func (s *session) admit(l *lane, lease *queue.Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.jobs[lease] = &entry{beats: true}
	s.handlers.Add(1)
	s.working.Add(1)
	l.busy.Add(1)
	return true
}
