package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/outcome"
	"orch/internal/process"
)

// Config is what a Store needs.
type Config struct {
	Pool *pgxpool.Pool
	// Root is the data root whose runs are written, Self this process.
	Root uuid.UUID
	Self process.Identity
	// Slots is how many runs of the root get a slot.
	Slots int
	// OrphanGrace is written with each intent.
	OrphanGrace time.Duration
	Logger      *slog.Logger
}

// Store writes what becomes of runs of one data root.
type Store struct {
	Reader
	cfg Config
}

// New makes a Store.
func New(cfg Config) *Store {
	return &Store{Reader: Reader{pool: cfg.Pool, root: cfg.Root, self: cfg.Self}, cfg: cfg}
}

// End is how a run ended, and what that means.
type End struct {
	Exit    process.Exit
	Outcome outcome.Outcome
	// ResetAt is when the agent may be started again after a limit; nil when that isn't known.
	ResetAt *time.Time
	// SessionID is empty when there is none.
	SessionID string
	// Summary and Question are what the program said of itself, Detail the sentence that the outcome was read from.
	Summary, Question, Detail string
	Usage                     Usage
	// Total is how far the session's own count has come, if there is one.
	Total *SessionTotal
	// SessionLost means that nobody can go on with the session, nor with the one that was to be gone on with.
	SessionLost bool
}

const (
	// MaxText bounds each text of a run that is kept in the database.
	MaxText = 8 << 10
	// MaxDetail bounds the sentence that an outcome was read from.
	MaxDetail = 2 << 10
	// MaxError bounds what went wrong around the program.
	MaxError = 4 << 10
	// maxInserts bounds how often another run may take the slot that was free a moment ago.
	maxInserts = 100
)

var errNoSlot = errors.New("no slot could be had")

// InsertTx writes an intent and gives the slot it got. False when the task and key have an unconsumed run already.
func (s *Store) InsertTx(ctx context.Context, tx pgx.Tx, run Run) (ours bool, slot *int, err error) {
	args := pgx.NamedArgs{
		"id": run.ID, "task": run.TaskID, "job": run.JobID, "epoch": run.JobEpoch, "purpose": run.Purpose, "key": run.Key,
		"stage": run.Stage, "round": run.Round, "attempt": run.Attempt, "agent": run.Agent, "root": run.RootID,
		"host": run.Host, "boot": run.BootID, "namespace": run.PIDNamespace, "preset": run.Preset, "resumed": run.ResumedFrom,
		"slots": s.cfg.Slots, "orphan": int((s.cfg.OrphanGrace + time.Second - 1) / time.Second),
	}
	for range maxInserts {
		// Without a target, so that neither conflict ends the transaction: with whoever is first at the key, or at the slot.
		err := tx.QueryRow(ctx, `
			insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, root_id, host, boot_id,
				pid_namespace, preset, resumed_from, orphan_grace_s, slot)
			values (@id, @task, @job, @epoch, @purpose, @key, @stage, @round, @attempt, @agent, @root, @host, @boot,
				@namespace, @preset, @resumed, nullif(@orphan, 0), (
					select n from generate_series(0, @slots - 1) n
					where not exists (select from runs where root_id = @root and state <> 'finished' and slot = n)
					order by n limit 1))
			on conflict do nothing returning slot`, args).Scan(&slot)
		if err == nil {
			return true, slot, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return false, nil, fmt.Errorf("write intent: %w", err)
		}
		var there bool
		err = tx.QueryRow(ctx, `select exists (select from runs where task_id = @task and key = @key and consumed_at is null)`, args).Scan(&there)
		if err != nil || there {
			return false, nil, err
		}
	}
	return false, nil, fmt.Errorf("write intent: %w", errNoSlot)
}

