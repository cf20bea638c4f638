package catalog

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orch/internal/agent/preset"
	"orch/internal/config"
	"orch/internal/task"
)

func TestLoadFile(t *testing.T) {
	t.Parallel()
	data := func(variable, value string) config.Data {
		cfg, _, err := config.Load(map[string]string{variable: value})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Data
	}
	root := t.TempDir()
	file, err := LoadFile(data("ORCH_ROOT", root))
	if err != nil || len(file.Repos) != 0 || file.Path != filepath.Join(root, "orch.yaml") {
		t.Errorf("without a file: %+v, %v", file, err)
	}
	path := filepath.Join(root, "x.yaml")
	if _, err := LoadFile(data("ORCH_CONFIG", path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was asked for: %v", err)
	}
	content := "repos: [{name: demo, path: /x, test: none}]\nagents: {a: {preset: command, command: x}}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err = LoadFile(data("ORCH_CONFIG", path))
	if err != nil || len(file.Repos) != 1 || file.RepoNames()[0] != "demo" {
		t.Errorf("%+v, %v", file, err)
	}
}

const twoRepos = `repos:
  - {name: demo, path: /srv/demo, test: make test, setup: make deps, batch: 8}
  - {name: other, path: /srv/other, test: none, land: manual}
agents:
  coder: {preset: command, command: ./agent}
`

func newTestCatalog(t *testing.T, gated ...string) (c *Catalog, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orch.yaml")
	rewrite(t, file, twoRepos)
	c, err := New(config.Data{File: file, FileGiven: true}, config.Merge{GateRepos: gated}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, file
}

func rewrite(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestPlanOfAConfiguredRepository(t *testing.T) {
	t.Parallel()
	c, _ := newTestCatalog(t)
	p, err := c.Plan(t.Context(), task.Task{Repo: "demo", BaseBranch: "main", Pipeline: "default"})
	if err != nil {
		t.Fatal(err)
	}
	const test = "(make deps) </dev/null && (make test)"
	if p.Repo.Location != "/srv/demo" || p.Home || p.Batch != 8 || p.Method != "fast-forward" || !p.Land || p.Test == nil || p.Test.Command != test || p.Agents["coder"].Command.Shell != "./agent" {
		t.Errorf("plan %+v", p)
	}
	// The stage's gate and the landing's test are the same definition, so that one's evidence serves the other.
	if gate := p.Pipeline.Stages[0].Gates[1]; gate.Command != test {
		t.Errorf("the stage's gate runs %q", gate.Command)
	}
	if p, err := c.Plan(t.Context(), task.Task{Repo: "other", Pipeline: "default"}); err != nil || p.Land || p.Test != nil {
		t.Errorf("plan %+v, %v", p, err)
	}
	if _, err := c.Plan(t.Context(), task.Task{Repo: "gone", Pipeline: "default"}); !errors.Is(err, task.ErrUnknownPipeline) {
		t.Errorf("a repository that isn't configured any more: %v", err)
	}
}

func TestPlanOfATaskThatBringsItsOwn(t *testing.T) {
	t.Parallel()
	c, _ := newTestCatalog(t)
	own, err := json.Marshal(Adhoc{Path: "/src/x", Test: "true", AgentCommand: "./mine", TimeoutS: 90})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Plan(t.Context(), task.Task{Repo: "x", Overrides: own})
	if err != nil || p.Repo.Location != "/src/x" || p.Agents[adhocAgent].Command.Shell != "./mine" || p.Agents[adhocAgent].Timeout.Seconds() != 90 || !p.Home || p.Batch != 1 {
		t.Errorf("plan %+v, %v", p, err)
	}
}

// A repository that ORCH_MERGE_GATE_REPOS leaves out is left at a ready branch, whoever asks.
func TestGateRepos(t *testing.T) {
	t.Parallel()
	c, _ := newTestCatalog(t, "other")
	if p, err := c.Plan(t.Context(), task.Task{Repo: "demo", Pipeline: "default"}); err != nil || p.Land {
		t.Errorf("lands %v, %v", p.Land, err)
	}
	if p, err := c.Plan(t.Context(), task.Task{Repo: "x", Overrides: json.RawMessage(`{"path":"/x","agent_command":"y"}`)}); err != nil || p.Land {
		t.Errorf("lands %v, %v", p.Land, err)
	}
}

func TestGatedNamesThatNoRepositoryHasAreTold(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orch.yaml")
	rewrite(t, file, twoRepos)
	for gated, told := range map[string]bool{"demo": false, "dmeo": true} {
		var log strings.Builder
		_, err := New(config.Data{File: file, FileGiven: true}, config.Merge{GateRepos: []string{"other", gated}}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "unknown=[dmeo]"); got != told {
			t.Errorf("%s: %s", gated, log.String())
		}
	}
}

func TestEditedFile(t *testing.T) {
	t.Parallel()
	c, file := newTestCatalog(t)
	rewrite(t, file, "repos: {")
	if got := c.Current(t.Context()); len(got.Repos) != 2 {
		t.Errorf("a bad edit took effect: %+v", got.Repos)
	}
	if state := c.State(t.Context()); state.Status != "error" || state.Err == nil {
		t.Errorf("state %+v", state)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := c.Current(t.Context()); len(got.Repos) != 2 || c.State(t.Context()).Status != "error" {
		t.Errorf("a removed file took effect: %+v", got.Repos)
	}
	rewrite(t, file, strings.Replace(twoRepos, "name: other", "name: third", 1))
	if _, known := c.Current(t.Context()).Repo("third"); !known || c.State(t.Context()).Status != "ok" {
		t.Errorf("a good edit didn't: %+v", c.State(t.Context()))
	}
}

const fallbacks = `budgets: {run: {max_cost_usd: 2}, task: {max_cost_usd: 9}}
repos: [{name: demo, path: /srv/demo, test: none}]
agents:
  coder: {preset: claude, fallback: spare, max_cost_usd: 3, max_cost_usd_day: 8}
  spare: {preset: codex, fallback: last, stall_timeout: 40m, max_tokens: 1000}
  last: {preset: gemini, stall_timeout: none}
  deaf: {preset: claude, tool_stall_timeout: none, timeout: 50m}
  mine: {preset: command, command: x}
pipelines:
  default: [{stage: development, agent: coder}, {stage: review, agent: mine}]
`

func TestPlanKnowsWhoTakesOver(t *testing.T) {
	t.Parallel()
	c, file := newTestCatalog(t)
	rewrite(t, file, fallbacks)
	p, err := c.Plan(t.Context(), task.Task{Repo: "demo", Pipeline: "default"})
	if err != nil || len(p.Agents) != 4 {
		t.Fatalf("plan %+v, %v", p.Agents, err)
	}
	p.enlist(c.Current(t.Context()), "deaf")
	for name, want := range map[string][2]time.Duration{ // silence, silence while a tool works
		"coder": {10 * time.Minute, 30 * time.Minute}, "spare": {40 * time.Minute, 40 * time.Minute},
		"last": {0, time.Hour}, "mine": {0, 0}, "deaf": {10 * time.Minute, 50 * time.Minute},
	} {
		if a := p.Agents[name]; a.StallTimeout != want[0] || a.ToolStallTimeout != want[1] {
			t.Errorf("%s: %v, %v", name, a.StallTimeout, a.ToolStallTimeout)
		}
	}
	own, err := json.Marshal(Adhoc{Path: "/src/x", Test: "true", Agent: "spare"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Plan(t.Context(), task.Task{Repo: "x", Overrides: own}); err != nil || len(p.Agents) != 2 {
		t.Errorf("plan %+v, %v", p.Agents, err)
	}
}

func TestLimitsOfAnAgentAreItsOwnBeforeTheBudgets(t *testing.T) {
	t.Parallel()
	c, file := newTestCatalog(t)
	rewrite(t, file, fallbacks)
	p, err := c.Plan(t.Context(), task.Task{Repo: "demo", Pipeline: "default"})
	if err != nil {
		t.Fatal(err)
	}
	coder, spare := p.LimitsOf("coder"), p.LimitsOf("spare")
	if *coder.Run.CostUSD != 3 || *coder.Agent.CostUSD != 8 || coder.AgentName != "coder" || *coder.Task.CostUSD != 9 || *coder.Day.CostUSD != 25 {
		t.Errorf("coder %+v", coder)
	}
	if *spare.Run.CostUSD != 2 || *spare.Run.Tokens != 1000 || spare.Agent.CostUSD != nil || *spare.Task.Runs != 20 {
		t.Errorf("spare %+v", spare)
	}
	p, err = c.Plan(t.Context(), task.Task{Repo: "demo", Pipeline: "default", MaxCostUSD: new(1.5)})
	if err != nil || *p.LimitsOf("coder").Task.CostUSD != 1.5 {
		t.Errorf("a task's own: %+v, %v", p.Limits, err)
	}
	own := json.RawMessage(`{"path":"/x","agent_command":"y"}`)
	p, err = c.Plan(t.Context(), task.Task{Repo: "x", Overrides: own})
	if limits := p.LimitsOf(adhocAgent); err != nil || *limits.Run.CostUSD != 2 || *limits.Task.CostUSD != 9 {
		t.Errorf("of an agent that a task brought along: %+v, %v", limits, err)
	}
}

// What orch.yaml takes for a preset and what the preset can do are said in two places.
func TestPresetsAreTheSameInOrchYAML(t *testing.T) {
	t.Parallel()
	for _, name := range preset.Names() {
		own, _ := preset.Of(name)
		takes := func(more string) bool {
			file := filepath.Join(t.TempDir(), "orch.yaml")
			rewrite(t, file, "agents: {a: {preset: "+name+", command: x"+more+"}}\n")
			_, err := LoadFile(config.Data{File: file, FileGiven: true})
			return err == nil
		}
		if !takes("") || takes(", max_turns: 5") != own.Turns || takes(", model: m") != own.Models || takes(", tool_stall_timeout: 5m") != (own.ToolStall > 0) {
			t.Errorf("%s isn't the same", name)
		}
	}
	file := filepath.Join(t.TempDir(), "orch.yaml")
	rewrite(t, file, "agents: {a: {preset: nothing}}\n")
	if _, err := LoadFile(config.Data{File: file, FileGiven: true}); err == nil || !strings.Contains(err.Error(), "allowed: "+strings.Join(preset.Names(), ", ")) {
		t.Errorf("presets of orch.yaml: %v", err)
	}
}
