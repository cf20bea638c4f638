package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue/tally"
	"orch/internal/task/flow"
)

// Moved is what a transition did. Superseded: the task wasn't at the given place any more and nothing was written.
type Moved struct {
	Task       Task
	Superseded bool
}

// Advance says what passed the gates of a stage.
type Advance struct {
	Actor  string // empty = System
	Commit string // that the gates judged; only this one may land
}

// Return says why a task goes back.
type Return struct {
	Actor    string // empty = System
	Gate     string // whose red answer it is
	Reason   string
	Feedback string // for the next prompt
	Output   string // what people are shown of it, where no gate's event has it
	To       string // stage; empty = what the table says
	// Root is the data root that goes on with it, because it has the work; zero = the task's own.
	Root uuid.UUID
}

// Block says why a task stops and needs a person.
type Block struct {
	Actor    string // empty = System
	Code     string
	Reason   string // names what to do
	Feedback string // kept with the task when not empty
}

// Wait says what a task waits for while no job moves it.
type Wait struct {
	Actor  string // empty = System
	For    string
	Reason string
}

// Landing says what landed.
type Landing struct {
	Actor  string // empty = System
	Commit string // on the target branch; "" when there was nothing to land
	Code   string // why orch didn't put it there; "" = it did
	Note   string // the same in words
}

func actorOr(actor string) string {
	if actor == "" {
		return System
	}
	return actor
}

// AdvanceTx moves the task to the next stage of its pipeline and enqueues that stage's job. End the current job
// (CompleteTx) before, in the same transaction: all jobs of a task share one dedupe key.
func (s *Store) AdvanceTx(ctx context.Context, tx pgx.Tx, at At, a Advance) (Moved, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active)
	if err != nil || !current {
		return Moved{Task: t, Superseded: true}, wrap("advance task", err)
	}
	pipeline, row, moved, err := s.rowTx(ctx, tx, t)
	if err != nil || moved != nil {
		return orZero(moved), wrap("advance task", err)
	}
	from := t.Stage
	t.Feedback, t.PassedCommit = "", a.Commit
	data := facts{"from": from, "to": row.Next, "round": t.Round}
	if row.Next == "" {
		t.State = Done
		return s.endTx(ctx, tx, t, actorOr(a.Actor), EventDone, "", data)
	}
	t.Stage = row.Next
	next, _ := pipeline.Stage(row.Next)
	if t, err = moveTx(ctx, tx, t); err != nil {
		return Moved{}, wrap("advance task", err)
	}
	if err := appendEventTx(ctx, tx, t.ID, actorOr(a.Actor), EventAdvanced, "", data); err != nil {
		return Moved{}, wrap("advance task", err)
	}
	err = s.EnqueueTx(ctx, tx, t, next)
	return Moved{Task: t}, wrap("advance task", err)
}

// ReturnTx sends the task back to the stage that can do something about a red gate, as the next round, and enqueues
// that stage's job. With no round left it blocks the task instead. End the current job before.
func (s *Store) ReturnTx(ctx context.Context, tx pgx.Tx, at At, r Return) (Moved, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active)
	if err != nil || !current {
		return Moved{Task: t, Superseded: true}, wrap("return task", err)
	}
	pipeline, row, moved, err := s.rowTx(ctx, tx, t)
	if err != nil || moved != nil {
		return orZero(moved), wrap("return task", err)
	}
	t.Feedback = Clean(r.Feedback, MaxText)
	if r.Root != uuid.Nil && r.Root != t.root() {
		if _, err := tx.Exec(ctx, `update tasks set root_id = $2 where id = $1`, t.ID, r.Root); err != nil {
			return Moved{}, wrap("return task", err)
		}
		t.RootID = &r.Root
	}
	if t.Round >= pipeline.Rounds() {
		b := Block{Actor: r.Actor, Code: CodeRoundsExhausted, Reason: roundsReason(t, r)}
		m, err := s.blockTx(ctx, tx, t, b)
		return m, wrap("return task", err)
	}
	to := row.Back
	if r.To != "" {
		to = r.To
	}
	m, err := s.backTx(ctx, tx, t, pipeline, to, r)
	return m, wrap("return task", err)
}

func roundsReason(t Task, r Return) string {
	what := r.Reason
	if r.Gate != "" {
		what = r.Gate + ": " + what
	}
	return fmt.Sprintf("all rounds are used up; the last one ended with %s. Look at the output that is kept with the task, "+
		"then grant one more round with `orch task retry %s`, or cancel it", what, t.Key)
}

func (s *Store) backTx(ctx context.Context, tx pgx.Tx, t Task, p flow.Pipeline, to string, r Return) (Moved, error) {
	stage, known := p.Stage(to)
	if !known {
		return s.unknownStageTx(ctx, tx, t, to)
	}
	from := t.Stage
	t.Stage, t.State, t.Round = to, Active, t.Round+1
	t.WaitingFor, t.ReasonCode, t.Reason = "", "", ""
	t, err := moveTx(ctx, tx, t)
	if err != nil {
		return Moved{}, err
	}
	data := facts{"from": from, "to": to, "round": t.Round, "gate": r.Gate}
	if r.Output != "" {
		data["output"] = Clean(r.Output, MaxEventOutput)
	}
	err = appendEventTx(ctx, tx, t.ID, actorOr(r.Actor), EventReturned, r.Reason, data)
	if err != nil {
		return Moved{}, err
	}
	err = s.EnqueueTx(ctx, tx, t, stage)
	return Moved{Task: t}, err
}

