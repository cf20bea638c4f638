package queue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
)

const (
	// CodeCrashLoop is the code of a job under which workers died again and again.
	CodeCrashLoop = "crash_loop"

	maxRecoveries = 5
)

// deadSQL lists the workers of a root that didn't say goodbye, or that still hold jobs.
const deadSQL = `
select ` + workerColumns + ` from workers w
where root_id = $1 and (stopped_at is null or exists (select from jobs where state = 'running' and worker_id = w.id))
order by started_at, id`

// ReleaseDead releases what dead workers of a root hold: the jobs are queued again at once with their attempt given
// back and one recovery more, or fail with crash_loop after the fifth. A job that is pinned by a run is never failed
// here, the run may well be alive. dead must answer true only for certain. Each job is released in a transaction of
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
	held, err := collect[Job](ctx, q, `select `+columns+` from jobs where state = 'running' and worker_id = $1 order by id`, w.ID)
	if err != nil {
		return nil, fmt.Errorf("list jobs of worker %s: %w", w.ID, err)
	}
	left := false
	for _, job := range held {
		after, ok := q.recover(ctx, job, "worker_dead", "")
		switch {
		case !ok:
			left = true
		case after != nil:
			released = append(released, *after)
		}
	}
	if left {
		return released, nil
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	if _, err := q.pool.Exec(ctx, `update workers set stopped_at = coalesce(stopped_at, clock_timestamp()) where id = $1`, w.ID); err != nil {
		return released, fmt.Errorf("note that worker %s stopped: %w", w.ID, err)
	}
	return released, nil
}

// overdue is the condition under which a lease has run out for good: by the database's clock, with the margin passed.
const overdue = ` and lease_expires_at < clock_timestamp() - make_interval(secs => @margin)`

// ReleaseExpired releases the jobs of every root whose lease ran out longer than margin ago: their worker is stopped,
// cut off or gone without a trace, and has lost them whatever it does later, since its epoch is over. What ReleaseDead
// says of the attempt, of recoveries and of a pinned run holds here too: a pinned job goes back to its root only.
func (q *Queue) ReleaseExpired(ctx context.Context, margin time.Duration) ([]Job, error) {
	args := pgx.NamedArgs{"margin": seconds(margin)}
	late, err := collect[Job](ctx, q, `select `+columns+` from jobs where state = 'running'`+overdue+` order by id`, args)
	if err != nil {
		return nil, fmt.Errorf("list expired leases: %w", err)
	}
	var released []Job
	for _, job := range late {
		if after, _ := q.recover(ctx, job, "lease_expired", overdue, args); after != nil {
			released = append(released, *after)
		}
	}
	return released, nil
}

// recover takes a running job from its worker, in a transaction of its own and under the epoch that was seen. It
// answers the job as it became, nil when somebody was first, and false when it couldn't be done now.
func (q *Queue) recover(ctx context.Context, job Job, reason, condition string, more ...pgx.NamedArgs) (*Job, bool) {
	var after Job
	bounded, cancel := q.bounded(ctx)
	defer cancel()
	fence := pgx.NamedArgs{"id": job.ID, "worker": job.WorkerID, "epoch": job.Epoch}
	for _, args := range more {
		maps.Copy(fence, args)
	}
	err := db.InTx(bounded, q.pool, func(tx pgx.Tx) (err error) {
		// A row that somebody has locked is for the next call: others wait behind it.
		if _, err := tx.Exec(bounded, `set local lock_timeout = '500ms'`); err != nil {
			return err
		}
		if after, err = q.recoverTx(bounded, tx, job, condition, fence); err != nil || job.ConcurrencyKey == nil {
			return err
		}
		_, err = tx.Exec(bounded, wakeSQL, pgx.NamedArgs{"lanes": []string{job.Lane}, "keys": []string{*job.ConcurrencyKey}})
		return err
	})
	switch {
	case isNoRows(err): // somebody was first
		return nil, true
	case err != nil:
		q.cfg.Logger.ErrorContext(ctx, "job not recovered from its worker, tried again later", slog.Int64("job_id", job.ID),
			slog.String("reason", reason), slog.String("error_code", db.Code(err)))
		return nil, false
	}
	q.cfg.Logger.WarnContext(ctx, "job recovered from its worker", slog.Int64("job_id", job.ID), slog.String("kind", job.Kind),
		slog.String("reason", reason), slog.String("state", string(after.State)), slog.Int("attempt", after.Attempt),
		slog.Int("recoveries", after.Recoveries), slog.String("host", orZero(job.Host)), slog.Int("pid", orZero(job.PID)))
	return &after, true
}

// recoverTx fails a job of which its workers died again and again, unless somebody wants it cancelled or a run may be alive,
// and releases any other.
func (q *Queue) recoverTx(ctx context.Context, tx pgx.Tx, job Job, condition string, fence pgx.NamedArgs) (Job, error) {
	if job.Recoveries >= maxRecoveries && job.RunID == nil {
		after, err := q.fail(ctx, tx, held+condition+` and cancel_requested_at is null`, fence, CodeCrashLoop,
			"its worker died under it again and again")
		if !isNoRows(err) {
			return after, err
		}
	}
	// A run that is alive is no crash loop, however often orch is restarted meanwhile.
	args := Release{Recovery: job.RunID == nil}.args()
	maps.Copy(args, fence)
	return move(ctx, tx, setReleased, held+condition, args)
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
