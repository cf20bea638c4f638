package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	defaultLimit = 50
	maxLimit     = 500
	maxCounted   = 100_000 // rows of each sort that a count looks at
)

// Get returns a job, or ErrNotFound.
func (q *Queue) Get(ctx context.Context, id int64) (Job, error) {
	jobs, err := collect[Job](ctx, q, `select `+columns+` from jobs where id = $1`, id)
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
	jobs, err := collect[Job](ctx, q, `
select `+columns+` from jobs
where (@state::text is null or state = @state::text::job_state) and (@task::bigint is null or task_id = @task)
  and (@before::bigint is null or id < @before)
order by id desc limit @limit`, pgx.NamedArgs{
		"state": orNull(string(f.State)), "task": orNull(f.TaskID), "before": orNull(f.Before), "limit": min(f.Limit, maxLimit),
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
		rows, err := tx.Query(ctx, `select `+columns+live+` for update`, TaskKey(taskID))
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

// liveSQL reads queued, running and failed rows by the partial indexes, no more than @most of each kind in each lane: the
// most of one must not hide another.
const liveSQL = `
with recursive queued (lane, kind) as (
	(select lane, kind from jobs where state = 'queued' order by lane, kind limit 1)
	union all
	select next.* from queued q cross join lateral (
		select lane, kind from jobs where state = 'queued' and (lane, kind) > (q.lane, q.kind) order by lane, kind limit 1) next
), failed (lane, kind) as (
	(select lane, kind from jobs where state = 'failed' order by lane, kind limit 1)
	union all
	select next.* from failed f cross join lateral (
		select lane, kind from jobs where state = 'failed' and (lane, kind) > (f.lane, f.kind) order by lane, kind limit 1) next
), live as (
	select job.* from queued q cross join lateral (
		select kind, lane, state, run_at from jobs where state = 'queued' and lane = q.lane and kind = q.kind limit @most) job
	union all
	(select kind, lane, state, run_at from jobs where state = 'running' limit @most)
	union all
	select job.* from failed f cross join lateral (
		select kind, lane, state, run_at from jobs where state = 'failed' and lane = f.lane and kind = f.kind limit @most) job)`

// Depth is how much of one kind there is in one lane. Counts end at 100,000, and so does the look for the oldest.
type Depth struct {
	Kind, Lane              string
	Queued, Running, Failed int64
	OldestQueued            *time.Duration // for how long the oldest queued job has been due; nil when none is
}

const beginByIndex = `begin; ` + byIndexSQL

// collectByIndex is collect for statements that must not depend on statistics: a plan that reads the whole table would
// read all that has ended too.
func collectByIndex[T any](ctx context.Context, q *Queue, sql string, args ...any) (out []T, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, q.pool, pgx.TxOptions{BeginQuery: beginByIndex}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	})
	return out, err
}

// Depth counts what is queued, running and failed. It holds no arguments, texts or names.
func (q *Queue) Depth(ctx context.Context) ([]Depth, error) {
	type row struct {
		Kind, Lane              string
		Queued, Running, Failed int64
		Age                     *float64
	}
	rows, err := collectByIndex[row](ctx, q, liveSQL+`
select kind, lane, count(*) filter (where state = 'queued') as queued, count(*) filter (where state = 'running') as running,
	count(*) filter (where state = 'failed') as failed,
	extract(epoch from clock_timestamp() - min(run_at) filter (where state = 'queued' and run_at <= now()))::float8 as age
from live group by kind, lane order by kind, lane`, pgx.NamedArgs{"most": maxCounted})
	if err != nil {
		return nil, fmt.Errorf("count jobs by kind: %w", err)
	}
	depth := make([]Depth, 0, len(rows))
	for _, r := range rows {
		d := Depth{Kind: r.Kind, Lane: r.Lane, Queued: r.Queued, Running: r.Running, Failed: r.Failed}
		if r.Age != nil {
			age := time.Duration(*r.Age * float64(time.Second))
			d.OldestQueued = &age
		}
		depth = append(depth, d)
	}
	return depth, nil
}

// Counts returns how many jobs are queued and running, and how many ever succeeded, failed and were cancelled.
func (q *Queue) Counts(ctx context.Context) (map[State]int64, error) {
	type row struct {
		State State
		Total int64
	}
	rows, err := collectByIndex[row](ctx, q, liveSQL+`
select state, count(*) as total from live where state <> 'failed' group by state
union all
select state, sum(total)::bigint from job_totals group by state`, pgx.NamedArgs{"most": maxCounted})
	if err != nil {
		return nil, fmt.Errorf("count jobs by state: %w", err)
	}
	counts := map[State]int64{StateQueued: 0, StateRunning: 0, StateSucceeded: 0, StateFailed: 0, StateCancelled: 0}
	for _, r := range rows {
		counts[r.State] += r.Total
	}
	return counts, nil
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
	rows, err := collect[row](ctx, q, `select name, total from counters`)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	counters := make(map[string]int64, len(rows))
	for _, r := range rows {
		counters[r.Name] = r.Total
	}
	return counters, nil
}
