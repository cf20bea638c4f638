package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/outcome"
	"orch/internal/process"
)

// queryTimeout bounds what is done although nobody waits for it any more.
const queryTimeout = 10 * time.Second

// Reader answers questions about runs.
type Reader struct {
	pool *pgxpool.Pool
	root uuid.UUID
	self process.Identity
}

const runColumns = `id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host,
	boot_id, pid_namespace, shim_pid, pid, pid_started_at, created_at, started_at, finished_at, consumed_at, exit_code,
	signal, ended, outcome, reset_at, session_id, summary, question, cost_usd::float8 as cost_usd, input_tokens, output_tokens,
	turns, log_bytes, preset, resumed_from, session_lost, cached_tokens, session_total, detail, error, slot, removed_at,
	user_ms, system_ms, max_rss_bytes`

const selectRuns = `select ` + runColumns + ` from runs `

// bounded is for what must be read or written although ctx is over: a look at a run that is to be cancelled, its end.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), queryTimeout)
}

func (r Reader) one(ctx context.Context, where string, args pgx.NamedArgs) (Run, error) {
	rows, err := r.pool.Query(ctx, selectRuns+where, args)
	if err != nil {
		return Run{}, fmt.Errorf("read run: %w", err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Run])
	if errors.Is(err, pgx.ErrNoRows) {
		return Run{}, ErrNotFound
	}
	if err != nil {
		return Run{}, fmt.Errorf("read run: %w", err)
	}
	return run, nil
}

func (r Reader) many(ctx context.Context, where string, args pgx.NamedArgs) ([]Run, error) {
	rows, err := r.pool.Query(ctx, selectRuns+where, args)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByName[Run])
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// Get reads one run.
func (r Reader) Get(ctx context.Context, id uuid.UUID) (Run, error) {
	return r.one(ctx, "where id = @id", pgx.NamedArgs{"id": id})
}

// List reads the runs of a task, oldest first.
func (r Reader) List(ctx context.Context, taskID int64) ([]Run, error) {
	return r.many(ctx, "where task_id = @task order by created_at, id", pgx.NamedArgs{"task": taskID})
}

// Unconsumed reads the one run to continue, whatever ctx says.
func (r Reader) Unconsumed(ctx context.Context, taskID int64, key string) (Run, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return r.one(ctx, "where task_id = @task and key = @key and consumed_at is null", pgx.NamedArgs{"task": taskID, "key": key})
}

// Open lists the runs of this root whose end isn't noted.
func (r Reader) Open(ctx context.Context) ([]Run, error) {
	return r.many(ctx, "where root_id = @root and state <> 'finished' order by created_at, id", pgx.NamedArgs{"root": r.root})
}

// Aged is a run and for how long it has been what it is, by the database's clock: since its end, its start, or its intent.
type Aged struct {
	Run
	Age time.Duration
}

