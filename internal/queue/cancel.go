package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

// Cancel cancels a queued job at once. For a running one, or one that is pinned by a run which its root has to end
// first, the request is noted and brought to the holder; the returned job's state tells which. A job that has ended is
// returned as it is.
func (q *Queue) Cancel(ctx context.Context, jobID int64) (job Job, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	err = db.InTx(ctx, q.pool, func(tx pgx.Tx) (err error) {
		job, err = CancelTx(ctx, tx, jobID)
		return err
	})
	return job, err
}

const (
	cancelQueued = ` where id = @id and state = 'queued' and run_id is null`

	// A queued job with a run is claimed next, by the run's root, whose handler finds the request.
	requestSQL = `
with asked as (
	update jobs set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
		run_at = case when state = 'queued' then least(run_at, clock_timestamp()) else run_at end
	where id = @id and state in ('queued', 'running')
	returning ` + statement.JobColumns + `)
select ` + statement.JobColumns + `, case when not ` + db.NotifyRoom + ` then null
	when state = 'running' then pg_notify('` + ChannelControl + `', 'beat')::text
	else pg_notify('` + ChannelJobs + `', lane)::text end as told
from asked`
)

// CancelTx is Cancel in the caller's transaction, which should have locked the job before any row that handlers lock
// under their lease (see ActiveForTaskTx).
func CancelTx(ctx context.Context, tx pgx.Tx, jobID int64) (Job, error) {
	args := pgx.NamedArgs{"id": jobID}
	// Lock first: the state can't change between the statements then.
	job, err := getTx(ctx, tx, jobID)
	if err != nil {
		return Job{}, fmt.Errorf("cancel job %d: %w", jobID, err)
	}
	if job.State.Terminal() {
		return job, nil
	}
	if job.State == StateQueued && job.RunID == nil {
		job, err = move(ctx, tx, setCancelled, cancelQueued, args)
	} else {
		var rows pgx.Rows
		if rows, err = tx.Query(ctx, requestSQL, args); err == nil {
			var asked moved
			asked, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[moved])
			job = asked.Job
		}
	}
	if err != nil {
		return Job{}, fmt.Errorf("cancel job %d: %w", jobID, err)
	}
	return job, nil
}

// getTx reads a job and locks it.
func getTx(ctx context.Context, tx pgx.Tx, jobID int64) (Job, error) {
	rows, err := tx.Query(ctx, `select `+statement.JobColumns+` from jobs where id = $1 for update`, jobID)
	if err != nil {
		return Job{}, err
	}
	job, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Job])
	if isNoRows(err) {
		err = ErrNotFound
	}
	return job, err
}

// Requeue gives a failed or cancelled job another attempt.
func (q *Queue) Requeue(ctx context.Context, jobID int64) (job Job, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	err = db.InTx(ctx, q.pool, func(tx pgx.Tx) (err error) {
		job, err = RequeueTx(ctx, tx, jobID)
		return err
	})
	return job, err
}

const setRequeued = `state = 'queued', max_attempts = greatest(max_attempts, attempt) + 1, recoveries = 0, run_at = clock_timestamp(),
	finished_at = null, waiting_since = null, cancel_requested_at = null, error_code = null, error = null,
	root_id = null, host = null`

// RequeueTx is Requeue in the caller's transaction. ErrNotEnded when the job is live or has succeeded, ErrDuplicate
// when a live twin has its dedupe key; that one spoils the transaction.
func RequeueTx(ctx context.Context, tx pgx.Tx, jobID int64) (Job, error) {
	if _, err := getTx(ctx, tx, jobID); err != nil {
		return Job{}, fmt.Errorf("requeue job %d: %w", jobID, err)
	}
	job, err := move(ctx, tx, setRequeued, ` where id = @id and state in ('failed', 'cancelled')`, pgx.NamedArgs{"id": jobID})
	switch {
	case isNoRows(err):
		err = ErrNotEnded
	case db.ViolatedConstraint(err) == "jobs_dedupe":
		err = ErrDuplicate
	}
	if err != nil {
		return Job{}, fmt.Errorf("requeue job %d: %w", jobID, err)
	}
	return job, nil
}
