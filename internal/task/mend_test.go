package task

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestResumeLeavesAloneWhatHasMoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	resume := func(seen Task, within Within) (bool, error) {
		return b.store.Resume(t.Context(), Resuming{ID: seen.ID, UpdatedAt: seen.UpdatedAt, Repair: "test", Reason: "it is over", Within: within})
	}
	task := b.create()
	b.move(b.mustClaim(KindStage), b.block(task.At(), Block{Code: "stuck", Reason: "stuck", Feedback: "of the last round"}))
	seen := b.get(task.ID)
	for name, leave := range map[string]Task{
		"seen before it was moved": {ID: task.ID, UpdatedAt: seen.UpdatedAt.Add(-time.Microsecond)},
		"active":                   b.create(),
	} {
		if done, err := resume(leave, nil); done || err != nil {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
	broken := errors.New("broken")
	if done, err := resume(seen, func(context.Context, pgx.Tx) error { return broken }); done || !errors.Is(err, broken) {
		t.Errorf("what belongs to it fails: %v, %v", done, err)
	}
	if got := b.get(task.ID); got.State != Blocked || b.job(task.ID) != nil {
		t.Errorf("then the task is %s, with job %+v", got.State, b.job(task.ID))
	}
	for i, want := range []bool{true, false} {
		if done, err := resume(seen, nil); done != want || err != nil {
			t.Errorf("time %d: %v, %v", i+1, done, err)
		}
	}
	got := b.get(task.ID)
	if got.State != Active || got.ReasonCode != "" || got.At() != task.At() || got.Feedback != "of the last round" || b.job(task.ID) == nil {
		t.Errorf("resumed it is %+v", got)
	}
	if event := b.lastEvent(task.ID, EventResumed); event.Actor != System || event.Reason != "it is over" {
		t.Errorf("%+v", event)
	}
}

func TestRetryGivesAnActiveTaskTheJobThatItHasLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	if _, err := b.store.Retry(t.Context(), task.Key, "ann", ""); !errors.Is(err, ErrNotBlocked) {
		t.Errorf("with its job: %v", err)
	}
	b.exec(`delete from jobs`)
	if _, err := b.store.Retry(t.Context(), task.Key, "ann", "mind the gap"); err != nil {
		t.Fatal(err)
	}
	if got := b.get(task.ID); got.State != Active || got.At() != task.At() || b.job(task.ID) == nil || !strings.Contains(got.Feedback, "mind the gap") {
		t.Errorf("it is %+v, with job %+v", got, b.job(task.ID))
	}
	if event := b.lastEvent(task.ID, EventRetried); event.Actor != "ann" {
		t.Errorf("%+v", event)
	}
}

func TestTidyIsForEndedTasksWithoutACleanUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open, ended := b.create(), b.create()
	if _, err := b.store.Cancel(t.Context(), ended.Key, "me"); err != nil {
		t.Fatal(err)
	}
	needed := true
	tidy := func(id int64) bool {
		t.Helper()
		done, err := b.store.Tidy(t.Context(), id, func(context.Context, pgx.Tx) (bool, error) { return needed, nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if tidy(open.ID) || tidy(ended.ID) {
		t.Error("an open task, or one whose clean-up is queued, was tidied up after")
	}
	b.exec(`update jobs set state = 'cancelled', finished_at = now() where kind = 'retire'`)
	if needed = false; tidy(ended.ID) {
		t.Error("nothing needed it")
	}
	if needed = true; !tidy(ended.ID) || tidy(ended.ID) || b.retires(ended.ID) != 1 || b.kinds(ended.ID) != "created cancelled tidied" {
		t.Errorf("%d clean-ups, events %s", b.retires(ended.ID), b.kinds(ended.ID))
	}
}
