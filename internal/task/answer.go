package task

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// Retry lets a blocked task go on, at the stage and round where it stopped; one that used up its rounds gets one more.
// note, when given, is told to the agent: the answer to its question, or a hint. A task that waits for a person to land
// it is looked at again: the merge gate finds that it was landed, or makes it ready anew. One that is under way but has lost its
// job gets one.
func (s *Store) Retry(ctx context.Context, key, actor, note string) (Task, error) {
	return s.goOn(ctx, "retry", key, actor, note, func(t Task, job *queue.Job) error {
		lost := t.State == Active && job == nil // which the reconciler mends, unless it is off
		if t.State != Blocked && !t.Ready() && !lost {
			return ErrNotBlocked
		}
		return nil
	})
}

// Answer lets a task go on whose agent has asked something, with the answer. A task that asks nothing, e.g. because
// somebody was first, answers ErrNotAsking.
func (s *Store) Answer(ctx context.Context, key, actor, text string) (Task, error) {
	return s.goOn(ctx, "answer", key, actor, text, func(t Task, _ *queue.Job) error {
		if t.State != Blocked || t.ReasonCode != CodeNeedsInput {
			return ErrNotAsking
		}
		return nil
	})
}

// goOn has a task without a job go on, if fits has nothing against it.
func (s *Store) goOn(ctx context.Context, doing, key, actor, note string, fits func(Task, *queue.Job) error) (Task, error) {
	t, err := s.Get(ctx, key)
	if err != nil {
		return Task{}, fmt.Errorf("%s task: %w", doing, err)
	}
	var moved Moved
	err = s.withJob(ctx, t.ID, func(tx pgx.Tx, locked Task, job *queue.Job) error {
		if err := fits(locked, job); err != nil {
			return err
		}
		if job != nil {
			return ErrBusy
		}
		moved, err = s.retryTx(ctx, tx, locked, actorOr(actor), note)
		return err
	})
	if err != nil {
		return Task{}, fmt.Errorf("%s task %s: %w", doing, key, err)
	}
	return moved.Task, nil
}

// FactAsked is the fact of an EventAnswered that says what was asked.
const FactAsked = "asked"

// maxTold bounds what the next prompt says once a person has said something, which is never cut: more than one may say at
// once, with what was there before.
const maxTold = 96 << 10

func (s *Store) retryTx(ctx context.Context, tx pgx.Tx, t Task, actor, note string) (Moved, error) {
	pipeline, err := s.Pipeline(ctx, t)
	if err != nil {
		return Moved{}, err
	}
	row, known := pipeline.Transitions().Of(t.Stage)
	if !known {
		return Moved{}, fmt.Errorf("%w: it has no stage %q", ErrUnknownPipeline, t.Stage)
	}
	kind := EventRetried
	if t.ReasonCode == CodeNeedsInput && note != "" {
		kind = EventAnswered
	}
	data := facts{"stage": t.Stage, "round": t.Round, "code": t.ReasonCode}
	if kind == EventAnswered {
		data[FactAsked] = t.Reason
	}
	err = appendEventTx(ctx, tx, t.ID, actor, kind, note, data)
	if err != nil {
		return Moved{}, err
	}
	if note != "" || t.ReasonCode == CodeNeedsInput {
		t.Feedback = Clean(joinText(t.Feedback, noteText(t, note)), maxTold)
	}
	if t.ReasonCode == CodeRoundsExhausted {
		return s.backTx(ctx, tx, t, pipeline, row.Back, Return{Actor: actor, Reason: "one more round was granted"})
	}
	t.State, t.WaitingFor, t.ReasonCode, t.Reason = Active, "", "", ""
	if t, err = moveTx(ctx, tx, t); err != nil {
		return Moved{}, err
	}
	stage, _ := pipeline.Stage(t.Stage)
	err = s.EnqueueTx(ctx, tx, t, stage)
	return Moved{Task: t}, err
}

func noteText(t Task, note string) string {
	switch {
	case t.ReasonCode == CodeNeedsInput && note == "":
		return t.Reason + "\nNobody answers that: decide for yourself."
	case t.ReasonCode == CodeNeedsInput:
		return t.Reason + "\nAnswer: " + note
	}
	return "Note from the person who looked at it: " + note
}

func joinText(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n\n" + b
}
