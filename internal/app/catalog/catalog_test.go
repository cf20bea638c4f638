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
  - {name: demo, path: /srv/demo, test: make test, setup: make deps}
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
	if p.Repo.Location != "/srv/demo" || !p.Land || p.Test == nil || p.Test.Command != test || p.Agents["coder"].Command.Shell != "./agent" {
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
	if err != nil || p.Repo.Location != "/src/x" || p.Agents[adhocAgent].Command.Shell != "./mine" || p.Agents[adhocAgent].Timeout.Seconds() != 90 {
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
