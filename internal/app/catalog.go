package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/gate"
	"orch/internal/merge"
	"orch/internal/stage"
	"orch/internal/task"
)

// adhocAgent is the name of the agent that a task brought along.
const adhocAgent = "agent"

// defaultAgentTimeout bounds an agent that a task brought along without saying how long it may take.
const defaultAgentTimeout = time.Hour

// adhoc is what a task brings in place of an entry in orch.yaml; it is kept in the task's overrides.
type adhoc struct {
	Path         string  `json:"path,omitempty"`
	Test         string  `json:"test,omitempty"`
	Agent        string  `json:"agent,omitempty"`
	AgentCommand string  `json:"agent_command,omitempty"`
	Setup        string  `json:"setup,omitempty"`
	TimeoutS     float64 `json:"timeout_s,omitempty"`
	// Env names variables of orch's own environment that the agent gets.
	Env []string `json:"env,omitempty"`
}

// plan is how one task is to be done.
type plan struct {
	repo     forge.Repo
	pipeline task.Pipeline
	agents   map[string]orchyaml.Agent
	setup    string
	test     *gate.Definition // nil: landing without a test was asked for
	method   string
	land     bool
}

// catalog knows how each task is to be done: by orch.yaml as it is now, or by what the task brought along. An orch.yaml
// that was edited is read again; a bad edit leaves the last good one in force.
type catalog struct {
	data  config.Data
	gated config.Merge // a repository that it leaves out is never landed
	log   *slog.Logger

	mu     sync.Mutex
	file   *orchyaml.File
	stamp  stamp
	status configStatus
}

// stamp tells whether a file may have changed.
type stamp struct {
	modified time.Time
	size     int64
}

// configStatus is what /queue says about orch.yaml.
type configStatus struct {
	Status   string // ok, none or error
	LoadedAt time.Time
	Err      error
}

// newCatalog reads orch.yaml. A file that can't be used stops the start.
func newCatalog(data config.Data, gated config.Merge, log *slog.Logger) (*catalog, error) {
	c := &catalog{data: data, gated: gated, log: log}
	file, err := loadFile(data)
	if err != nil {
		return nil, err
	}
	c.stamp = c.look()
	c.take(file)
	return c, nil
}

// loadFile reads orch.yaml. Without one, and none asked for by ORCH_CONFIG, it answers an empty File.
func loadFile(data config.Data) (*orchyaml.File, error) {
	file, err := orchyaml.LoadFile(data.File, stage.CheckPrompt)
	if errors.Is(err, fs.ErrNotExist) && !data.FileGiven {
		return &orchyaml.File{Path: data.File}, nil
	}
	return file, err
}

func (c *catalog) look() stamp {
	info, err := os.Stat(c.data.File)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

func (c *catalog) take(file *orchyaml.File) {
	c.file = file
	c.status = configStatus{Status: "ok", LoadedAt: time.Now()}
	if c.stamp == (stamp{}) {
		c.status.Status = "none"
	}
}

// current is orch.yaml as it is in force.
func (c *catalog) current(ctx context.Context) *orchyaml.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.look()
	if now == c.stamp {
		return c.file
	}
	c.stamp = now
	file, err := loadFile(c.data)
	if err == nil && now == (stamp{}) {
		err = fmt.Errorf("%s is gone", c.data.File) // an editor may be about to put the new one there
	}
	if err != nil {
		c.status.Status, c.status.Err = "error", err
		c.log.ErrorContext(ctx, "orch.yaml can't be used: the last good one stays in force",
			slog.String("file", c.data.File), slog.Any("error", err))
		return c.file
	}
	c.take(file)
	c.log.InfoContext(ctx, "orch.yaml read again", slog.String("file", c.data.File), slog.Int("repositories", len(file.Repos)))
	return c.file
}

