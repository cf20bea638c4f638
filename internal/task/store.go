package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

// StoreConfig says what a Store needs from others.
type StoreConfig struct {
	Catalog   Catalog   // pipelines of tasks; nil = Pipelines
	Pipelines Pipelines // used without a Catalog
	// CheckPrompt says what is wrong with the prompt of a stage of that name; nil = all are taken.
	CheckPrompt func(stage, text string) error
	// StopLandingTx gives up the landing of a task that is being cancelled, or answers false when it is past the point
	// where a cancel still wins. nil = nothing lands.
	StopLandingTx func(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error)
	// OnBlockedTx is called in the transaction that blocks a task, e.g. to enqueue an alert. It may be nil.
	OnBlockedTx func(ctx context.Context, tx pgx.Tx, t Task) error
	MaxAttempts int          // of a stage or merge job; zero = the queue's default
	Logger      *slog.Logger // nil = silent
}

// Store owns the tables repositories, tasks and task_events.
type Store struct {
	pool *pgxpool.Pool
	cfg  StoreConfig
	log  *slog.Logger
}

// NewStore returns a store on pool. It refuses pipelines that contradict themselves.
func NewStore(pool *pgxpool.Pool, cfg StoreConfig) (*Store, error) {
	if cfg.Catalog == nil {
		var problems []error
		for _, pipeline := range cfg.Pipelines {
			problems = append(problems, pipeline.Validate(cfg.CheckPrompt))
		}
		if err := errors.Join(problems...); err != nil {
			return nil, fmt.Errorf("new task store: %w", err)
		}
		cfg.Catalog = cfg.Pipelines
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Store{pool: pool, cfg: cfg, log: cfg.Logger}, nil
}

// Pipeline returns the pipeline of a task as it is now.
func (s *Store) Pipeline(ctx context.Context, t Task) (flow.Pipeline, error) {
	p, err := s.cfg.Catalog.Pipeline(ctx, t)
	if err != nil {
		return flow.Pipeline{}, fmt.Errorf("pipeline of task %s: %w", t.Key, err)
	}
	if len(p.Stages) == 0 {
		return flow.Pipeline{}, fmt.Errorf("pipeline of task %s: %w: it has no stage", t.Key, ErrUnknownPipeline)
	}
	return p, nil
}

func one(rows pgx.Rows, err error) (Task, error) {
	if err != nil {
		return Task{}, err
	}
	t, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Task])
	if errors.Is(err, pgx.ErrNoRows) {
		return Task{}, ErrNotFound
	}
	return t, err
}

// lockTx reads the task and keeps others from moving it until the transaction ends.
func lockTx(ctx context.Context, tx pgx.Tx, id int64) (Task, error) {
	t, err := one(tx.Query(ctx, `select `+taskColumns+taskTables+`where t.id = $1 for update of t`, id))
	if err != nil {
		return Task{}, fmt.Errorf("lock task %d: %w", id, err)
	}
	return t, nil
}

// lockAtTx locks the task and says whether it still is at that place, in one of the states.
func lockAtTx(ctx context.Context, tx pgx.Tx, at At, states ...State) (Task, bool, error) {
	t, err := lockTx(ctx, tx, at.TaskID)
	if err != nil {
		return Task{}, false, err
	}
	return t, t.At() == at && slices.Contains(states, t.State), nil
}

// HoldTx locks the task and says how it is and whether it is still active at that place. Until the transaction ends
// nobody can move or cancel it.
func (s *Store) HoldTx(ctx context.Context, tx pgx.Tx, at At) (t Task, held bool, err error) {
	t, held, err = lockAtTx(ctx, tx, at, Active)
	return t, held, wrap("hold task", err)
}

