package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/internal/statement"
)

// Every transition of a job out of queued or running is one statement: `update jobs set <what>`, and in the same
// statement the total of the terminal state and the wake-up of a lane that has a job due. Totals are spread over
// shards, here by job id.
const (
	shards = 16 // as in the statement

	moveHead = `with moved as (update jobs set `
	moveTail = ` returning ` + statement.JobColumns + `), counted as (
	insert into job_totals as t (kind, state, shard, total)
	select kind, state, id % 16, 1 from moved where state in ('succeeded', 'failed', 'cancelled')
	on conflict (kind, state, shard) do update set total = t.total + 1)
select ` + statement.JobColumns + `, case when state = 'queued' and run_at <= clock_timestamp() and ` + db.NotifyRoom + `
	then pg_notify('` + ChannelJobs + `', lane)::text end as told
from moved`
)

// held is the fence: whoever writes for a running job writes under this.
const held = ` where id = @id and state = 'running' and worker_id = @worker and epoch = @epoch`

// unheld clears what only a running job has.
const unheld = `, worker_id = null, lease_expires_at = null, heartbeat_at = null, boot_id = null, pid = null, pid_started_at = null`

// terminal ends a job.
const terminal = `, finished_at = clock_timestamp(), phase = null` + unheld

// requeued puts a running job back into the queue, unless someone asked to cancel it: then it ends, unless it is
// pinned by a run, which its root has to end first.
const requeued = `state = case when cancel_requested_at is not null and run_id is null then 'cancelled' else 'queued' end::job_state,
	finished_at = case when cancel_requested_at is not null and run_id is null then clock_timestamp() end,
	root_id = null, host = null` + unheld

const (
	setSucceeded = `state = 'succeeded', error_code = null, error = null` + terminal
	setCancelled = `state = 'cancelled', cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())` + terminal
	setFailed    = `state = 'failed', error_code = @code, error = @message` + terminal

	// The attempt stays spent.
	setRetried = requeued + `, phase = null, waiting_since = null, error_code = @code, error = @message,
	run_at = clock_timestamp() + make_interval(secs => @after)`

	// The attempt is given back, the epoch isn't. waiting_since tells since when the job gets nowhere.
	setReleased = requeued + `, attempt = greatest(attempt - 1, 0), recoveries = recoveries + @recovered,
	phase = @waiting_for, error_code = case when @waiting_message::text is null then error_code else @waiting_for end,
	error = coalesce(@waiting_message, error), run_at = clock_timestamp() + make_interval(secs => @after),
	waiting_since = case when @waiting_for::text is null then waiting_since else coalesce(waiting_since, clock_timestamp()) end`
)

// querier is a transaction, a connection or the pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// moved is a job after a transition.
type moved struct {
	Job
	Told *string `db:"told"`
}

// move runs one transition; no row means that the condition didn't hold, answered as pgx.ErrNoRows.
func move(ctx context.Context, on querier, set, where string, args pgx.NamedArgs) (Job, error) {
	rows, err := on.Query(ctx, moveHead+set+where+moveTail, args)
	if err != nil {
		return Job{}, err
	}
	m, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[moved])
	return m.Job, err
}

// fail is move to failed with the hook, which is to be told of every such transition.
func (q *Queue) fail(ctx context.Context, tx pgx.Tx, where string, args pgx.NamedArgs, code, message string) (Job, error) {
	code, message = statement.Storable(code), statement.Storable(message)
	all := pgx.NamedArgs{"code": code, "message": message}
	maps.Copy(all, args)
	job, err := move(ctx, tx, setFailed, where, all)
	if err != nil {
		return job, err
	}
	return job, q.failed(ctx, tx, job, code, message)
}

func (q *Queue) failed(ctx context.Context, tx pgx.Tx, job Job, code, message string) error {
	if q.cfg.OnFailed == nil {
		return nil
	}
	if err := q.cfg.OnFailed(ctx, tx, job, code, message); err != nil {
		return fmt.Errorf("on failed job %d: %w", job.ID, err)
	}
	return nil
}

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