// WaitTx parks an active task until something outside happens; no job moves it meanwhile. End the current job before.
func (s *Store) WaitTx(ctx context.Context, tx pgx.Tx, at At, w Wait) (Moved, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active)
	if err != nil || !current {
		return Moved{Task: t, Superseded: true}, wrap("wait", err)
	}
	t.State, t.WaitingFor = Waiting, w.For
	if t, err = moveTx(ctx, tx, t); err != nil {
		return Moved{}, wrap("wait", err)
	}
	err = appendEventTx(ctx, tx, t.ID, actorOr(w.Actor), EventWaiting, w.Reason, facts{"waiting_for": w.For})
	if err == nil && w.For == PersonLands {
		err = retireTx(ctx, tx, t) // no agent works on it any more
	}
	return Moved{Task: t}, wrap("wait", err)
}

// BlockTx stops the task until a person looks at it. End the current job before.
func (s *Store) BlockTx(ctx context.Context, tx pgx.Tx, at At, b Block) (Moved, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active, Waiting)
	if err != nil || !current {
		return Moved{Task: t, Superseded: true}, wrap("block task", err)
	}
	m, err := s.blockTx(ctx, tx, t, b)
	return m, wrap("block task", err)
}

func (s *Store) blockTx(ctx context.Context, tx pgx.Tx, t Task, b Block) (Moved, error) {
	t.State, t.WaitingFor, t.ReasonCode, t.Reason = Blocked, "", b.Code, Clean(b.Reason, maxReason)
	if b.Feedback != "" {
		t.Feedback = Clean(b.Feedback, MaxText)
	}
	data := facts{"code": b.Code, "stage": t.Stage, "round": t.Round}
	end := s.endTx
	if b.Code == CodeNeedsInput {
		end = s.restTx
	}
	m, err := end(ctx, tx, t, actorOr(b.Actor), EventBlocked, b.Reason, data)
	if err != nil || s.cfg.OnBlockedTx == nil {
		return m, err
	}
	return m, s.cfg.OnBlockedTx(ctx, tx, m.Task)
}

// LandedTx ends the task as done. It holds in every open state: what has landed has landed, whoever did it. What had nothing to
// land is done, too, but isn't said to have landed.
func (s *Store) LandedTx(ctx context.Context, tx pgx.Tx, at At, l Landing) (Moved, error) {
	t, current, err := lockAtTx(ctx, tx, at, Active, Waiting, Blocked)
	if err != nil || !current {
		return Moved{Task: t, Superseded: true}, wrap("note landing", err)
	}
	t.State, t.WaitingFor, t.ReasonCode, t.Reason, t.LandedCommit = Done, "", l.Code, Clean(l.Note, maxReason), l.Commit
	kind, data := EventLanded, facts{"commit": l.Commit, "round": t.Round}
	if l.Commit == "" {
		kind, data = EventDone, facts{"code": l.Code, "round": t.Round}
	}
	m, err := s.endTx(ctx, tx, t, actorOr(l.Actor), kind, l.Note, data)
	if err != nil || l.Commit == "" {
		return m, wrap("note landing", err)
	}
	return m, wrap("note landing", tally.AddCounterTx(ctx, tx, CounterLanded, 1))
}

// endTx writes an end of the task, which always has its clean-up enqueued with it.
func (s *Store) endTx(ctx context.Context, tx pgx.Tx, t Task, actor string, kind EventKind, reason string, data facts) (Moved, error) {
	m, err := s.restTx(ctx, tx, t, actor, kind, reason, data)
	if err != nil {
		return Moved{}, err
	}
	return m, retireTx(ctx, tx, m.Task)
}

// restTx is endTx for a task whose workspace is needed as it is: the agent that asks goes on in it.
func (*Store) restTx(ctx context.Context, tx pgx.Tx, t Task, actor string, kind EventKind, reason string, data facts) (Moved, error) {
	t, err := moveTx(ctx, tx, t)
	if err != nil {
		return Moved{}, err
	}
	return Moved{Task: t}, appendEventTx(ctx, tx, t.ID, actor, kind, reason, data)
}

// rowTx finds the task's row of its stage table. The pipeline may have been edited since the task entered the stage: a
// stage that is gone blocks the task (moved isn't nil then), since nobody knows what follows it.
func (s *Store) rowTx(ctx context.Context, tx pgx.Tx, t Task) (flow.Pipeline, flow.Transition, *Moved, error) {
	pipeline, err := s.Pipeline(ctx, t)
	if err == nil {
		if row, known := pipeline.Transitions().Of(t.Stage); known {
			return pipeline, row, nil, nil
		}
	} else if !errors.Is(err, ErrUnknownPipeline) {
		return flow.Pipeline{}, flow.Transition{}, nil, err
	}
	m, err := s.unknownStageTx(ctx, tx, t, t.Stage)
	return flow.Pipeline{}, flow.Transition{}, &m, err
}

func (s *Store) unknownStageTx(ctx context.Context, tx pgx.Tx, t Task, stage string) (Moved, error) {
	return s.blockTx(ctx, tx, t, UnknownStage(t, stage))
}

// UnknownStage is why a task stops whose pipeline has lost a stage by an edit.
func UnknownStage(t Task, stage string) Block {
	return Block{Code: CodeStageUnknown, Reason: fmt.Sprintf(
		"pipeline %q has no stage %q any more: put it back into the configuration, then `orch task retry %s`, or cancel the task",
		t.Pipeline, stage, t.Key)}
}

func orZero(m *Moved) Moved {
	if m == nil {
		return Moved{}
	}
	return *m
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
