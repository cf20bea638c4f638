package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// Evidence is one kept answer.
type Evidence struct {
	ID         int64      `db:"id"`
	TaskID     int64      `db:"task_id"`
	Stage      string     `db:"stage"`
	Round      int        `db:"round"`
	Name       string     `db:"name"`
	Definition string     `db:"definition"` // Definition.Hash
	Commit     string     `db:"commit_sha"`
	Tree       string     `db:"tree"`
	Outcome    Outcome    `db:"outcome"`
	Reason     string     `db:"reason"`
	ExitCode   *int       `db:"exit_code"`
	DurationMS int64      `db:"duration_ms"`
	OutputTail string     `db:"output_tail"`
	RunID      *uuid.UUID `db:"run_id"`
	At         time.Time  `db:"at"`
}

const evidenceColumns = `id, task_id, stage, round, name, definition, commit_sha, tree, outcome, reason, exit_code,
	duration_ms, output_tail, run_id, at`

// Evidence returns what the gates of a task saw, newest first, at most limit rows (0 = 100).
func (r *Registry) Evidence(ctx context.Context, taskID int64, limit int) ([]Evidence, error) {
	if limit <= 0 {
		limit = 100
	}
	rows, err := r.cfg.Pool.Query(ctx,
		`select `+evidenceColumns+` from gate_evidence where task_id = $1 order by id desc limit $2`, taskID, limit)
	if err != nil {
		return nil, fmt.Errorf("list gate evidence: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[Evidence])
	if err != nil {
		return nil, fmt.Errorf("list gate evidence: %w", err)
	}
	return list, nil
}

// reusable looks for a pass of the same task for the same tree and definition. Failures are never taken from here:
// they may have had a passing cause.
func (r *Registry) reusable(ctx context.Context, d Definition, s Subject) (Result, bool, error) {
	rows, err := r.cfg.Pool.Query(ctx, `select `+evidenceColumns+` from gate_evidence
		where tree = @tree and definition = @definition and outcome = 'pass' and task_id = @task and name = @name
		order by id desc limit 1`,
		pgx.NamedArgs{"tree": s.Tree, "definition": d.Hash(), "task": s.TaskID, "name": d.Name})
	if err != nil {
		return Result{}, false, fmt.Errorf("look for kept evidence: %w", err)
	}
	kept, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Evidence])
	if errors.Is(err, pgx.ErrNoRows) {
		return Result{}, false, nil
	}
	if err != nil {
		return Result{}, false, fmt.Errorf("look for kept evidence: %w", err)
	}
	return Result{
		Name: d.Name, Outcome: Pass, OutputTail: kept.OutputTail, ExitCode: kept.ExitCode, Reused: true,
		Duration: time.Duration(kept.DurationMS) * time.Millisecond, RunID: kept.RunID, EvidenceID: kept.ID,
	}, true, nil
}

// keep writes the answer and consumes its run, both or neither, under the fence of the job.
func (r *Registry) keep(ctx context.Context, l *queue.Lease, d Definition, s Subject, result Result) (Result, error) {
	err := l.Tx(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `insert into gate_evidence
				(task_id, stage, round, name, definition, commit_sha, tree, outcome, reason, exit_code, duration_ms, output_tail, run_id)
			values (@task, @stage, @round, @name, @definition, @commit, @tree, @outcome, @reason, @exit, @duration, @tail, @run)
			returning id`,
			pgx.NamedArgs{
				"task": s.TaskID, "stage": s.Stage, "round": s.Round, "name": d.Name, "definition": d.Hash(),
				"commit": s.Commit, "tree": s.Tree, "outcome": string(result.Outcome), "reason": result.Reason,
				"exit": result.ExitCode, "duration": result.Duration.Milliseconds(), "tail": result.OutputTail,
				"run": result.RunID,
			}).Scan(&result.EvidenceID)
		if err != nil || result.RunID == nil {
			return err
		}
		return r.consume(ctx, l, tx, *result.RunID)
	})
	if err != nil {
		return Result{}, fmt.Errorf("keep gate evidence: %w", err)
	}
	return result, nil
}

func (r *Registry) consume(ctx context.Context, l *queue.Lease, tx pgx.Tx, runID uuid.UUID) error {
	if r.cfg.ConsumeTx != nil {
		if err := r.cfg.ConsumeTx(ctx, tx, runID); err != nil {
			return fmt.Errorf("consume run: %w", err)
		}
	}
	return l.UnpinTx(ctx, tx)
}
