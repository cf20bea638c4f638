package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue/internal/statement"
)

// Get returns a job, or ErrNotFound.
func (q *Queue) Get(ctx context.Context, id int64) (Job, error) {
	jobs, err := statement.Collect[Job](ctx, q.source(), `select `+statement.JobColumns+` from jobs where id = $1`, id)
	if err != nil {
		return Job{}, fmt.Errorf("get job %d: %w", id, err)
	}
	if len(jobs) == 0 {
		return Job{}, fmt.Errorf("get job %d: %w", id, ErrNotFound)
	}
	return jobs[0], nil
}

// ActiveForTask returns the live job of a task as it is now, or nil.
func (q *Queue) ActiveForTask(ctx context.Context, taskID int64) (*Job, error) {
	jobs, err := statement.Collect[Job](ctx, q.source(), `select `+statement.JobColumns+` from jobs where dedupe_key = $1 and state in ('queued', 'running')`, TaskKey(taskID))
	if err != nil {
		return nil, fmt.Errorf("find job of task %d: %w", taskID, err)
	}
	if len(jobs) == 0 {
		return nil, nil //nolint:nilnil // no job is a normal answer
	}
	return &jobs[0], nil
}

// ActiveForTaskTx returns the live job of a task, locked until tx ends, or nil. Lock it before the task's rows:
// handlers lock theirs in that order.
func ActiveForTaskTx(ctx context.Context, tx pgx.Tx, taskID int64) (*Job, error) {
	const live = ` from jobs where dedupe_key = $1 and state in ('queued', 'running')`
	// While the lock was waited for, the job may have ended and its successor been queued, which the same statement
	// doesn't see.
	for {
		rows, err := tx.Query(ctx, `select `+statement.JobColumns+live+` for update`, TaskKey(taskID))
		if err != nil {
			return nil, fmt.Errorf("find job of task %d: %w", taskID, err)
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByName[Job])
		if err != nil {
			return nil, fmt.Errorf("find job of task %d: %w", taskID, err)
		}
		if len(jobs) > 0 {
			return &jobs[0], nil
		}
		var more bool
		if err := tx.QueryRow(ctx, `select exists (select`+live+`)`, TaskKey(taskID)).Scan(&more); err != nil {
			return nil, fmt.Errorf("find job of task %d: %w", taskID, err)
		}
		if !more {
			return nil, nil
		}
	}
}