// state says how orch.yaml is.
func (c *catalog) state(ctx context.Context) configStatus {
	c.current(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Pipeline implements task.Catalog.
func (c *catalog) Pipeline(ctx context.Context, t task.Task) (task.Pipeline, error) {
	p, err := c.plan(ctx, t)
	return p.pipeline, err
}

// plan says how t is to be done.
func (c *catalog) plan(ctx context.Context, t task.Task) (plan, error) {
	var own adhoc
	if len(t.Overrides) > 0 {
		if err := json.Unmarshal(t.Overrides, &own); err != nil {
			return plan{}, fmt.Errorf("read what task %s brought along: %w", t.Key, err)
		}
	}
	if own.Path != "" {
		return c.adhocPlan(ctx, t, own)
	}
	return c.filePlan(ctx, t)
}

// adhocPlan is the pipeline of a task that needs no orch.yaml: an agent, its test, the landing.
func (c *catalog) adhocPlan(ctx context.Context, t task.Task, own adhoc) (plan, error) {
	p := plan{
		repo:  forge.Repo{Name: t.Repo, Location: own.Path, Base: t.BaseBranch},
		setup: own.Setup, method: merge.MethodFastForward, land: c.gated.Repo(t.Repo), agents: map[string]orchyaml.Agent{},
	}
	name := adhocAgent
	if own.Agent != "" {
		name = own.Agent
		agent, known := c.current(ctx).Agent(own.Agent)
		if !known {
			return plan{}, fmt.Errorf("%w: no agent is called %q in %s", task.ErrUnknownPipeline, own.Agent, c.data.File)
		}
		p.agents[name] = agent
	} else {
		p.agents[name] = orchyaml.Agent{
			Name: name, Preset: orchyaml.PresetCommand, Command: orchyaml.Command{Shell: own.AgentCommand}, Timeout: adhocTimeout(own),
			Env: own.Env,
		}
	}
	test := withSetup(own.Setup, own.Test)
	p.test = testGate(test)
	p.pipeline = task.Short(orchyaml.DefaultPipeline, name, test)
	return p, nil
}

func adhocTimeout(own adhoc) time.Duration {
	if own.TimeoutS > 0 {
		return time.Duration(own.TimeoutS * float64(time.Second))
	}
	return defaultAgentTimeout
}

// filePlan is what orch.yaml says for the task's repository.
func (c *catalog) filePlan(ctx context.Context, t task.Task) (plan, error) {
	file := c.current(ctx)
	repo, known := file.Repo(t.Repo)
	if !known {
		return plan{}, fmt.Errorf("%w: no repository is called %q in %s", task.ErrUnknownPipeline, t.Repo, c.data.File)
	}
	resolved, err := file.ResolvePipeline(repo, t.Pipeline)
	if err != nil {
		return plan{}, fmt.Errorf("%w: %w", task.ErrUnknownPipeline, err)
	}
	p := plan{
		repo:  forge.Repo{Name: repo.Name, Location: repo.Path, Base: t.BaseBranch},
		setup: repo.Setup, method: merge.MethodFastForward, land: repo.Land == orchyaml.LandAuto && c.gated.Repo(repo.Name),
		test: testGate(withSetup(repo.Setup, repo.Test)), agents: map[string]orchyaml.Agent{},
		pipeline: task.Pipeline{Name: resolved.Name},
	}
	for _, step := range resolved.Stages {
		p.pipeline.Stages = append(p.pipeline.Stages, stageOf(step, repo.Setup))
		if agent, known := file.Agent(step.Agent); known {
			p.agents[step.Agent] = agent
		}
		if step.Method != "" {
			p.method = step.Method
		}
	}
	return p, nil
}

func stageOf(step orchyaml.Stage, setup string) task.Stage {
	converted := task.Stage{
		Name: step.Name, Agent: step.Agent, Prompt: step.Prompt, OnFail: step.OnFail, Method: step.Method,
	}
	for _, g := range step.Gates {
		command := g.Command
		if command != "" {
			command = withSetup(setup, command)
		}
		converted.Gates = append(converted.Gates, task.GateRef{Name: g.Name, Command: command, Timeout: g.Timeout})
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
