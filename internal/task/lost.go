package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// CodeHostsLost is why a task stops whose hosts die again and again.
const CodeHostsLost = "hosts_lost"

// maxHostsLost is how often a task moves on to another host. It may be what kills them.
const maxHostsLost = 3

// ErrLeft means that a task needn't be taken from a data root: it has moved on, or somebody works on it there.
var ErrLeft = errors.New("task isn't to be taken from its data root")

// LeaveRoot takes an active task from a data root whose host was given up, and begins it anew, wherever: what its earlier
// stages made is in that root. giveUp ends, in the same transaction, what the task has running there. A landing beyond its
// intent stays (ErrLandingStarted): only that root knows what is to land.
func (s *Store) LeaveRoot(ctx context.Context, id int64, root uuid.UUID, giveUp func(tx pgx.Tx) error) (Task, error) {
	var moved Moved
	err := s.withJob(ctx, id, func(tx pgx.Tx, t Task, job *queue.Job) (err error) {
		if t.State != Active || t.root() != root || job == nil {
			return ErrLeft
		}
		if s.cfg.StopLandingTx != nil {
			stopped, err := s.cfg.StopLandingTx(ctx, tx, t.ID)
			if err != nil {
				return fmt.Errorf("stop the landing: %w", err)
			}
			if !stopped {
				return ErrLandingStarted
			}
		}
		if _, lost, err := queue.LoseTx(ctx, tx, job.ID, root); err != nil || !lost {
			return errors.Join(err, ErrLeft)
		}
		if err := giveUp(tx); err != nil {
			return err
		}
		moved, err = s.beginAnewTx(ctx, tx, t)
		return err
	})
	if err != nil {
		return Task{}, fmt.Errorf("take task %d from its data root: %w", id, err)
	}
	s.log.WarnContext(ctx, "task taken from a data root whose host is dead", slog.String("task", moved.Task.Key),
		slog.String("root_id", root.String()), slog.String("state", string(moved.Task.State)))
	return moved.Task, nil
}

// beginAnewTx is the way of a task back to its first stage, in any data root.
func (s *Store) beginAnewTx(ctx context.Context, tx pgx.Tx, t Task) (Moved, error) {
	var lost int
	if err := tx.QueryRow(ctx, `select count(*) from task_events where task_id = $1 and kind = $2`, t.ID, EventHostLost).Scan(&lost); err != nil {
		return Moved{}, fmt.Errorf("count lost hosts: %w", err)
	}
	if _, err := tx.Exec(ctx, `update tasks set root_id = null where id = $1`, t.ID); err != nil {
		return Moved{}, fmt.Errorf("untie task: %w", err)
	}
	root := t.root()
	t.RootID, t.PassedCommit = nil, ""
	if lost >= maxHostsLost {
		return s.blockTx(ctx, tx, t, Block{Code: CodeHostsLost, Reason: fmt.Sprintf(
			"%d hosts gave no sign of life any more while they worked on it: see to what it needs of them, then `orch task retry %s`", lost+1, t.Key)})
	}
	pipeline, err := s.Pipeline(ctx, t)
	if err != nil {
		return Moved{}, err
	}
	from, first := t.Stage, pipeline.Stages[0]
	t.Stage = first.Name
	if t, err = moveTx(ctx, tx, t); err != nil {
		return Moved{}, err
	}
	err = appendEventTx(ctx, tx, t.ID, System, EventHostLost, "its data root gave no sign of life for too long: what it had made there is lost to it",
		facts{"root_id": root.String(), "from": from, "to": t.Stage, "round": t.Round})
	if err != nil {
		return Moved{}, err
	}
	return Moved{Task: t}, s.EnqueueTx(ctx, tx, t, first)
}
