package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// JobFailedTx blocks the task whose job has failed for good, in the transaction that fails the job. It is the queue's
// OnFailed. Without it a failed job would leave an active task that nothing moves.
func (s *Store) JobFailedTx(ctx context.Context, tx pgx.Tx, job queue.Job, code, message string) error {
	if job.TaskID == nil {
		return nil
	}
	switch job.Kind {
	case KindStage, KindMerge:
	case KindRetire:
		return appendEventTx(ctx, tx, *job.TaskID, System, EventRetireFailed, message, facts{"code": code, "job_id": job.ID})
	default:
		return nil
	}
	at, err := s.placeTx(ctx, tx, job)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		return fmt.Errorf("block task of failed job %d: %w", job.ID, err)
	}
	if code == "" {
		code = "job_failed"
	}
	moved, err := s.BlockTx(ctx, tx, at, Block{Code: code, Reason: message})
	if err != nil {
		return fmt.Errorf("block task of failed job %d: %w", job.ID, err)
	}
	if !moved.Superseded {
		s.log.WarnContext(ctx, "task blocked by a failed job", slog.String("task", moved.Task.Key),
			slog.Int64("job_id", job.ID), slog.String("code", code))
	}
	return nil
}

// placeTx says which place of the task the job was for. A job whose arguments can't be read was for the task's place as
// it is: it held the task's key, so no other job can have moved the task on.
func (s *Store) placeTx(ctx context.Context, tx pgx.Tx, job queue.Job) (At, error) {
	var args JobArgs
	if err := job.Decode(&args); err == nil && args.TaskID == *job.TaskID {
		return args.At(), nil
	}
	t, err := lockTx(ctx, tx, *job.TaskID)
	if err != nil {
		return At{}, err
	}
	return t.At(), nil
}
