package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/db"
	"orch/internal/queue"
)

// lockTries bounds how often a lock is tried again after the task's job changed under it.
const lockTries = 10

var errJobChanged = errors.New("the job of the task changed meanwhile")

// Cancel ends the task for good and asks its job to stop. It wins up to the landing's intent; from then on it answers
// ErrLandingStarted. A task that has ended answers ErrEnded.
func (s *Store) Cancel(ctx context.Context, key, actor string) (Task, error) {
	t, err := s.Get(ctx, key)
	if err != nil {
		return Task{}, fmt.Errorf("cancel task: %w", err)
	}
	var cancelled Task
	err = s.withJob(ctx, t.ID, func(tx pgx.Tx, locked Task, job *queue.Job) error {
		cancelled, err = s.cancelTx(ctx, tx, locked, job, actorOr(actor))
		return err
	})
	if err != nil {
		return Task{}, fmt.Errorf("cancel task %s: %w", key, err)
	}
	s.log.InfoContext(ctx, "task cancelled", slog.String("task", key), slog.String("actor", actorOr(actor)))
	return cancelled, nil
}

func (s *Store) cancelTx(ctx context.Context, tx pgx.Tx, t Task, job *queue.Job, actor string) (Task, error) {
	if t.State.Ended() {
		return Task{}, ErrEnded
	}
	if s.cfg.StopLandingTx != nil {
		stopped, err := s.cfg.StopLandingTx(ctx, tx, t.ID)
		if err != nil {
			return Task{}, fmt.Errorf("stop the landing: %w", err)
		}
		if !stopped {
			return Task{}, ErrLandingStarted
		}
	}
	if job != nil {
		if _, err := queue.CancelTx(ctx, tx, job.ID); err != nil {
			return Task{}, fmt.Errorf("cancel job %d: %w", job.ID, err)
		}
	}
	t.State, t.WaitingFor = Cancelled, ""
	m, err := s.endTx(ctx, tx, t, actor, EventCancelled, "", facts{"stage": t.Stage, "round": t.Round})
	return m.Task, err
}

// withJob runs fn with the task's live job (nil when there is none) and the task locked, in this order, which is also
// the order of every transaction of a running job. Which job it is can change between the two locks: then it starts
// over.
func (s *Store) withJob(ctx context.Context, id int64, fn func(tx pgx.Tx, t Task, job *queue.Job) error) error {
	var err error
	for range lockTries {
		err = db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
			before, err := queue.ActiveForTaskTx(ctx, tx, id)
			if err != nil {
				return err
			}
			t, err := lockTx(ctx, tx, id)
			if err != nil {
				return err
			}
			after, err := queue.ActiveForTaskTx(ctx, tx, id)
			if err != nil {
				return err
			}
			if (before == nil) != (after == nil) || (before != nil && before.ID != after.ID) {
				return errJobChanged
			}
			return fn(tx, t, after)
		})
		if !errors.Is(err, errJobChanged) && !deadlocked(err) {
			return err
		}
	}
	return err
}

func deadlocked(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "40P01"
}
