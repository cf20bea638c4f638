package task

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

func TestCancel_QueuedJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	job := b.job(task.ID)
	cancelled, err := b.store.Cancel(t.Context(), task.Key, "me")
	if err != nil || cancelled.State != Cancelled || cancelled.FinishedAt == nil {
		t.Fatalf("%+v, %v", cancelled, err)
	}
	after, err := b.queue.Get(t.Context(), job.ID)
	if err != nil || after.State != queue.StateCancelled {
		t.Errorf("%s, %v", after.State, err)
	}
	if b.retires(task.ID) != 1 || b.kinds(task.ID) != "created cancelled" || b.lastEvent(task.ID, EventCancelled).Actor != "me" {
		t.Error(b.kinds(task.ID))
	}
	for range 2 {
		if _, err := b.store.Cancel(t.Context(), task.Key, "me"); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	}
	if _, err := b.store.Retry(t.Context(), task.Key, "me", ""); !errors.Is(err, ErrNotBlocked) {
		t.Error(err)
	}
	if _, err := b.store.Cancel(t.Context(), "none-1", "me"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestCancel_RunningJobIsAskedAndItsTransitionComesTooLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	l := b.mustClaim(KindStage)
	if _, err := b.store.Cancel(t.Context(), task.Key, "me"); err != nil {
		t.Fatal(err)
	}
	if job := b.job(task.ID); job == nil || job.State != queue.StateRunning || job.CancelRequestedAt == nil {
		t.Errorf("%+v", job)
	}
	if b.claim(KindRetire) != nil {
		t.Error("the clean-up runs beside the job")
	}
	if late := b.move(l, b.advance(task.At())); !late.Superseded {
		t.Error("a cancelled task was advanced")
	}
	if b.claim(KindRetire) == nil {
		t.Error("no clean-up after the job")
	}
}

func TestCancel_LosesAgainstTheLanding(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	b.landing = true
	if _, err := b.store.Cancel(t.Context(), task.Key, "me"); !errors.Is(err, ErrLandingStarted) {
		t.Error(err)
	}
	if after := b.get(task.ID); after.State != Active || b.kinds(task.ID) != "created" || b.job(task.ID).CancelRequestedAt != nil {
		t.Errorf("%+v", after)
	}
}

// Cancel locks the task while a job moves it: whoever comes first wins, and nothing is left halfway.
func TestCancel_RacesWithAdvance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 10 {
		task := b.create()
		l := b.mustClaim(KindStage)
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := b.store.Cancel(b.ctx, task.Key, "me"); err != nil {
				t.Error(err)
			}
		})
		moved := b.move(l, b.advance(task.At()))
		group.Wait()
		after := b.get(task.ID)
		if after.State != Cancelled || b.job(task.ID) != nil || b.retires(task.ID) != 1 {
			t.Fatalf("superseded %v: %+v, job %+v", moved.Superseded, after, b.job(task.ID))
		}
	}
}

func TestJobFailed_BlocksTheTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	l := b.mustClaim(KindStage)
	err := l.Tx(t.Context(), func(tx pgx.Tx) error {
		return l.FailTx(t.Context(), tx, queue.Failure{Code: "crash_loop", Message: "its worker died too often"})
	})
	if err != nil {
		t.Fatal(err)
	}
	after := b.get(task.ID)
	if after.State != Blocked || after.ReasonCode != "crash_loop" || after.Reason != "its worker died too often" || b.retires(task.ID) != 1 {
		t.Errorf("%+v", after)
	}
}

func TestJobFailed_OnlyAtItsOwnPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	old := *b.job(task.ID)
	b.move(b.mustClaim(KindStage), b.sendBack(task.At(), Return{}))
	other := old
	other.Kind = "alert"
	for _, job := range []queue.Job{old, other, {Kind: KindStage}} {
		b.inTx(func(tx pgx.Tx) (Moved, error) { return Moved{}, b.store.JobFailedTx(t.Context(), tx, job, "late", "") })
	}
	if after := b.get(task.ID); after.State != Active || after.Round != 2 {
		t.Errorf("%+v", after)
	}
	// Arguments that nobody can read: the job held the task's key, so it was for the task as it is.
	broken := *b.job(task.ID)
	broken.Args = []byte(`{"what":1}`)
	b.inTx(func(tx pgx.Tx) (Moved, error) {
		return Moved{}, b.store.JobFailedTx(t.Context(), tx, broken, queue.CodeBadArgs, "unreadable")
	})
	if after := b.get(task.ID); after.State != Blocked || after.ReasonCode != queue.CodeBadArgs {
		t.Errorf("%+v", after)
	}
	retire := queue.Job{Kind: KindRetire, TaskID: &task.ID}
	b.inTx(func(tx pgx.Tx) (Moved, error) {
		return Moved{}, b.store.JobFailedTx(t.Context(), tx, retire, "remove", "disk")
	})
	if !strings.HasSuffix(b.kinds(task.ID), "blocked retire_failed") {
		t.Error(b.kinds(task.ID))
	}
}

func TestRevive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lost, fine, ended := b.create(), b.create(), b.create()
	if _, err := b.store.Cancel(t.Context(), ended.Key, "me"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.queue.Cancel(t.Context(), b.job(lost.ID).ID); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n := b.revive(); n != want {
			t.Errorf("%d revived, want %d", n, want)
		}
	}
	if job := b.job(lost.ID); job == nil || job.Kind != KindStage {
		t.Errorf("%+v", job)
	}
	if b.kinds(lost.ID) != "created revived" || b.kinds(fine.ID) != "created" || b.job(ended.ID) != nil {
		t.Error(b.kinds(lost.ID))
	}
}
