package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/process"
)

// Latest reads the newest runs of a task, newest first.
func (r *Runs) Latest(ctx context.Context, taskID int64, limit int) ([]Run, error) {
	return r.many(ctx, "where task_id = @task order by created_at desc, id desc limit @limit",
		pgx.NamedArgs{"task": taskID, "limit": limit})
}

// EndTask ends every run of a task that belongs to this root and whose end isn't noted, and notes it: the task was
// cancelled while no job followed them. An intent is forbidden, and one that had ended by itself keeps its own outcome.
// Not one run that can't be ended keeps the others from it. It may be repeated, also at the same time.
func (r *Runs) EndTask(ctx context.Context, taskID int64) error {
	runs, err := r.many(ctx, "where task_id = @task and root_id = @root and state <> 'finished' order by created_at, id",
		pgx.NamedArgs{"task": taskID, "root": r.cfg.RootID})
	if err != nil {
		return err
	}
	var failed []error
	for _, run := range runs {
		failed = append(failed, r.endSoon(ctx, run, process.WhyCancelled))
	}
	return errors.Join(failed...)
}

// CountAgentRuns counts the agent runs that a task ever had, but for those that never started.
func (r *Runs) CountAgentRuns(ctx context.Context, taskID int64) (int, error) {
	var n int
	err := r.cfg.Pool.QueryRow(ctx, `select count(*) from runs
		where task_id = $1 and purpose = 'agent' and coalesce(outcome, '') <> $2`, taskID, string(OutcomeNeverStarted)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count runs of task %d: %w", taskID, err)
	}
	return n, nil
}

// Agents returns which agent each of these runs is of.
func (r *Runs) Agents(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	rows, err := r.cfg.Pool.Query(ctx, `select id, agent from runs where id = any($1)`, ids)
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

// ConsumeAllTx marks every finished run of a task as used: nobody will ask for them any more.
func ConsumeAllTx(ctx context.Context, tx pgx.Tx, taskID int64) error {
	_, err := tx.Exec(ctx, `update runs set consumed_at = clock_timestamp()
		where task_id = $1 and state = 'finished' and consumed_at is null`, taskID)
	if err != nil {
		return fmt.Errorf("consume runs of task %d: %w", taskID, err)
	}
	return nil
}
