package app

import (
	"context"
	"time"

	"orch/internal/agent"
	"orch/internal/app/place"
	"orch/internal/gate"
	"orch/internal/git"
	"orch/internal/queue"
	"orch/internal/stage"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// commands runs gate commands, each in a throw-away checkout of exactly one commit.
type commands struct {
	runs   *agent.Runs
	places *place.Places
	store  *task.Store
}

// RunCommand implements gate.Runner.
func (c commands) RunCommand(ctx context.Context, l *queue.Lease, r gate.CommandRun) (gate.CommandResult, error) {
	t, err := c.store.ByID(ctx, r.TaskID)
	if err != nil {
		return gate.CommandResult{}, err
	}
	dir := c.places.Checkout(t, r.Key)
	result, err := c.runs.Execute(ctx, l, agent.Request{
		Purpose: agent.Purpose(r.Purpose), Key: r.Key, TaskID: r.TaskID, Stage: r.Stage, Round: r.Round,
		Start: func(ctx context.Context) (agent.Program, error) {
			return agent.Program{
				Argv: []string{"sh", "-c", r.Command}, Dir: dir, Timeout: r.Timeout, Cache: t.Repo,
				Env: []string{"ORCH_TASK=" + r.TaskKey, "ORCH_STAGE=" + r.Stage, "ORCH_COMMIT=" + r.Commit},
			}, c.places.Alone(ctx, l, t.ID, func() error { return c.places.MakeCheckout(ctx, t, dir, r.Commit) })
		},
	})
	if err != nil {
		return gate.CommandResult{}, err
	}
	// The run is over and its output kept elsewhere; what can't be removed now goes with the task.
	_ = c.places.Alone(ctx, l, t.ID, func() error { return git.RemoveAll(dir) })
	return gate.CommandResult{
		RunID: result.RunID, ExitCode: result.Exit.Code, Why: string(result.Exit.Why),
		Duration: took(result), OutputTail: result.LogTail,
	}, nil
}

func took(r agent.Result) time.Duration {
	if r.Exit.StartedAt.IsZero() || r.Exit.FinishedAt.Before(r.Exit.StartedAt) {
		return 0
	}
	return r.Exit.FinishedAt.Sub(r.Exit.StartedAt)
}

// stageGates lets stages ask the gate registry.
type stageGates struct{ registry *gate.Registry }

// Check implements stage.Gates.
func (g stageGates) Check(ctx context.Context, l *queue.Lease, ref flow.GateRef, s stage.GateSubject) (stage.GateResult, error) {
	result, err := g.registry.Check(ctx, l, gate.Definition{
		Name: ref.Name, Command: ref.Command, Paths: ref.Paths, Timeout: ref.Timeout,
	}, gate.Subject(s))
	if err != nil {
		return stage.GateResult{}, err
	}
	return stage.GateResult{
		Name: result.Name, Outcome: stage.GateOutcome(result.Outcome), Reason: result.Reason, OutputTail: result.OutputTail,
		ExitCode: result.ExitCode, Duration: result.Duration, Reused: result.Reused, RunID: result.RunID,
		EvidenceID: result.EvidenceID, Until: result.Until, WaitingFor: result.WaitingFor,
	}, nil
}