// Aged reads runs of whatever root; those that aren't there are left out.
func (r Reader) Aged(ctx context.Context, ids []uuid.UUID) ([]Aged, error) {
	type row struct {
		Run
		AgeS float64
	}
	rows, err := r.pool.Query(ctx, `select `+runColumns+`,
		extract(epoch from clock_timestamp() - coalesce(finished_at, started_at, created_at))::float8 as age_s
		from runs where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	aged := make([]Aged, 0, len(found))
	for _, f := range found {
		aged = append(aged, Aged{f.Run, time.Duration(f.AgeS * float64(time.Second))})
	}
	return aged, nil
}

// Pinning lists the open runs of this root that pin a job which somebody has now.
func (r Reader) Pinning(ctx context.Context) (map[uuid.UUID]bool, error) {
	rows, err := r.pool.Query(ctx, `select r.id from runs r join jobs j on j.id = r.job_id and j.run_id = r.id
		where r.root_id = $1 and r.state <> 'finished' and j.state = 'running'`, r.root)
	if err != nil {
		return nil, fmt.Errorf("list runs of running jobs: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("list runs of running jobs: %w", err)
	}
	pinning := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		pinning[id] = true
	}
	return pinning, nil
}

// OpenOf lists those of one task.
func (r Reader) OpenOf(ctx context.Context, taskID int64) ([]Run, error) {
	return r.many(ctx, "where task_id = @task and root_id = @root and state <> 'finished' order by created_at, id",
		pgx.NamedArgs{"task": taskID, "root": r.root})
}

// Unfollowed lists the open runs of this root whose job no other living process has.
func (r Reader) Unfollowed(ctx context.Context) ([]Run, error) {
	return r.many(ctx, `where root_id = @root and state <> 'finished' and not exists (
		select from jobs j join workers w on w.id = j.worker_id
		where j.id = job_id and j.state = 'running' and j.lease_expires_at > clock_timestamp() and w.stopped_at is null
		  and (w.boot_id, w.pid, w.pid_started_at) is distinct from (@boot, @pid, @ticks))
		order by created_at, id`, pgx.NamedArgs{
		"root": r.root, "boot": r.self.BootID, "pid": r.self.PID, "ticks": r.self.StartedAt,
	})
}

// AgentsRunning counts the living agent runs of all roots by the agent's name.
func (r Reader) AgentsRunning(ctx context.Context) (map[string]int, error) {
	rows, err := r.pool.Query(ctx, `select agent, count(*) from runs where state = 'running' and purpose = 'agent' group by agent`)
	if err != nil {
		return nil, fmt.Errorf("count running agents: %w", err)
	}
	counts := map[string]int{}
	var name string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
		counts[name] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count running agents: %w", err)
	}
	return counts, nil
}

// Latest reads the newest runs of a task, newest first.
func (r Reader) Latest(ctx context.Context, taskID int64, limit int) ([]Run, error) {
	return r.many(ctx, "where task_id = @task order by created_at desc, id desc limit @limit",
		pgx.NamedArgs{"task": taskID, "limit": limit})
}

// Filter selects runs of a task. Zero values select everything.
type Filter struct {
	Job int64
	// Before selects the runs that are older than this one.
	Before uuid.UUID
	Limit  int
}

// Page reads some of a task's runs, newest first.
func (r Reader) Page(ctx context.Context, taskID int64, f Filter) ([]Run, error) {
	where := "where task_id = @task and (@job = 0 or job_id = @job)"
	if f.Before != uuid.Nil {
		where += " and (created_at, id) < (select p.created_at, p.id from runs p where p.id = @before)"
	}
	return r.many(ctx, where+" order by created_at desc, id desc limit @limit",
		pgx.NamedArgs{"task": taskID, "job": f.Job, "before": f.Before, "limit": f.Limit})
}

// given are the outcomes whose attempts are given back.
func given() []string {
	var list []string
	for _, o := range []outcome.Outcome{
		outcome.Quota, outcome.RateLimited, outcome.Orphaned, outcome.Interrupted, outcome.Cancelled, outcome.NeverStarted,
	} {
		list = append(list, string(o))
	}
	return list
}

// CountAgentRuns counts the agent runs that a task ever had, living ones too, but for those that were cut short or held up
// for a reason that isn't the task's.
func (r Reader) CountAgentRuns(ctx context.Context, taskID int64) (int, error) {
	var n int
	err := r.pool.QueryRow(ctx, `select count(*) from runs
		where task_id = $1 and purpose = 'agent' and coalesce(outcome, '') <> all($2)`, taskID, given()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count runs of task %d: %w", taskID, err)
	}
	return n, nil
}

// InARow counts how often in a row an agent met this outcome, in all tasks and roots, by its newest ends; not above 10, which
// is enough to know that it goes on. Runs that lived at the same time met it together, once.
func (r Reader) InARow(ctx context.Context, agent string, o outcome.Outcome) (int, error) {
	const most, looked = 10, 100
	rows, err := r.pool.Query(ctx, `select coalesce(outcome, ''), created_at, finished_at from runs
		where agent = $1 and purpose = 'agent' and state = 'finished' and outcome <> 'never_started'
		order by finished_at desc, id desc limit $2`, agent, looked)
	if err != nil {
		return 0, fmt.Errorf("read ends of agent %s: %w", agent, err)
	}
	n, over := 0, false
	var end string
	var began, ended, next time.Time
	_, err = pgx.ForEachRow(rows, []any{&end, &began, &ended}, func() error {
		over = over || end != string(o)
		if !over && n < most && (n == 0 || ended.Before(next)) {
			n, next = n+1, began
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read ends of agent %s: %w", agent, err)
	}
	return n, nil
}

// Agents returns which agent each of these runs is of.
func (r Reader) Agents(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	rows, err := r.pool.Query(ctx, `select id, agent from runs where id = any($1)`, ids)
	if err != nil {
		return nil, fmt.Errorf("read agents of runs: %w", err)
	}
	agents := make(map[uuid.UUID]string, len(ids))
	var id uuid.UUID
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		agents[id] = name
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read agents of runs: %w", err)
	}
	return agents, nil
}

// CountLiving counts the runs of a task, of whatever data root, whose end isn't noted: they live, or may.
func (r Reader) CountLiving(ctx context.Context, taskID int64) (int, error) {
	var n int
	err := r.pool.QueryRow(ctx, `select count(*) from runs where task_id = $1 and state <> 'finished'`, taskID).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count living runs of task %d: %w", taskID, err)
	}
	return n, nil
}

// Before is how far the count of the session had come that a run goes on with.
func (r Reader) Before(ctx context.Context, run Run) (*SessionTotal, error) {
	if run.ResumedFrom == nil {
		return nil, nil //nolint:nilnil // nothing was counted
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	earlier, err := r.Get(ctx, *run.ResumedFrom)
	if errors.Is(err, ErrNotFound) {
		return nil, nil //nolint:nilnil // as above
	}
	return earlier.SessionTotal, err
}
