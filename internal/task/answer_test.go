package task

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// ask blocks a new task with a question of its agent.
func (b *bench) ask() Task {
	b.t.Helper()
	task := b.create()
	b.move(b.mustClaim(KindStage), b.block(task.At(), Block{Code: CodeNeedsInput, Reason: "the agent asks: left or right?"}))
	return b.get(task.ID)
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asking := b.ask()
	if asking.State != Blocked || b.retires(asking.ID) != 0 || len(b.blocked) != 1 {
		t.Fatalf("a task that asks keeps its workspace: %+v, %d retire jobs", asking, b.retires(asking.ID))
	}
	task, err := b.store.Answer(t.Context(), asking.Key, "me", "left")
	if err != nil || task.State != Active || task.At() != asking.At() || task.Feedback != "the agent asks: left or right?\nAnswer: left" || task.ReasonCode != "" {
		t.Fatalf("%+v, %v", task, err)
	}
	if job := b.job(task.ID); job == nil || job.Kind != KindStage {
		t.Errorf("%+v", job)
	}
	event := b.lastEvent(task.ID, EventAnswered)
	if event.Actor != "me" || event.Reason != "left" || !strings.Contains(string(event.Data), `"code": "needs_input"`) {
		t.Errorf("%+v: %s", event, event.Data)
	}
}

func TestAnswerIsRefusedWhenNothingWasAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	active := b.create()
	if _, err := b.store.Answer(t.Context(), active.Key, "me", "left"); !errors.Is(err, ErrNotAsking) {
		t.Error(err)
	}
	b.move(b.mustClaim(KindStage), b.block(active.At(), Block{Code: "crashed", Reason: "it crashed"}))
	if _, err := b.store.Answer(t.Context(), active.Key, "me", "left"); !errors.Is(err, ErrNotAsking) {
		t.Error(err)
	}
	if _, err := b.store.Answer(t.Context(), "none-1", "me", "left"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if b.kinds(active.ID) != "created blocked" {
		t.Error(b.kinds(active.ID))
	}
}

// Two people answer: one is heard, the other is told.
func TestAnswerCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asking := b.ask()
	errs := make([]error, 4)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { _, errs[i] = b.store.Answer(b.ctx, asking.Key, "me", "left") })
	}
	group.Wait()
	heard := 0
	for _, err := range errs {
		switch {
		case err == nil:
			heard++
		case !errors.Is(err, ErrNotAsking):
			t.Error(err)
		}
	}
	if heard != 1 || b.kinds(asking.ID) != "created blocked answered" {
		t.Errorf("%d answers were taken: %s", heard, b.kinds(asking.ID))
	}
}

// The older way to answer is the same; without a word it is a retry, and the agent is told that nobody answers.
func TestRetryOfATaskThatAsks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asking, silent := b.ask(), b.ask()
	task, err := b.store.Retry(t.Context(), asking.Key, "me", "right")
	if err != nil || !strings.HasSuffix(task.Feedback, "Answer: right") || !strings.HasSuffix(b.kinds(task.ID), "answered") {
		t.Errorf("%+v, %v", task, err)
	}
	if task, err = b.store.Retry(t.Context(), silent.Key, "me", ""); err != nil || !strings.HasSuffix(task.Feedback, "left or right?\nNobody answers that: decide for yourself.") || !strings.HasSuffix(b.kinds(task.ID), "retried") {
		t.Errorf("%+v, %v", task, err)
	}
}

func TestCancelledQuestionIsCleanedUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asking := b.ask()
	if _, err := b.store.Cancel(t.Context(), asking.Key, "me"); err != nil || b.retires(asking.ID) != 1 {
		t.Errorf("%d retire jobs, %v", b.retires(asking.ID), err)
	}
}
