package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/queue"
)

// marginShare of the TTL is kept between the moment at which a worker that can't beat gives up its leases, and the
// moment at which others may take them.
const marginShare = 6

// lateBeats is for how many heartbeats a handler may run on under a lost lease before that is logged.
const lateBeats = 2

// beats is the loop that renews the leases. It goes on through the grace.
type beats struct {
	end  context.CancelCauseFunc
	loop sync.WaitGroup
}

func startBeats(ctx context.Context, s *session) *beats {
	ctx, end := context.WithCancelCause(ctx)
	b := &beats{end: end}
	b.loop.Go(func() { s.beat(ctx) })
	return b
}

func (b *beats) stop() {
	b.end(queue.ErrStopping)
	b.loop.Wait()
}

func (s *session) beat(ctx context.Context) {
	timer := time.NewTimer(s.w.cfg.Heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.w.beatNow:
		}
		next := s.w.cfg.Heartbeat
		_ = s.guard(ctx, "beat", func() error { next = s.beatOnce(ctx); return nil }) // guard logged it
		for _, lease := range s.late(bootTime()) {
			s.w.log.ErrorContext(ctx, "handler runs on although its lease is lost, its slot stays taken", s.about(lease, queue.ErrLeaseLost)...)
		}
		timer.Reset(next)
	}
}

// beatOnce returns when to beat next. After a failure that is sooner, and no later than the first lease runs out.
func (s *session) beatOnce(ctx context.Context) time.Duration {
	leases := s.beaten()
	limit := s.w.cfg.Queue.QueryTimeout()
	if left := s.timeLeft(leases); left > 0 { // else: a machine that slept tries before it gives up
		limit = min(limit, left)
	}
	asked, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := s.sendBeat(asked, leases); err != nil {
		if ctx.Err() != nil {
			return s.w.cfg.Heartbeat // the session is over
		}
		s.outages.failed(ctx, "beat", err)
		s.dropSilent(ctx, leases)
		return max(min(s.w.cfg.Heartbeat/3, s.timeLeft(leases)), time.Millisecond)
	}
	s.outages.over(ctx, "beat")
	return s.w.cfg.Heartbeat
}

// sendBeat beats, and does what the answer asks for.
func (s *session) sendBeat(ctx context.Context, leases []*queue.Lease) error {
	sent := bootTime()
	beat, err := s.w.cfg.Queue.Beat(ctx, s.self(), leases)
	if err != nil {
		return err
	}
	s.w.stats.released.Add(int64(beat.Orphans))
	if beat.Orphans > 0 {
		s.w.Wake("") // they are due again
	}
	for _, lease := range beat.Cancelled {
		lease.RequestCancel()
	}
	if known := s.w.cfg.Worker.Schema; known > 0 && beat.Schema > known {
		s.w.log.WarnContext(ctx, "the database is about to be, or was, migrated by a newer orch: this program stops", slog.Int("schema", beat.Schema), slog.Int("known", known))
		s.endRun(ErrSchemaNewer)
	}
	s.beatenAt.Store(int64(sent))
	if s.muted.Swap(false) {
		s.w.Wake("")
	}
	return nil
}

// silent says whether no beat came through for so long that nothing may be claimed: leases couldn't be kept, and who
// migrates may have taken this worker for dead. A machine that slept is in that state until its first beat.
func (s *session) silent(ctx context.Context) bool {
	if bootTime()-time.Duration(s.beatenAt.Load()) < s.silenceLimit() {
		return false
	}
	if !s.muted.Swap(true) {
		s.w.log.WarnContext(ctx, "nothing is claimed until a beat comes through")
		s.w.BeatNow()
	}
	return true
}

// bootTime is the time since boot, that which the machine slept included.
func bootTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // can't fail on a kernel that runs Go
	return time.Duration(ts.Nano())
}

func (s *session) silenceLimit() time.Duration {
	ttl := s.w.cfg.Queue.LeaseTTL()
	return ttl - ttl/marginShare
}

// timeLeft is the time until the first lease has been silent for too long.
func (s *session) timeLeft(leases []*queue.Lease) time.Duration {
	left := s.silenceLimit()
	for _, lease := range leases {
		if !lease.Lost() {
			left = min(left, s.silenceLimit()-lease.Silence())
		}
	}
	return left
}

// dropSilent gives up leases that others may take soon. The row may still be ours for a while; nobody here will use it.
func (s *session) dropSilent(ctx context.Context, leases []*queue.Lease) {
	for _, lease := range leases {
		if lease.Silence() >= s.silenceLimit() && !lease.Ended() {
			lease.MarkLost(queue.ErrLeaseLost)
			s.w.log.WarnContext(ctx, "lease given up, no beat came through", slog.Int64("job_id", lease.Job().ID))
		}
	}
}
