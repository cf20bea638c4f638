package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

// Within is what belongs to a repair, done in its transaction; nil = nothing.
type Within func(ctx context.Context, tx pgx.Tx) error

func (w Within) do(ctx context.Context, tx pgx.Tx) error {
	if w == nil {
		return nil
	}
	return w(ctx, tx)
}

// Found names a task that something is to be done about.
type Found struct {
	ID   int64
	Key  string
	Repo string
}

// Jobless are active tasks that no job moves, beginning behind the task after, in the order of their ids. One statement sees
// a task and its job as they were committed together, so that a task between two jobs isn't among them.
func (s *Store) Jobless(ctx context.Context, after int64, limit int) ([]Found, error) {
	rows, err := s.pool.Query(ctx, `select t.id, t.key, t.repo from tasks t
		where t.state = 'active' and t.id > $1 and not exists (
			select from jobs j where j.dedupe_key = 'task:' || t.id and j.state in ('queued', 'running'))
		order by t.id limit $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("look for tasks without a job: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[Found])
	if err != nil {
		return nil, fmt.Errorf("look for tasks without a job: %w", err)
	}
	return found, nil
}

// ReviveOne enqueues the missing job of an active task; false when it isn't missing (any more). It repairs what no event
// will, e.g. a job that was cancelled by its id. A stage that the configuration here doesn't know gets a job all the same:
// whoever serves the repository may know it, and its handler says what is wrong otherwise.
func (s *Store) ReviveOne(ctx context.Context, id int64, within Within) (bool, error) {
	done := false
	err := s.withJob(ctx, id, func(tx pgx.Tx, t Task, job *queue.Job) error {
		done = false
		if job != nil || t.State != Active {
			return nil
		}
		stage, err := s.stageNow(ctx, t)
		if err != nil {
			return err
		}
		data := facts{"stage": t.Stage, "round": t.Round}
		if err := appendEventTx(ctx, tx, id, System, EventRevived, "the task had no job", data); err != nil {
			return err
		}
		if err := s.EnqueueTx(ctx, tx, t, stage); err != nil {
			return err
		}
		done = true
		return within.do(ctx, tx)
	})
	if busy(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("revive task %d: %w", id, err)
	}
	return done, nil
}

// stageNow is the task's stage as its pipeline has it; by its name alone when that has lost it.
func (s *Store) stageNow(ctx context.Context, t Task) (flow.Stage, error) {
	pipeline, err := s.Pipeline(ctx, t)
	if err != nil && !errors.Is(err, ErrUnknownPipeline) {
		return flow.Stage{}, err
	}
	if stage, known := pipeline.Stage(t.Stage); known {
		return stage, nil
	}
	return flow.Stage{Name: t.Stage}, nil
}

// busy says that somebody else has given the task a job meanwhile.
func busy(err error) bool { return errors.Is(err, ErrBusy) || errors.Is(err, errJobChanged) }

// Resuming says which task is to go on, and why.
type Resuming struct {
	ID        int64
	UpdatedAt time.Time // of the task as it was seen: one that was moved since is left alone
	Repair    string    // the name of the repair, kept with the event
	Reason    string    // for people
	Lands     bool      // the next job is a landing, whatever the configuration says: its intent is written
	Within    Within
}

// Resume lets a blocked task, or one that waits for a person to land it, go on at its place as orch itself, because what
// it was stopped for is over. It says nothing to the agent. False when the task was moved since it was seen, has ended, or has
// a job.
func (s *Store) Resume(ctx context.Context, r Resuming) (bool, error) {
	done := false
	err := s.withJob(ctx, r.ID, func(tx pgx.Tx, t Task, job *queue.Job) error {
		done = false
		if job != nil || !t.UpdatedAt.Equal(r.UpdatedAt) || t.State != Blocked && !t.Ready() {
			return nil
		}
		stage := flow.Stage{Name: t.Stage, Gates: []flow.GateRef{{Name: flow.BranchMergeable}}}
		if !r.Lands {
			var err error
			if stage, err = s.stageNow(ctx, t); err != nil {
				return err
			}
		}
		data := facts{"stage": t.Stage, "round": t.Round, "code": t.ReasonCode, "repair": r.Repair}
		if err := appendEventTx(ctx, tx, t.ID, System, EventResumed, r.Reason, data); err != nil {
			return err
		}
		t.State, t.WaitingFor, t.ReasonCode, t.Reason = Active, "", "", ""
		t, err := moveTx(ctx, tx, t)
		if err != nil {
			return err
		}
		if err := s.EnqueueTx(ctx, tx, t, stage); err != nil {
			return err
		}
		done = true
		return r.Within.do(ctx, tx)
	})
	if busy(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("resume task %d: %w", r.ID, err)
	}
	return done, nil
}

// Tidy has an ended task cleaned up once more, if needed says so under the lock of the task. False when it needn't be, or
// its clean-up is on its way.
func (s *Store) Tidy(ctx context.Context, id int64, needed func(ctx context.Context, tx pgx.Tx) (bool, error), within Within) (bool, error) {
	done := false
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		t, err := lockTx(ctx, tx, id)
		if err != nil || !t.State.Ended() {
			return err
		}
		if is, err := needed(ctx, tx); err != nil || !is {
			return err
		}
		if done, err = queueRetireTx(ctx, tx, t); err != nil || !done {
			return err
		}
		if err := appendEventTx(ctx, tx, id, System, EventTidied, "something of it was left: it is cleaned up once more", nil); err != nil {
			return err
		}
		return within.do(ctx, tx)
	})
	if err != nil {
		return false, fmt.Errorf("tidy up after task %d: %w", id, err)
	}
	return done, nil
}
