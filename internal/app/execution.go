package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"orch/internal/agent"
	"orch/internal/app/catalog"
	"orch/internal/config/orchyaml"
	"orch/internal/gate"
	"orch/internal/git"
	"orch/internal/queue"
	"orch/internal/stage"
	"orch/internal/task"
)

// agents runs the agents of stages under shims.
type agents struct {
	runs    *agent.Runs
	places  *places
	catalog *catalog.Catalog
}

// Run implements stage.Agents.
func (a agents) Run(ctx context.Context, l *queue.Lease, r stage.AgentRun) (stage.AgentResult, error) {
	result, err := a.runs.Execute(ctx, l, agent.Request{
		Purpose: agent.PurposeAgent, Key: r.Key, TaskID: r.Task.ID, Stage: r.Stage, Round: r.Round,
		Start: func(ctx context.Context) (agent.Program, error) { return a.start(ctx, l, r) },
	})
	if err != nil {
		return stage.AgentResult{}, err
	}
	return stage.AgentResult{
		RunID: result.RunID, Outcome: string(result.Outcome), Summary: result.Summary, Question: result.Question,
		LogTail: result.LogTail, ExitCode: result.Exit.Code, CostUSD: result.CostUSD, Resumed: result.Resumed,
	}, nil
}

// start makes ready for a new run of the stage's agent.
func (a agents) start(ctx context.Context, l *queue.Lease, r stage.AgentRun) (agent.Program, error) {
	plan, err := a.catalog.Plan(ctx, r.Task)
	if err != nil {
		return agent.Program{}, err
	}
	entry, known := plan.Agents[r.Agent]
	if !known {
		return agent.Program{}, queue.Terminal("agent_unknown", fmt.Errorf(
			"no agent is called %q: define it in orch.yaml, then `orch task retry %s`", r.Agent, r.Task.Key))
	}
	argv, err := agent.Command(agent.CommandTemplate{Argv: entry.Command.Argv, Shell: entry.Command.Shell})
	if err != nil {
		return agent.Program{}, queue.Terminal("agent_command", err)
	}
	return agent.Program{
		Agent: r.Agent, Argv: afterSetup(plan.Setup, argv), Dir: r.Dir, Env: agentEnvironment(entry, r), Inherit: entry.Env,
		Stdin: r.Prompt, Timeout: entry.Timeout, StallTimeout: entry.StallTimeout,
	}, a.places.alone(ctx, l, r.Task.ID, func() error { return r.Prepare(ctx) })
}

// agentEnvironment is what an agent is told beside its prompt. Nothing in it is secret but what its entry sets.
func agentEnvironment(entry orchyaml.Agent, r stage.AgentRun) []string {
	env := []string{
		"ORCH_TASK=" + r.Task.Key, "ORCH_STAGE=" + r.Stage, "ORCH_ROUND=" + strconv.Itoa(r.Round),
		"ORCH_BRANCH=" + r.Task.Branch, "ORCH_BASE=" + r.Task.BaseBranch,
	}
	for _, name := range slices.Sorted(maps.Keys(entry.Set)) {
		env = append(env, name+"="+entry.Set[name])
	}
	return env
}

// afterSetup runs the repository's setup command in the workspace before the agent, whose standard input it must not eat.
func afterSetup(setup string, argv []string) []string {
	if setup == "" {
		return argv
	}
	const script = `setup=$1; shift
sh -c "$setup" </dev/null || { code=$?; echo "orch: the setup command failed with exit code $code" >&2; exit 1; }
exec "$@"`
	return append([]string{"sh", "-c", script, "sh", setup}, argv...)
}

// commands runs gate commands, each in a throw-away checkout of exactly one commit.
type commands struct {
	runs   *agent.Runs
	places *places
	store  *task.Store
}

// RunCommand implements gate.Runner.
func (c commands) RunCommand(ctx context.Context, l *queue.Lease, r gate.CommandRun) (gate.CommandResult, error) {
	t, err := c.store.ByID(ctx, r.TaskID)
	if err != nil {
		return gate.CommandResult{}, err
	}
	dir := c.places.checkout(t, r.Key)
	result, err := c.runs.Execute(ctx, l, agent.Request{
		Purpose: agent.Purpose(r.Purpose), Key: r.Key, TaskID: r.TaskID, Stage: r.Stage, Round: r.Round,
		Start: func(ctx context.Context) (agent.Program, error) {
			return agent.Program{
				Argv: []string{"sh", "-c", r.Command}, Dir: dir, Timeout: r.Timeout,
				Env: []string{"ORCH_TASK=" + r.TaskKey, "ORCH_STAGE=" + r.Stage, "ORCH_COMMIT=" + r.Commit},
			}, c.places.alone(ctx, l, t.ID, func() error { return c.places.makeCheckout(ctx, t, dir, r.Commit) })
		},
	})
	if err != nil {
		return gate.CommandResult{}, err
	}
	// The run is over and its output kept elsewhere; what can't be removed now goes with the task.
	_ = c.places.alone(ctx, l, t.ID, func() error { return git.RemoveAll(dir) })
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

// makeCheckout makes a checkout anew: a half-made one of a process that died is of no use.
func (p *places) makeCheckout(ctx context.Context, t task.Task, dir, commit string) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	if err := errors.Join(git.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // the data root above it is closed
		return fmt.Errorf("make room for a checkout: %w", err)
	}
	return m.Checkout(ctx, dir, commit)
}

// stageGates lets stages ask the gate registry.
type stageGates struct{ registry *gate.Registry }

// Check implements stage.Gates.
func (g stageGates) Check(ctx context.Context, l *queue.Lease, ref task.GateRef, s stage.GateSubject) (stage.GateResult, error) {
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
