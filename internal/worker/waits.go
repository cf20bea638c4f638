package worker

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"orch/internal/queue"
)

// waitsEvery is how often one job's wait is logged.
const waitsEvery = time.Hour

// waits makes jobs seen that are put off again and again: no attempt is spent, so nothing else would ever end that.
type waits struct {
	mu     sync.Mutex
	logged map[int64]time.Time // job → when it was logged last
}

// due says whether the wait of a job is to be logged now.
func (w *waits) due(jobID int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.logged, func(_ int64, at time.Time) bool { return time.Since(at) >= waitsEvery })
	if _, lately := w.logged[jobID]; lately {
		return false
	}
	w.logged[jobID] = time.Now()
	return true
}

// noteWait logs and tells of a job that was put off although it has waited for too long, by its worker or by its handler.
// Both times are the database's.
func (s *session) noteWait(ctx context.Context, lease *queue.Lease) {
	job, waitsFor := lease.Job(), lease.WaitsFor()
	if waitsFor == "" || job.WaitingSince == nil || job.StartedAt == nil {
		return
	}
	waited := job.StartedAt.Sub(*job.WaitingSince)
	if waited < s.w.cfg.WaitLimit || !s.w.waits.due(job.ID) {
		return
	}
	s.w.log.WarnContext(ctx, "job waits for very long", slog.Int64("job_id", job.ID), slog.String("kind", job.Kind),
		slog.String("waiting_for", waitsFor), slog.Int64("waited_hours", int64(waited/time.Hour)))
	if s.w.cfg.OnWait != nil {
		_ = s.guard(ctx, "tell of a wait", func() error { s.w.cfg.OnWait(ctx, job, waitsFor, waited); return nil }) // guard logged it
	}
}
