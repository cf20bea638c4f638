package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

// CodeHostsLost is why a task stops whose hosts die again and again.
const CodeHostsLost = "hosts_lost"

// maxHostsLost is how often a task moves on to another host. It may be what kills them.
const maxHostsLost = 3

// ErrLeft means that a task needn't be taken from a data root: it has moved on, or somebody works on it there.
var ErrLeft = errors.New("task isn't to be taken from its data root")

// Leaving is what a task leaves behind with a data root, asked and done in the transaction that takes it.
type Leaving struct {
	// OfferedTx says whether the work that the task is about to land is to be had without the root; nil = never.
	OfferedTx func(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error)
	// GiveUpTx ends what the task has running there.
	GiveUpTx func(ctx context.Context, tx pgx.Tx, taskID int64) error
}

// LeaveRoot takes an active task from a data root whose host was given up. One that is landing, and whose work is offered in its
// repository, goes on with that wherever there is a worker, also when its intent is written: the repository says how it ended. Any
// other begins anew: what its earlier stages made is in that root. Without the offer a landing beyond its intent stays
// (ErrLandingStarted): only that root knows what is to land.
func (s *Store) LeaveRoot(ctx context.Context, id int64, root uuid.UUID, leaving Leaving) (Task, error) {
	var moved Moved
	err := s.withJob(ctx, id, func(tx pgx.Tx, t Task, job *queue.Job) (err error) {
		if t.State != Active || t.root() != root || job == nil {
			return ErrLeft
		}
		offered := false
		if leaving.OfferedTx != nil {
			if offered, err = leaving.OfferedTx(ctx, tx, t.ID); err != nil {
				return fmt.Errorf("look what the task has offered: %w", err)
			}
		}
		lands := offered && job.Kind == KindMerge
		if !lands && s.cfg.StopLandingTx != nil {
			stopped, err := s.cfg.StopLandingTx(ctx, tx, t.ID)
			if err != nil {
				return fmt.Errorf("stop the landing: %w", err)
			}
			if !stopped {
				return ErrLandingStarted
			}
		}
		anyones := lands && job.State == queue.StateQueued && job.PinnedRoot == nil // it needs no other
		if !anyones {
			if _, lost, err := queue.LoseTx(ctx, tx, job.ID, root); err != nil || !lost {
				return errors.Join(err, ErrLeft)
			}
		}
		if err := leaving.GiveUpTx(ctx, tx, t.ID); err != nil {
			return err
		}
		if !lands {
			moved, err = s.beginAnewTx(ctx, tx, t)
			return err
		}
		if moved.Task, err = untieTx(ctx, tx, t, "its landing goes on elsewhere", facts{"stage": t.Stage, "kept": true}); err != nil || anyones {
			return err
		}
		return s.EnqueueTx(ctx, tx, moved.Task, flow.Stage{Name: t.Stage, Gates: []flow.GateRef{{Name: flow.BranchMergeable}}})
	})
	if err != nil {
		return Task{}, fmt.Errorf("take task %d from its data root: %w", id, err)
	}
	s.log.WarnContext(ctx, "task taken from a data root whose host is dead", slog.String("task", moved.Task.Key),
		slog.String("root_id", root.String()), slog.String("stage", moved.Task.Stage), slog.String("state", string(moved.Task.State)))
	return moved.Task, nil
}

// untieTx lets any data root have a task, and tells what that means for it.
func untieTx(ctx context.Context, tx pgx.Tx, t Task, what string, data facts) (Task, error) {
	if _, err := tx.Exec(ctx, `update tasks set root_id = null where id = $1`, t.ID); err != nil {
		return Task{}, fmt.Errorf("untie task: %w", err)
	}
	data["root_id"], data["round"] = t.root().String(), t.Round
	t.RootID = nil
	return t, appendEventTx(ctx, tx, t.ID, System, EventHostLost, "its data root gave no sign of life for too long: "+what, data)
}

// beginAnewTx is the way of a task back to its first stage, in any data root.
func (s *Store) beginAnewTx(ctx context.Context, tx pgx.Tx, t Task) (Moved, error) {
	var lost int
	if err := tx.QueryRow(ctx, `select count(*) from task_events where task_id = $1 and kind = $2 and not data ? 'kept'`, t.ID, EventHostLost).Scan(&lost); err != nil {
		return Moved{}, fmt.Errorf("count lost hosts: %w", err)
	}
	if lost >= maxHostsLost {
		if _, err := tx.Exec(ctx, `update tasks set root_id = null where id = $1`, t.ID); err != nil {
			return Moved{}, fmt.Errorf("untie task: %w", err)
		}
		t.RootID, t.PassedCommit = nil, ""
		return s.blockTx(ctx, tx, t, Block{Code: CodeHostsLost, Reason: fmt.Sprintf(
			"%d hosts gave no sign of life any more while they worked on it: see to what it needs of them, then `orch task retry %s`", lost+1, t.Key)})
	}
	pipeline, err := s.Pipeline(ctx, t)
	if err != nil {
		return Moved{}, err
	}
	first := pipeline.Stages[0]
	t, err = untieTx(ctx, tx, t, "what it had made there is lost to it", facts{"from": t.Stage, "to": first.Name})
	if err != nil {
		return Moved{}, err
	}
	t.PassedCommit, t.Stage = "", first.Name
	if t, err = moveTx(ctx, tx, t); err != nil {
		return Moved{}, err
	}
	return Moved{Task: t}, s.EnqueueTx(ctx, tx, t, first)
}

// LeaveCleanUp ends the clean-up of a task that is queued for a data root whose host was given up, and what an ended task has
// running there; false when it isn't queued there any more. What the task has on that host's disk is cleaned up when the host is
// back: its own sweep finds it.
func (s *Store) LeaveCleanUp(ctx context.Context, jobID int64, root uuid.UUID, leaving Leaving) (bool, error) {
	left := false
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		job, lost, err := queue.LoseTx(ctx, tx, jobID, root)
		if err != nil || !lost || job.TaskID == nil {
			left = lost
			return err
		}
		t, err := lockTx(ctx, tx, *job.TaskID)
		if err != nil {
			return err
		}
		if t.State.Ended() {
			if err := leaving.GiveUpTx(ctx, tx, t.ID); err != nil {
				return err
			}
		}
		left = true
		return appendEventTx(ctx, tx, t.ID, System, EventRetireFailed, "its data root gave no sign of life for too long: it is cleaned up there when that is back",
			facts{"code": queue.CodeHostDead, "job_id": jobID, "root_id": root.String()})
	})
	if err != nil {
		return false, fmt.Errorf("take clean-up %d from its data root: %w", jobID, err)
	}
	return left, nil
}
