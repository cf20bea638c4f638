package orchyaml_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"orch/internal/config/orchyaml"
)

const agents = "agents: {coder: {preset: command, command: run}}\n"

const whole = `
repos:
  - name: demo
    forge: local
    path: git/demo
    base: trunk
    pipeline: careful
    setup: make deps
    test: make test
    land: manual
    batch: 8
  - {name: plain, path: /srv/plain, test: none}
agents:
  coder: {preset: command, command: my-agent --yes, timeout: 45m, stall_timeout: 10m, env: [KEY], set: {MODE: fast}}
  reviewer: {preset: command, command: [reviewer, "--strict"]}
pipelines:
  careful:
    - {stage: development, agent: coder, prompt: dev.md, gates: [commits, {command: make lint, timeout: 5m}]}
    - {stage: review, agent: reviewer, gates: [command]}
    - {stage: testing, gates: [{command: make slow}], on_fail: review}
    - {stage: deploy, gates: [branch_mergeable], method: squash}
`

func TestWholeFile(t *testing.T) {
	t.Parallel()
	path := write(t, "orch.yaml", whole)
	dir := filepath.Dir(path)
	if err := os.WriteFile(filepath.Join(dir, "dev.md"), []byte("Do {{.Title}}!"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := loadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	demo := orchyaml.Repo{
		Name: "demo", Forge: "local", Path: filepath.Join(dir, "git", "demo"), Base: "trunk", Pipeline: "careful",
		Setup: "make deps", Test: "make test", Land: "manual", Batch: 8,
	}
	plain := orchyaml.Repo{Name: "plain", Forge: "local", Path: "/srv/plain", Base: "main", Pipeline: "default", Land: "auto", Batch: 1}
	if !reflect.DeepEqual(file.Repos, []orchyaml.Repo{demo, plain}) {
		t.Errorf("repos %+v", file.Repos)
	}
	want := []orchyaml.Agent{
		{
			Name: "coder", Preset: "command", Command: orchyaml.Command{Shell: "my-agent --yes"}, Timeout: 45 * time.Minute,
			StallTimeout: 10 * time.Minute, Env: []string{"KEY"}, Set: map[string]string{"MODE": "fast"}, MaxCostUSD: new(5.0),
		},
		{
			Name: "reviewer", Preset: "command", Command: orchyaml.Command{Argv: []string{"reviewer", "--strict"}}, Timeout: time.Hour,
			MaxCostUSD: new(5.0),
		},
	}
	if !reflect.DeepEqual(file.Agents, want) {
		t.Errorf("agents %+v", file.Agents)
	}
	careful, err := file.ResolvePipeline(demo, "")
	if err != nil {
		t.Fatal(err)
	}
	if careful.Stages[0].Prompt != "Do {{.Title}}!" || careful.Stages[1].Prompt != "" {
		t.Errorf("prompts %q, %q", careful.Stages[0].Prompt, careful.Stages[1].Prompt)
	}
	got := describe(careful)
	wantStages := []string{
		"development by coder [commits command(make lint 5m0s)] back to development",
		"review by reviewer [command(make test)] back to development",
		"testing by nobody [command(make slow)] back to review",
		"deploy by nobody [branch_mergeable] back to development squash",
	}
	if !reflect.DeepEqual(got, wantStages) {
		t.Errorf("stages %q", got)
	}
	if _, err := file.ResolvePipeline(plain, "careful"); err == nil || !strings.Contains(err.Error(), "plain has none") {
		t.Errorf("a test that isn't there: %v", err)
	}
	if _, err := file.ResolvePipeline(plain, "nowhere"); err == nil || !strings.Contains(err.Error(), "known: careful, default") {
		t.Errorf("unknown pipeline: %v", err)
	}
	if _, ok := file.Repo("nobody"); ok {
		t.Error("found a repository that isn't there")
	}
}

// describe writes a pipeline as text.
func describe(p orchyaml.Pipeline) (stages []string) {
	for _, s := range p.Stages {
		var gates []string
		for _, g := range s.Gates {
			text := g.Name
			if g.Command != "" {
				text += "(" + g.Command
				if g.Timeout > 0 {
					text += " " + g.Timeout.String()
				}
				text += ")"
			}
			gates = append(gates, text)
		}
		agent := s.Agent
		if agent == "" {
			agent = "nobody"
		}
		text := fmt.Sprintf("%s by %s [%s] back to %s %s", s.Name, agent, strings.Join(gates, " "), s.OnFail, s.Method)
		stages = append(stages, strings.TrimSpace(text))
	}
	return stages
}

func TestBuiltInPipeline(t *testing.T) {
	t.Parallel()
	file, err := parseFile("/x/orch.yaml", []byte("repos: [{name: a, path: a, test: make test}, {name: b, path: b, test: none}]\n"+agents))
	if err != nil {
		t.Fatal(err)
	}
	for i, gates := range []string{"[commits command(make test)]", "[commits]"} {
		p, err := file.ResolvePipeline(file.Repos[i], "")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"development by coder " + gates + " back to development", "deploy by nobody [branch_mergeable] back to development fast-forward"}
		if got := describe(p); !reflect.DeepEqual(got, want) {
			t.Errorf("stages %q", got)
		}
	}
}

func TestOwnDefaultPipeline(t *testing.T) {
	t.Parallel()
	file, err := parseFile("/x/orch.yaml", []byte("repos: [{name: a, path: a, test: none}]\n"+agents+
		"pipelines: {default: [{stage: analysis, agent: coder}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := file.ResolvePipeline(file.Repos[0], "")
	if err != nil || len(p.Stages) != 1 || p.Stages[0].Name != "analysis" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "\n", "# nothing\n", "---\n", "repos:\n", "repos: []\nagents: {}\n", "---\n# a\n---\n"} {
		file, err := parseFile("orch.yaml", []byte(content))
		if err != nil || len(file.Repos) != 0 {
			t.Errorf("%q: %v", content, err)
		}
	}
	if _, err := loadFile("/no/such/orch.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	file, err := parseFile("/orch.yaml", []byte("agents:\n  a: &base {preset: command, command: x}\n  b: *base\n  c:\n    <<: *base\n    timeout: 5m\n"))
	if err != nil || len(file.Agents) != 3 || file.Agents[1].Command.Shell != "x" || file.Agents[2].Timeout != 5*time.Minute {
		t.Fatalf("%+v, %v", file, err)
	}
	_, err = parseFile("/orch.yaml", []byte("agents:\n  a: &base\n    preset: command\n    command: ''\n  b: *base\n"))
	if err == nil || !strings.Contains(err.Error(), "/orch.yaml:4: agent a needs") || !strings.Contains(err.Error(), "/orch.yaml:5: agent b needs") {
		t.Errorf("lines with anchors: %v", err)
	}
}