// StartedTx notes the pids. A run that has finished meanwhile keeps its state.
func StartedTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, pids process.PIDs) error {
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

// NoteSaid writes what a living run has said so far. It needs no lease: it is a fact about a process of this root.
func (s *Store) NoteSaid(ctx context.Context, id uuid.UUID, session string, u Usage) error {
	_, err := s.pool.Exec(ctx, `
		update runs set session_id = coalesce(nullif(@session, ''), session_id), cost_usd = @cost::float8, turns = @turns,
			input_tokens = @input, cached_tokens = @cached, output_tokens = @output
		where id = @id and root_id = @root and state <> 'finished'`, s.usageArgs(id, session, u))
	if err != nil {
		return fmt.Errorf("note output of run: %w", err)
	}
	return nil
}

func (s *Store) usageArgs(id uuid.UUID, session string, u Usage) pgx.NamedArgs {
	return pgx.NamedArgs{
		"id": id, "root": s.cfg.Root, "session": Clean(session, MaxText), "cost": u.CostUSD, "turns": known(u.Turns),
		"input": known(u.InputTokens), "cached": known(u.CachedTokens), "output": known(u.OutputTokens),
	}
}

// known is nil for nothing: most runs don't count.
func known[N int | int64](n N) *N {
	if n == 0 {
		return nil
	}
	return &n
}

// NoteEnd writes the end once, and with it what its agent has used that day. It needs no lease: that a process of this root
// has ended is true whoever holds the job. A session that is lost is so for every run that had it.
func (s *Store) NoteEnd(ctx context.Context, id uuid.UUID, e End) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	args := s.usageArgs(id, e.SessionID, e.Usage)
	class := e.Outcome.Class()
	maps.Copy(args, pgx.NamedArgs{
		"code": e.Exit.Code, "signal": e.Exit.Signal, "ended": e.Exit.Why, "outcome": e.Outcome,
		"summary": Clean(e.Summary, MaxText), "question": Clean(e.Question, MaxText), "detail": Clean(e.Detail, MaxDetail),
		"error": Clean(e.Exit.Error, MaxError), "bytes": e.Exit.LogBytes, "reset": e.ResetAt, "total": e.Total,
		"lost": e.SessionLost, "user": known(e.Exit.UserTime.Milliseconds()), "system": known(e.Exit.SystemTime.Milliseconds()),
		"rss": known(e.Exit.MaxRSSBytes), "failed": class == outcome.Spent || class == outcome.Never,
		"counts": e.Outcome != outcome.NeverStarted,
	})
	var noted int
	err := s.pool.QueryRow(ctx, `
		with ended as (
			update runs set state = 'finished', finished_at = clock_timestamp(), exit_code = @code, signal = nullif(@signal, ''),
				ended = @ended, outcome = @outcome, summary = @summary, question = @question, detail = @detail, error = @error,
				log_bytes = @bytes, reset_at = @reset, session_id = coalesce(nullif(@session, ''), session_id),
				session_total = @total, session_lost = @lost, cost_usd = @cost::float8, turns = @turns, input_tokens = @input,
				cached_tokens = @cached, output_tokens = @output, user_ms = @user, system_ms = @system, max_rss_bytes = @rss
			where id = @id and root_id = @root and state <> 'finished'
			returning id, task_id, agent, purpose, resumed_from, session_id
		), lost as (
			update runs r set session_lost = true from ended e
			where @lost and r.task_id = e.task_id and r.agent = e.agent and r.id <> e.id and not r.session_lost
				and r.session_id in (e.session_id, (select p.session_id from runs p where p.id = e.resumed_from))
		), day as (
			insert into agent_days as d (day, agent, runs, failed, cost_usd, unpriced, input_tokens, output_tokens, turns)
			select (clock_timestamp() at time zone 'UTC')::date, agent, 1, @failed::boolean::int, coalesce(@cost::float8, 0),
				(@cost::float8 is null)::int, coalesce(@input::bigint, 0), coalesce(@output::bigint, 0), coalesce(@turns::int, 0)
			from ended where @counts and purpose = 'agent'
			on conflict (day, agent) do update set runs = d.runs + 1, failed = d.failed + excluded.failed,
				cost_usd = d.cost_usd + excluded.cost_usd, unpriced = d.unpriced + excluded.unpriced,
				input_tokens = d.input_tokens + excluded.input_tokens, output_tokens = d.output_tokens + excluded.output_tokens,
				turns = d.turns + excluded.turns
		)
		select count(*) from ended`, args).Scan(&noted)
	if err != nil {
		return fmt.Errorf("note end of run: %w", err)
	}
	if noted == 0 {
		s.tooLate(ctx, id)
	}
	return nil
}

// tooLate says so when the end of a run was decided elsewhere. That somebody of this root was faster is nothing to tell.
func (s *Store) tooLate(ctx context.Context, id uuid.UUID) {
	if run, err := s.Get(ctx, id); err == nil && run.Ended != nil && process.Why(*run.Ended) == process.WhyHostDead {
		s.cfg.Logger.WarnContext(ctx, "end of run came too late, its task was taken from this host", slog.String("run_id", id.String()))
	}
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

// ConsumeAllTx marks every finished run of a task as used: nobody will ask for them any more.
func ConsumeAllTx(ctx context.Context, tx pgx.Tx, taskID int64) error {
	_, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp()
		where task_id = $1 and state = 'finished' and consumed_at is null`, taskID)
	if err != nil {
		return fmt.Errorf("consume runs of task %d: %w", taskID, err)
	}
	return nil
}

// Clean makes a text that the database takes, cut to a length at a character's boundary.
func Clean(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

// GiveUpTx ends, in the table only, whatever a task has running in a data root whose host was given up. What really runs
// there its shims end by themselves; what is noted of them later comes too late.
func GiveUpTx(ctx context.Context, tx pgx.Tx, taskID int64, root uuid.UUID) error {
	_, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp(),
			state = 'finished', finished_at = coalesce(finished_at, clock_timestamp()), ended = coalesce(ended, @ended), outcome = coalesce(outcome, 'orphaned')
		where task_id = @task and root_id = @root and consumed_at is null`,
		pgx.NamedArgs{"task": taskID, "root": root, "ended": process.WhyHostDead})
	if err != nil {
		return fmt.Errorf("give up the runs of task %d: %w", taskID, err)
	}
	return nil
}