// moveTx writes the fields that a transition may change and returns the task as it is then.
func moveTx(ctx context.Context, tx pgx.Tx, t Task) (Task, error) {
	err := tx.QueryRow(ctx, `update tasks set stage = @stage, state = @state, waiting_for = nullif(@waiting_for, ''),
			reason_code = nullif(@code, ''), reason = nullif(@reason, ''), round = @round, feedback = @feedback,
			landed_commit = nullif(@landed, ''), passed_commit = nullif(@passed, ''), updated_at = clock_timestamp(),
			finished_at = case when @ended::boolean then coalesce(finished_at, clock_timestamp()) end
		where id = @id returning updated_at, finished_at`,
		pgx.NamedArgs{
			"id": t.ID, "stage": t.Stage, "state": string(t.State), "waiting_for": t.WaitingFor, "code": t.ReasonCode,
			"reason": t.Reason, "round": t.Round, "feedback": t.Feedback, "landed": t.LandedCommit, "passed": t.PassedCommit, "ended": t.State.Ended(),
		}).Scan(&t.UpdatedAt, &t.FinishedAt)
	if err != nil {
		return Task{}, fmt.Errorf("move task %s: %w", t.Key, err)
	}
	return t, nil
}

// EnqueueTx enqueues the job that moves an active task at stage. The key is shared by all jobs of a task, so the one
// that moved it here must have ended before, in this transaction or another.
func (s *Store) EnqueueTx(ctx context.Context, tx pgx.Tx, t Task, stage flow.Stage) error {
	kind, lane := KindStage, LaneAgents
	if stage.Landing() {
		kind, lane = KindMerge, LaneMerge
	}
	in, err := queue.EnqueueTx(ctx, tx, queue.Insert{
		Kind: kind, Lane: lane, Repo: t.Repo, Args: JobArgs{TaskID: t.ID, Stage: t.Stage, Round: t.Round}, Priority: t.Priority,
		MaxAttempts: s.cfg.MaxAttempts, DedupeKey: queue.TaskKey(t.ID), ConcurrencyKey: queue.TaskKey(t.ID), TaskID: t.ID,
		PinnedRoot: t.root(),
	})
	if err != nil {
		return fmt.Errorf("enqueue %s job of task %s: %w", kind, t.Key, err)
	}
	if in.Duplicate {
		return fmt.Errorf("enqueue %s job of task %s: %w (job %d)", kind, t.Key, ErrBusy, in.ID)
	}
	return nil
}

// root is where the task's jobs have to run; uuid.Nil while any root will do.
func (t Task) root() uuid.UUID {
	if t.RootID == nil {
		return uuid.Nil
	}
	return *t.RootID
}

// BindTx ties the task to a data root at the beginning of the work on it, and answers the root that it is tied to: what
// is made of it, branch and workspace, is in one root only. It answers false when the task is somewhere else by now.
func (s *Store) BindTx(ctx context.Context, tx pgx.Tx, at At, root uuid.UUID) (uuid.UUID, bool, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active)
	if err != nil || !current || t.RootID != nil {
		return t.root(), current, wrap("bind task", err)
	}
	_, err = tx.Exec(ctx, `update tasks set root_id = $2 where id = $1`, t.ID, root)
	return root, true, wrap("bind task", err)
}

// retireTx enqueues the clean-up after a task. Its concurrency key is the task's, so it never runs beside a job that
// works in the task's workspace.
func retireTx(ctx context.Context, tx pgx.Tx, t Task) error {
	_, err := queueRetireTx(ctx, tx, t)
	return err
}

// queueRetireTx is retireTx, and says whether none was there already.
func queueRetireTx(ctx context.Context, tx pgx.Tx, t Task) (bool, error) {
	in, err := queue.EnqueueTx(ctx, tx, queue.Insert{
		Kind: KindRetire, Lane: LaneSystem, Args: RetireArgs{TaskID: t.ID}, DedupeKey: RetireKey(t.ID),
		ConcurrencyKey: queue.TaskKey(t.ID), TaskID: t.ID, PinnedRoot: t.root(),
	})
	if err != nil {
		return false, fmt.Errorf("enqueue retire job of task %s: %w", t.Key, err)
	}
	return !in.Duplicate, nil
}
