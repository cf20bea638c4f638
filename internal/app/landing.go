package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/app/catalog"
	"orch/internal/gate"
	"orch/internal/merge"
	"orch/internal/queue"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// landingTasks lets the merge gate move tasks.
type landingTasks struct {
	store *task.Store
	log   *slog.Logger
}

func at(t merge.Task) task.At { return task.At{TaskID: t.ID, Stage: t.Stage, Round: t.Round} }

// Load implements merge.Tasks.
func (a landingTasks) Load(ctx context.Context, id int64) (merge.Task, error) {
	t, err := a.store.ByID(ctx, id)
	if errors.Is(err, task.ErrNotFound) {
		return merge.Task{}, merge.ErrSuperseded
	}
	if err != nil {
		return merge.Task{}, err
	}
	return merge.Task{
		ID: t.ID, Key: t.Key, Repo: t.Repo, Location: t.Location, Title: t.Title, Branch: t.Branch, BaseBranch: t.BaseBranch,
		Stage: t.Stage, Round: t.Round, Priority: t.Priority, Root: rootOf(t), Head: t.PassedCommit, Land: t.Land, Open: !t.State.Ended(),
	}, nil
}

func rootOf(t task.Task) uuid.UUID {
	if t.RootID == nil {
		return uuid.Nil
	}
	return *t.RootID
}

// IntentTx implements merge.Tasks.
func (a landingTasks) IntentTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task) error {
	_, held, err := a.store.HoldTx(ctx, tx, at(t))
	if err == nil && !held {
		err = merge.ErrSuperseded
	}
	return err
}

// LandedTx implements merge.Tasks. A task that was taken elsewhere while it landed stays there; that its work is on the target
// all the same is told.
func (a landingTasks) LandedTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, landed merge.Landed) (bool, error) {
	ending := task.Landing{Commit: landed.Commit}
	switch {
	case landed.Nothing:
		ending.Code, ending.Note = task.CodeNothingToLand, "its commits change nothing, so there was nothing to land on "+landed.Target
	case landed.Upstream:
		ending.Code, ending.Note = task.CodeAlreadyUpstream, "the change was on "+landed.Target+" already"
	}
	m, err := a.store.LandedTx(ctx, tx, at(t), ending)
	if err != nil || !m.Superseded || m.Task.LandedCommit == landed.Commit {
		return false, err
	}
	now := m.Task
	a.log.WarnContext(ctx, "work landed of a task that has moved on", slog.String("task", now.Key), slog.String("repo", now.Repo),
		slog.String("target", landed.Target), slog.String("commit", landed.Commit), slog.String("state", string(now.State)),
		slog.String("stage", now.Stage), slog.Int("round", now.Round))
	reason := fmt.Sprintf("its work of stage %s, round %d, is on %s, but the task had moved on by then", t.Stage, t.Round, landed.Target)
	return false, a.store.NoteTx(ctx, tx, now.ID, task.EventLanded, reason, map[string]any{"commit": landed.Commit, "round": t.Round})
}

// ReturnTx implements merge.Tasks: the merge job ends first, since the next stage's job shares its key.
func (a landingTasks) ReturnTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t merge.Task, r merge.Return) error {
	if err := l.CompleteTx(ctx, tx); err != nil {
		return err
	}
	back := task.Return{Gate: flow.BranchMergeable, Reason: r.Reason, Feedback: r.Feedback, Output: r.Feedback}
	if own := l.Worker().RootID; t.Root != own { // the landing was gone on with here, so that the work is here now
		back.Root = own
	}
	_, err := a.store.ReturnTx(ctx, tx, at(t), back)
	return err
}

// BlockTx implements merge.Tasks.
func (a landingTasks) BlockTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, code, reason string) error {
	_, err := a.store.BlockTx(ctx, tx, at(t), task.Block{Code: code, Reason: reason})
	return err
}

// ReadyTx implements merge.Tasks.
func (a landingTasks) ReadyTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t merge.Task, r merge.Ready) error {
	reason := fmt.Sprintf("the branch %s is tested and ready for a person to land it on %s", r.Branch, r.Target)
	_, err := a.store.WaitTx(ctx, tx, at(t), task.Wait{For: task.PersonLands, Reason: reason})
	return err
}

// landingCatalog tells the merge gate how to land a task.
type landingCatalog struct {
	catalog *catalog.Catalog
	store   *task.Store
}

// Definition implements merge.Catalog.
func (c landingCatalog) Definition(ctx context.Context, t merge.Task) (merge.Definition, error) {
	full, err := c.store.ByID(ctx, t.ID)
	if err != nil {
		return merge.Definition{}, err
	}
	plan, err := c.catalog.Plan(ctx, full)
	if err != nil {
		return merge.Definition{}, err
	}
	definition := merge.Definition{
		Repo: plan.Repo, Target: full.BaseBranch, Method: plan.Method, Batch: plan.Batch, Land: plan.Land && full.Land, Home: plan.Home,
	}
	if plan.Test != nil {
		definition.Test = plan.Test.Hash()
	}
	return definition, nil
}

// landingTester has the merge gate's commit tested by the repository's test command, as a gate.
type landingTester struct {
	catalog *catalog.Catalog
	store   *task.Store
	gates   *gate.Registry
}

// Test implements merge.Tester. A repository that said it has no test is green as it is.
func (g landingTester) Test(ctx context.Context, l *queue.Lease, r merge.TestRequest) (merge.TestResult, error) {
	t, err := g.store.ByID(ctx, r.TaskID)
	if err != nil {
		return merge.TestResult{}, err
	}
	plan, err := g.catalog.Plan(ctx, t)
	if err != nil {
		return merge.TestResult{}, err
	}
	if plan.Test == nil {
		return merge.TestResult{Green: true}, nil
	}
	result, err := g.gates.Check(ctx, l, *plan.Test, gate.Subject{
		TaskID: r.TaskID, TaskKey: r.TaskKey, Stage: r.Stage, Round: r.Round,
		Commit: r.Commit, Tree: r.Tree, BaseCommit: r.BaseCommit,
	})
	if err != nil {
		return merge.TestResult{}, err
	}
	return merge.TestResult{
		Green: result.Outcome == gate.Pass, Reason: result.Reason, OutputTail: result.OutputTail,
		EvidenceID: result.EvidenceID, Reused: result.Reused,
	}, nil
}
