package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/process"
)

var (
	// ErrNotFound means that there is no such run.
	ErrNotFound = errors.New("run not found")
	// ErrConsumed means that a run's result was used before, or that it has none yet.
	ErrConsumed = errors.New("run has no result to consume")
	// ErrElsewhere means that a run belongs to another data root.
	ErrElsewhere = errors.New("run belongs to another data root")
)

// RunState is how far a run got.
type RunState string

// The states of a run.
const (
	StateIntended RunState = "intended"
	StateRunning  RunState = "running"
	StateFinished RunState = "finished"
)

// Run is a row of table runs.
type Run struct {
	ID           uuid.UUID  `db:"id"`
	TaskID       int64      `db:"task_id"`
	JobID        int64      `db:"job_id"`
	JobEpoch     int        `db:"job_epoch"`
	Purpose      Purpose    `db:"purpose"`
	Key          string     `db:"key"`
	Stage        string     `db:"stage"`
	Round        int        `db:"round"`
	Attempt      int        `db:"attempt"`
	Agent        string     `db:"agent"`
	State        RunState   `db:"state"`
	RootID       uuid.UUID  `db:"root_id"`
	Host         string     `db:"host"`
	BootID       string     `db:"boot_id"`
	PIDNamespace string     `db:"pid_namespace"`
	ShimPID      *int       `db:"shim_pid"`
	PID          *int       `db:"pid"`
	PIDStartedAt *int64     `db:"pid_started_at"`
	CreatedAt    time.Time  `db:"created_at"`
	StartedAt    *time.Time `db:"started_at"`
	FinishedAt   *time.Time `db:"finished_at"`
	ConsumedAt   *time.Time `db:"consumed_at"`
	ExitCode     *int       `db:"exit_code"`
	Signal       *string    `db:"signal"`
	// Ended is the reason of the end: a process.Why.
	Ended        *string    `db:"ended"`
	Outcome      *Outcome   `db:"outcome"`
	ResetAt      *time.Time `db:"reset_at"`
	SessionID    *string    `db:"session_id"`
	Summary      string     `db:"summary"`
	Question     string     `db:"question"`
	CostUSD      *float64   `db:"cost_usd"`
	InputTokens  *int64     `db:"input_tokens"`
	OutputTokens *int64     `db:"output_tokens"`
	Turns        *int       `db:"turns"`
	LogBytes     int64      `db:"log_bytes"`
}

const selectRuns = `select id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host,
	boot_id, pid_namespace, shim_pid, pid, pid_started_at, created_at, started_at, finished_at, consumed_at, exit_code,
	signal, ended, outcome, reset_at, session_id, summary, question, cost_usd::float8 as cost_usd, input_tokens, output_tokens,
	turns, log_bytes from runs `

// bounded is for what must be read or written although ctx is over: a look at a run that is to be cancelled, its end.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), defaultQueryTimeout)
}

