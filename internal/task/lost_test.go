package task

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task/flow"
)

// pinned ties a task and its job to the bench's root, with a run that may be alive.
func (b *bench) pinned(t Task) *queue.Job {
	b.t.Helper()
	b.exec(`update tasks set root_id = $2 where id = $1`, t.ID, b.worker.RootID)
	b.exec(`update jobs set pinned_root = $2, run_id = gen_random_uuid() where task_id = $1 and state = 'queued'`, t.ID, b.worker.RootID)
	return b.job(t.ID)
}

func (b *bench) leave(t Task, root uuid.UUID) (gaveUp int, err error) {
	_, err = b.store.LeaveRoot(b.ctx, t.ID, root, Leaving{
		OfferedTx: func(context.Context, pgx.Tx, int64) (bool, error) { return b.offered, nil },
		GiveUpTx:  func(context.Context, pgx.Tx, int64) error { gaveUp++; return nil },
	})
	return gaveUp, err
}

func TestTaskOfADeadRootBeginsAnewAnywhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, six())
	task := b.create(func(a *Add) { a.Pipeline = "six" })
	b.move(b.mustClaim(KindStage), b.advance(task.At()))
	task = b.get(task.ID)
	old := b.pinned(task)
	gaveUp, err := b.leave(task, b.worker.RootID)
	if err != nil || gaveUp != 1 {
		t.Fatal(gaveUp, err)
	}
	got, job := b.get(task.ID), b.job(task.ID)
	if got.Stage != flow.Analysis || got.State != Active || got.RootID != nil || got.PassedCommit != "" {
		t.Errorf("task %+v", got)
	}
	if job == nil || job.ID == old.ID || job.PinnedRoot != nil || job.RunID != nil {
		t.Errorf("job %+v", job)
	}
	if before, err := b.queue.Get(t.Context(), old.ID); err != nil || before.State != queue.StateCancelled || *before.ErrorCode != queue.CodeHostDead {
		t.Errorf("its job before: %+v, %v", before, err)
	}
	b.lastEvent(task.ID, EventHostLost)
}

// What is offered in its repository can be landed from anywhere, intended or not.
func TestLandingWhoseWorkIsOfferedGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	for name, intended := range map[string]bool{"before the intent": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			task := b.create()
			b.move(b.mustClaim(KindStage), b.advance(task.At()))
			b.exec(`update tasks set passed_commit = 'abc'`)
			before := b.get(task.ID)
			old := b.pinned(before)
			b.landing, b.offered = intended, true
			if gaveUp, err := b.leave(task, b.worker.RootID); err != nil || gaveUp != 1 {
				t.Fatal(gaveUp, err)
			}
			got, job := b.get(task.ID), b.job(task.ID)
			if got.At() != before.At() || got.State != Active || got.RootID != nil || got.PassedCommit != "abc" {
				t.Errorf("was %+v, is %+v", before, got)
			}
			if job == nil || job.ID == old.ID || job.Kind != KindMerge || job.Lane != LaneMerge || job.PinnedRoot != nil || job.RunID != nil {
				t.Errorf("job %+v", job)
			}
			if stopped := b.stopped; stopped > 0 {
				t.Errorf("the landing was stopped %d times", stopped)
			}
			b.lastEvent(task.ID, EventHostLost)
		})
	}
}

// A job that any root may claim stays as it is; the task alone is untied.
func TestLandingThatAnyRootMayClaimKeepsItsJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	b.move(b.mustClaim(KindStage), b.advance(task.At()))
	b.exec(`update tasks set root_id = $1`, b.worker.RootID)
	before := b.job(task.ID)
	b.offered = true
	for n, want := range []error{nil, ErrLeft} {
		if _, err := b.leave(task, b.worker.RootID); !errors.Is(err, want) {
			t.Errorf("time %d: %v", n, err)
		}
	}
	if got, job := b.get(task.ID), b.job(task.ID); got.RootID != nil || got.Stage != flow.Deploy || job == nil || job.ID != before.ID {
		t.Errorf("task %+v, job %+v", got, job)
	}
}

func TestOnlyALandingGoesOnWithWhatIsOffered(t *testing.T) {
	t.Parallel()
	b := newBench(t, six())
	task := b.create(func(a *Add) { a.Pipeline = "six" })
	b.move(b.mustClaim(KindStage), b.advance(task.At()))
	b.pinned(b.get(task.ID))
	b.offered = true // of a landing that was returned to it
	if _, err := b.leave(task, b.worker.RootID); err != nil {
		t.Fatal(err)
	}
	if got := b.get(task.ID); got.Stage != flow.Analysis {
		t.Errorf("task %+v", got)
	}
}

func TestTaskIsLeftWhereSomebodyHasIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(b *bench, task Task)
		root   func(b *bench) uuid.UUID
		want   error
	}{
		"its job runs": {change: func(b *bench, _ Task) { b.mustClaim(KindStage) }, want: ErrLeft},
		"it is another root's": {
			root: func(*bench) uuid.UUID { return uuid.New() }, want: ErrLeft,
		},
		"it has ended": {change: func(b *bench, task Task) {
			if _, err := b.store.Cancel(b.ctx, task.Key, "me"); err != nil {
				b.t.Fatal(err)
			}
		}, want: ErrLeft},
		"it is landing": {change: func(b *bench, _ Task) { b.landing = true }, want: ErrLandingStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			task := b.create()
			b.pinned(task)
			if c.change != nil {
				c.change(b, task)
			}
			root := b.worker.RootID
			if c.root != nil {
				root = c.root(b)
			}
			before := b.get(task.ID)
			if gaveUp, err := b.leave(task, root); !errors.Is(err, c.want) || gaveUp > 0 {
				t.Errorf("%d, %v", gaveUp, err)
			}
			if after := b.get(task.ID); after.State != before.State || after.Stage != before.Stage || *after.RootID != *before.RootID {
				t.Errorf("was %+v, is %+v", before, after)
			}
		})
	}
}

func TestTaskThatLosesOneHostAfterTheOtherStops(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	for range maxHostsLost {
		b.pinned(task)
		if _, err := b.leave(task, b.worker.RootID); err != nil {
			t.Fatal(err)
		}
	}
	b.pinned(task)
	if _, err := b.leave(task, b.worker.RootID); err != nil {
		t.Fatal(err)
	}
	if got := b.get(task.ID); got.State != Blocked || got.ReasonCode != CodeHostsLost || got.RootID != nil {
		t.Errorf("task %+v", got)
	}
	if _, err := b.store.Retry(b.ctx, task.Key, "me", ""); err != nil {
		t.Errorf("retry: %v", err)
	}
}
