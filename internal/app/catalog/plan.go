package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"orch/internal/agent/usage"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/gate"
	"orch/internal/git"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// adhocAgent is the name of the agent that a task brought along.
const adhocAgent = "agent"

// defaultAgentTimeout bounds an agent that a task brought along without saying how long it may take.
const defaultAgentTimeout = time.Hour

// Adhoc is what a task brings in place of an entry in orch.yaml; it is kept in the task's overrides.
type Adhoc struct {
	Path         string  `json:"path,omitempty"`
	Test         string  `json:"test,omitempty"`
	Agent        string  `json:"agent,omitempty"`
	AgentCommand string  `json:"agent_command,omitempty"`
	Setup        string  `json:"setup,omitempty"`
	TimeoutS     float64 `json:"timeout_s,omitempty"`
	// Env names variables of orch's own environment that the agent gets.
	Env []string `json:"env,omitempty"`
}

// Plan is how one task is to be done.
type Plan struct {
	Repo     forge.Repo
	Pipeline flow.Pipeline
	// Agents are those of the pipeline and those who take over from them. Their time limits are as they hold: zero is none.
	Agents map[string]orchyaml.Agent
	// OwnAgent is the name of the one that the task brought along: other tasks' are other programs of the same name.
	OwnAgent string
	// Limits are those of any agent; LimitsOf knows more.
	Limits usage.Limits
	Setup  string
	Test   *gate.Definition // nil: landing without a test was asked for
	Method string
	Batch  int // how many may be tested and landed together
	Land   bool
	Home   bool // only the task's own data root knows the repository
}

// Plan says how t is to be done.
func (c *Catalog) Plan(ctx context.Context, t task.Task) (Plan, error) {
	var own Adhoc
	if len(t.Overrides) > 0 {
		if err := json.Unmarshal(t.Overrides, &own); err != nil {
			return Plan{}, fmt.Errorf("read what task %s brought along: %w", t.Key, err)
		}
	}
	plan := c.filePlan
	if own.Path != "" {
		plan = func(ctx context.Context, t task.Task) (Plan, error) { return c.adhocPlan(ctx, t, own) }
	}
	p, err := plan(ctx, t)
	if err == nil && t.MaxCostUSD != nil {
		p.Limits.Task.CostUSD, p.Limits.OwnCost = t.MaxCostUSD, true
	}
	return p, err
}

// adhocPlan is the pipeline of a task that needs no orch.yaml: an agent, its test, the landing.
func (c *Catalog) adhocPlan(ctx context.Context, t task.Task, own Adhoc) (Plan, error) {
	file := c.Current(ctx)
	p := Plan{
		Limits: limitsOf(file.Budgets),
		Repo:   forge.Repo{Name: t.Repo, Location: own.Path, Base: t.BaseBranch},
		Setup:  own.Setup, Method: string(git.FastForward), Batch: 1, Land: c.gated.Repo(t.Repo), Home: true, Agents: map[string]orchyaml.Agent{},
	}
	name := adhocAgent
	if own.Agent != "" {
		name = own.Agent
		if _, known := file.Agent(own.Agent); !known {
			return Plan{}, fmt.Errorf("%w: no agent is called %q in %s", task.ErrUnknownPipeline, own.Agent, c.data.File)
		}
		p.enlist(file, name)
	} else {
		p.OwnAgent = name
		p.Agents[name] = orchyaml.Agent{
			Name: name, Preset: orchyaml.PresetCommand, Command: orchyaml.Command{Shell: own.AgentCommand}, Timeout: adhocTimeout(own),
			Env: own.Env, MaxCostUSD: file.Budgets.Run.MaxCostUSD, MaxTokens: file.Budgets.Run.MaxTokens,
		}
	}
	test := withSetup(own.Setup, own.Test)
	p.Test = testGate(test)
	p.Pipeline = flow.Short(orchyaml.DefaultPipeline, name, test)
	return p, nil
}

func adhocTimeout(own Adhoc) time.Duration {
	if own.TimeoutS > 0 {
		return time.Duration(own.TimeoutS * float64(time.Second))
	}
	return defaultAgentTimeout
}

// filePlan is what orch.yaml says for the task's repository.
func (c *Catalog) filePlan(ctx context.Context, t task.Task) (Plan, error) {
	file := c.Current(ctx)
	repo, known := file.Repo(t.Repo)
	if !known {
		return Plan{}, fmt.Errorf("%w: no repository is called %q in %s", task.ErrUnknownPipeline, t.Repo, c.data.File)
	}
	resolved, err := file.ResolvePipeline(repo, t.Pipeline)
	if err != nil {
		return Plan{}, fmt.Errorf("%w: %w", task.ErrUnknownPipeline, err)
	}
	p := Plan{
		Repo:  forge.Repo{Name: repo.Name, Location: repo.Path, Base: t.BaseBranch},
		Setup: repo.Setup, Method: string(git.FastForward), Batch: repo.Batch, Land: repo.Land == orchyaml.LandAuto && c.gated.Repo(repo.Name),
		Test: testGate(withSetup(repo.Setup, repo.Test)), Agents: map[string]orchyaml.Agent{},
		Limits: limitsOf(file.Budgets), Pipeline: flow.Pipeline{Name: resolved.Name},
	}
	for _, step := range resolved.Stages {
		p.Pipeline.Stages = append(p.Pipeline.Stages, stageOf(step, repo.Setup))
		p.enlist(file, step.Agent)
		if step.Method != "" {
			p.Method = step.Method
		}
	}
	return p, nil
}

func stageOf(step orchyaml.Stage, setup string) flow.Stage {
	converted := flow.Stage{
		Name: step.Name, Agent: step.Agent, Prompt: step.Prompt, OnFail: step.OnFail, Method: step.Method,
	}
	for _, g := range step.Gates {
		command := g.Command
		if command != "" {
			command = withSetup(setup, command)
		}
		converted.Gates = append(converted.Gates, flow.GateRef{Name: g.Name, Command: command, Timeout: g.Timeout})
	}
	return converted
}

// testGate is the definition that the stage's gate and the merge gate share, so that evidence of one serves the other.
func testGate(test string) *gate.Definition {
	if test == "" {
		return nil
	}
	return &gate.Definition{Name: gate.Command, Command: test}
}

// withSetup has a checkout prepared before its command runs.
func withSetup(setup, command string) string {
	if strings.TrimSpace(setup) == "" || command == "" {
		return command
	}
	return "(" + setup + ") </dev/null && (" + command + ")"
}