func (r *Runs) one(ctx context.Context, where string, args pgx.NamedArgs) (Run, error) {
	rows, err := r.cfg.Pool.Query(ctx, selectRuns+where, args)
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

func (r *Runs) many(ctx context.Context, where string, args pgx.NamedArgs) ([]Run, error) {
	rows, err := r.cfg.Pool.Query(ctx, selectRuns+where, args)
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
func (r *Runs) Get(ctx context.Context, id uuid.UUID) (Run, error) {
	return r.one(ctx, "where id = @id", pgx.NamedArgs{"id": id})
}

// List reads the runs of a task, oldest first.
func (r *Runs) List(ctx context.Context, taskID int64) ([]Run, error) {
	return r.many(ctx, "where task_id = @task order by created_at, id", pgx.NamedArgs{"task": taskID})
}

// unconsumed reads the one run to continue, whatever ctx says.
func (r *Runs) unconsumed(ctx context.Context, taskID int64, key string) (Run, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return r.one(ctx, "where task_id = @task and key = @key and consumed_at is null", pgx.NamedArgs{"task": taskID, "key": key})
}

// open lists the runs of this root whose end isn't noted.
func (r *Runs) open(ctx context.Context) ([]Run, error) {
	return r.many(ctx, "where root_id = @root and state <> 'finished' order by created_at, id", pgx.NamedArgs{"root": r.cfg.RootID})
}

// unfollowed lists those of them whose job no other living process has.
func (r *Runs) unfollowed(ctx context.Context) ([]Run, error) {
	return r.many(ctx, `where root_id = @root and state <> 'finished' and not exists (
		select from jobs j join workers w on w.id = j.worker_id
		where j.id = job_id and j.state = 'running' and j.lease_expires_at > clock_timestamp() and w.stopped_at is null
		  and (w.boot_id, w.pid, w.pid_started_at) is distinct from (@boot, @pid, @ticks))
		order by created_at, id`, pgx.NamedArgs{
		"root": r.cfg.RootID, "boot": r.cfg.Self.BootID, "pid": r.cfg.Self.PID, "ticks": r.cfg.Self.StartedAt,
	})
}

// AgentsRunning counts the living agent runs of all roots by the agent's name.
func (r *Runs) AgentsRunning(ctx context.Context) (map[string]int, error) {
	rows, err := r.cfg.Pool.Query(ctx, `select agent, count(*) from runs where state = 'running' and purpose = 'agent' group by agent`)
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

// OpenLog gives the output of a run of this root.
func (r *Runs) OpenLog(ctx context.Context, id uuid.UUID) (*process.Log, error) {
	row, err := r.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if row.RootID != r.cfg.RootID {
		return nil, ErrElsewhere
	}
	h, err := process.OpenRun(r.dir(id))
	if errors.Is(err, process.ErrNoRun) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return h.Log(), nil
}

// insertTx writes an intent. False when the task and key have an unconsumed run already.
func (r *Runs) insertTx(ctx context.Context, tx pgx.Tx, run Run) (bool, error) {
	tag, err := tx.Exec(ctx, `
		insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, root_id, host, boot_id, pid_namespace)
		values (@id, @task, @job, @epoch, @purpose, @key, @stage, @round, @attempt, @agent, @root, @host, @boot, @namespace)
		on conflict (task_id, key) where consumed_at is null do nothing`,
		pgx.NamedArgs{
			"id": run.ID, "task": run.TaskID, "job": run.JobID, "epoch": run.JobEpoch, "purpose": run.Purpose, "key": run.Key,
			"stage": run.Stage, "round": run.Round, "attempt": run.Attempt, "agent": run.Agent, "root": run.RootID,
			"host": run.Host, "boot": run.BootID, "namespace": run.PIDNamespace,
		})
	if err != nil {
		return false, fmt.Errorf("write intent: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// startedTx notes the pids. A run that has finished meanwhile keeps its state.
func startedTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, pids process.PIDs) error {
	_, err := tx.Exec(ctx, `
		update runs set state = 'running', shim_pid = @shim, pid = @pid, pid_started_at = @ticks,
			started_at = coalesce(started_at, clock_timestamp())
		where id = @id and state <> 'finished'`,
		pgx.NamedArgs{"id": id, "shim": pids.Shim.PID, "pid": pids.Agent.PID, "ticks": pids.Agent.StartedAt})
	if err != nil {
		return fmt.Errorf("note start of run: %w", err)
	}
	return nil
}

// noteEnd writes the end once. It needs no lease: that a process of this root has ended is true whoever holds the job.
func (r *Runs) noteEnd(ctx context.Context, id uuid.UUID, res Result) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := r.cfg.Pool.Exec(ctx, `
		update runs set state = 'finished', finished_at = clock_timestamp(), exit_code = @code, signal = nullif(@signal, ''),
			ended = @ended, outcome = @outcome, summary = @summary, question = @question, cost_usd = @cost::float8, log_bytes = @bytes
		where id = @id and root_id = @root and state <> 'finished'`,
		pgx.NamedArgs{
			"id": id, "root": r.cfg.RootID, "code": res.Exit.Code, "signal": res.Exit.Signal, "ended": res.Exit.Why,
			"outcome": res.Outcome, "summary": res.Summary, "question": res.Question, "cost": res.CostUSD, "bytes": res.Exit.LogBytes,
		})
	if err != nil {
		return fmt.Errorf("note end of run: %w", err)
	}
	return nil
}

// ConsumeTx uses up a finished run's result; the next Execute of its key starts a new run. It belongs into the
// transaction that acts on the result, together with the unpinning of the job. ErrConsumed when someone was first.
func ConsumeTx(ctx context.Context, tx pgx.Tx, runID uuid.UUID) error {
	tag, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp()
		where id = $1 and state = 'finished' and consumed_at is null`, runID)
	if err != nil {
		return fmt.Errorf("consume run: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("consume run: %w", ErrConsumed)
	}
	return nil
}
