package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

// deadSQL lists the workers of a root that didn't say goodbye, or that still hold jobs.
const deadSQL = `
select ` + workerColumns + ` from workers w
where root_id = $1 and (stopped_at is null or exists (select from jobs where state = 'running' and worker_id = w.id))
order by started_at, id`

// ReleaseDead releases what dead workers of a root hold: the jobs are queued again at once with their attempt given
// back and one recovery more, or fail with crash_loop after the fifth. A job that is pinned by a run whose end isn't noted
// is never failed here, the run may well be alive. dead must answer true only for certain. Each job is released in a transaction of
// its own, guarded by the epoch that was seen; one that can't be is left for the next call. The jobs are returned as
// they became.
func (q *Queue) ReleaseDead(ctx context.Context, rootID uuid.UUID, dead func(Worker) bool) ([]Job, error) {
	workers, err := collect[Worker](ctx, q, deadSQL, rootID)
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	var released []Job
	for _, w := range workers {
		if !dead(w) {
			continue
		}
		jobs, err := q.releaseWorker(ctx, w)
		released = append(released, jobs...)
		if err != nil {
			return released, err
		}
	}
	return released, nil
}

// releaseWorker releases the jobs of one dead worker, then notes that it stopped.
func (q *Queue) releaseWorker(ctx context.Context, w Worker) (released []Job, err error) {
	held, err := q.HeldBy(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	for _, s := range held {
		if after := q.recover(ctx, s, Taking{Reason: "worker_dead"}); after != nil {
			released = append(released, *after)
		}
	}
	return released, q.NoteGone(ctx, w.ID)
}

// ReleaseExpired releases the jobs of every root whose lease ran out longer than margin ago: their worker is stopped,
// cut off or gone without a trace, and has lost them whatever it does later, since its epoch is over. What ReleaseDead
// says of the attempt, of recoveries and of a living run holds here too: a pinned job goes back to its root only.
func (q *Queue) ReleaseExpired(ctx context.Context, margin time.Duration) ([]Job, error) {
	rows, err := collectByIndex[seenJob](ctx, q, seenSQL+` and lease_expires_at < clock_timestamp() - make_interval(secs => @margin) order by id`,
		pgx.NamedArgs{"margin": seconds(margin)})
	if err != nil {
		return nil, fmt.Errorf("list expired leases: %w", err)
	}
	late, err := q.seen(ctx, rows)
	if err != nil {
		return nil, err
	}
	var released []Job
	for _, s := range late {
		if after := q.recover(ctx, s, Taking{Reason: "lease_expired", StillExpired: true}); after != nil {
			released = append(released, *after)
		}
	}
	return released, nil
}

// recover takes a job and tells of it. What can't be done now is left to the next call.
func (q *Queue) recover(ctx context.Context, s Seen, t Taking) *Job {
	t.Recovery = s.RunID == nil || s.RunFinished
	after, err := q.Take(ctx, s, t)
	switch {
	case err != nil:
		q.cfg.Logger.ErrorContext(ctx, "job not recovered from its worker, tried again later", slog.Int64("job_id", s.ID),
			slog.String("reason", t.Reason), slog.String("error_code", db.Code(err)))
	case after != nil:
		q.cfg.Logger.WarnContext(ctx, "job recovered from its worker", slog.Int64("job_id", s.ID), slog.String("kind", s.Kind),
			slog.String("reason", t.Reason), slog.String("state", string(after.State)), slog.Int("attempt", after.Attempt),
			slog.Int("recoveries", after.Recoveries), slog.String("host", orZero(s.Host)), slog.Int("pid", orZero(s.PID)))
	}
	return after
}

func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// collect reads rows into structs.
func collect[T any](ctx context.Context, q *Queue, sql string, args ...any) ([]T, error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	rows, err := q.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}
