package queue

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue/internal/statement"
)

const (
	defaultLimit = 50
	maxLimit     = 500
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

// Filter says which jobs List returns; zero values mean any.
type Filter struct {
	State  State
	TaskID int64
	Before int64 // only ids below: the last id of the page before
	Limit  int   // default 50, at most 500
}

// List returns jobs, newest first.
func (q *Queue) List(ctx context.Context, f Filter) ([]Job, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	jobs, err := statement.Collect[Job](ctx, q.source(), `
select `+statement.JobColumns+` from jobs
where (@state::text is null or state = @state::text::job_state) and (@task::bigint is null or task_id = @task)
  and (@before::bigint is null or id < @before)
order by id desc limit @limit`, pgx.NamedArgs{
		"state": statement.OrNull(string(f.State)), "task": statement.OrNull(f.TaskID), "before": statement.OrNull(f.Before), "limit": min(f.Limit, maxLimit),
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
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

// AddCounterTx adds to a total that is kept since the database was made.
func AddCounterTx(ctx context.Context, tx pgx.Tx, name string, n int64) error {
	_, err := tx.Exec(ctx, `insert into counters as c (name, total) values ($1, $2)
on conflict (name) do update set total = c.total + excluded.total`, name, n)
	if err != nil {
		return fmt.Errorf("add to counter %s: %w", name, err)
	}
	return nil
}

// Counters returns all those totals.
func (q *Queue) Counters(ctx context.Context) (map[string]int64, error) {
	type row struct {
		Name  string
		Total int64
	}
	rows, err := statement.Collect[row](ctx, q.source(), `select name, total from counters`)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	counters := make(map[string]int64, len(rows))
	for _, r := range rows {
		counters[r.Name] = r.Total
	}
	return counters, nil
}
