package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	file, err := loadFile(data("ORCH_ROOT", root))
	if err != nil || len(file.Repos) != 0 || file.Path != filepath.Join(root, "orch.yaml") {
		t.Errorf("without a file: %+v, %v", file, err)
	}
	path := filepath.Join(root, "x.yaml")
	if _, err := loadFile(data("ORCH_CONFIG", path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was asked for: %v", err)
	}
	content := "repos: [{name: demo, path: /x, test: none}]\nagents: {a: {preset: command, command: x}}\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err = loadFile(data("ORCH_CONFIG", path))
	if err != nil || len(file.Repos) != 1 || file.RepoNames()[0] != "demo" {
		t.Errorf("%+v, %v", file, err)
	}
}

const twoRepos = `repos:
  - {name: demo, path: /srv/demo, test: make test, setup: make deps}
  - {name: other, path: /srv/other, test: none, land: manual}
agents:
  coder: {preset: command, command: ./agent}
`

func newTestCatalog(t *testing.T, content string, gated ...string) (c *catalog, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orch.yaml")
	rewrite(t, file, content)
	c, err := newCatalog(config.Data{File: file, FileGiven: true}, config.Merge{GateRepos: gated}, slog.New(slog.DiscardHandler))
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
	c, _ := newTestCatalog(t, twoRepos)
	p, err := c.plan(t.Context(), task.Task{Repo: "demo", BaseBranch: "main", Pipeline: "default"})
	if err != nil {
		t.Fatal(err)
	}
	const test = "(make deps) </dev/null && (make test)"
	if p.repo.Location != "/srv/demo" || !p.land || p.test == nil || p.test.Command != test || p.agents["coder"].Command.Shell != "./agent" {
		t.Errorf("plan %+v", p)
	}
	// The stage's gate and the landing's test are the same definition, so that one's evidence serves the other.
	if gate := p.pipeline.Stages[0].Gates[1]; gate.Command != test {
		t.Errorf("the stage's gate runs %q", gate.Command)
	}
	if p, err := c.plan(t.Context(), task.Task{Repo: "other", Pipeline: "default"}); err != nil || p.land || p.test != nil {
		t.Errorf("plan %+v, %v", p, err)
	}
	if _, err := c.plan(t.Context(), task.Task{Repo: "gone", Pipeline: "default"}); !errors.Is(err, task.ErrUnknownPipeline) {
		t.Errorf("a repository that isn't configured any more: %v", err)
	}
}

func TestPlanOfATaskThatBringsItsOwn(t *testing.T) {
	t.Parallel()
	c, _ := newTestCatalog(t, twoRepos)
	own, err := json.Marshal(adhoc{Path: "/src/x", Test: "true", AgentCommand: "./mine", TimeoutS: 90})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.plan(t.Context(), task.Task{Repo: "x", Overrides: own})
	if err != nil || p.repo.Location != "/src/x" || p.agents[adhocAgent].Command.Shell != "./mine" || p.agents[adhocAgent].Timeout.Seconds() != 90 {
		t.Errorf("plan %+v, %v", p, err)
	}
}

// A repository that ORCH_MERGE_GATE_REPOS leaves out is left at a ready branch, whoever asks.
func TestGateRepos(t *testing.T) {
	t.Parallel()
	c, _ := newTestCatalog(t, twoRepos, "other")
	if p, err := c.plan(t.Context(), task.Task{Repo: "demo", Pipeline: "default"}); err != nil || p.land {
		t.Errorf("lands %v, %v", p.land, err)
	}
	if p, err := c.plan(t.Context(), task.Task{Repo: "x", Overrides: json.RawMessage(`{"path":"/x","agent_command":"y"}`)}); err != nil || p.land {
		t.Errorf("lands %v, %v", p.land, err)
	}
}

func TestEditedFile(t *testing.T) {
	t.Parallel()
	c, file := newTestCatalog(t, twoRepos)
	rewrite(t, file, "repos: {")
	if got := c.current(t.Context()); len(got.Repos) != 2 {
		t.Errorf("a bad edit took effect: %+v", got.Repos)
	}
	if state := c.state(t.Context()); state.Status != "error" || state.Err == nil {
		t.Errorf("state %+v", state)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := c.current(t.Context()); len(got.Repos) != 2 || c.state(t.Context()).Status != "error" {
		t.Errorf("a removed file took effect: %+v", got.Repos)
	}
	rewrite(t, file, strings.Replace(twoRepos, "name: other", "name: third", 1))
	if _, known := c.current(t.Context()).Repo("third"); !known || c.state(t.Context()).Status != "ok" {
		t.Errorf("a good edit didn't: %+v", c.state(t.Context()))
	}
}
