// Package setup makes ready what orch works on: entries of orch.yaml, and the repository of the demo.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"orch/internal/app/catalog"
	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/stage/prompt"
)

// InitRepository makes a git repository of a directory's files, with one commit on branch.
func InitRepository(ctx context.Context, dir, branch, message string) error {
	program, err := gitcmd.New(ctx, gitcmd.Config{})
	if err != nil {
		return err
	}
	gitDir := filepath.Join(dir, ".git")
	who := []string{"-c", "user.name=" + git.Committer().Name, "-c", "user.email=" + git.Committer().Email}
	if _, err := program.Run(ctx, "", nil, "init", "-q", "-b", branch, dir); err != nil {
		return err
	}
	for _, args := range [][]string{{"add", "-A"}, append(who, "commit", "-q", "-m", message)} {
		if _, err := program.RunTree(ctx, gitDir, dir, "", nil, args...); err != nil {
			return err
		}
	}
	return nil
}

// NewRepository is what `orch init` was told; empty fields are found out.
type NewRepository struct {
	Path         string
	Name         string
	Base         string
	Test         string // orchyaml.TestNone: there is none on purpose
	Setup        string
	AgentCommand string // for a new orch.yaml
}

// AddedRepository is what `orch init` wrote.
type AddedRepository struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Base   string `json:"base"`
	Test   string `json:"test"`
	Config string `json:"config"`
	// AgentMissing: orch.yaml doesn't say yet which agent program to run.
	AgentMissing bool `json:"agent_missing"`
}

// ErrNoTest says that no test command was given and none could be found.
var ErrNoTest = errors.New("no test command found: say which command decides whether a change may land with --test 'CMD', or that there is none with --no-test")

// AddRepository looks at a repository and writes its entry into orch.yaml.
func AddRepository(ctx context.Context, cfg *config.Config, n NewRepository) (AddedRepository, error) {
	if n.Name != "" && !config.ValidName(n.Name) {
		return AddedRepository{}, fmt.Errorf("--name: %s; it says %q", config.NameRule, n.Name)
	}
	program, err := gitcmd.New(ctx, gitcmd.Config{})
	if err != nil {
		return AddedRepository{}, err
	}
	checked, err := local.New(program, local.Config{}).Check(ctx, forge.Repo{Location: n.Path, Base: n.Base})
	if problem, ok := errors.AsType[*forge.ProblemError](err); err != nil && (!ok || !problem.Code.HindersOnlyLanding()) {
		return AddedRepository{}, err
	}
	added := AddedRepository{Name: n.Name, Path: checked.Path, Base: checked.Base, Test: n.Test, Config: cfg.Data.File}
	if added.Path == "" {
		return AddedRepository{}, err // a checkout so unfinished that it couldn't be looked at
	}
	if added.Name == "" {
		added.Name = catalog.RepoName(added.Path)
	}
	if added.Test == "" {
		if added.Test, err = findTest(ctx, program, checked); err != nil {
			return AddedRepository{}, err
		}
	}
	if err := writeNewFile(cfg.Data.File, n.AgentCommand); err != nil {
		return AddedRepository{}, err
	}
	if err := orchyaml.AddRepo(cfg.Data.File, orchyaml.RepoEntry{
		Name: added.Name, Path: added.Path, Base: added.Base, Test: added.Test, Setup: n.Setup,
	}, prompt.Check); err != nil {
		return AddedRepository{}, err
	}
	file, err := catalog.LoadFile(cfg.Data)
	if err != nil {
		return AddedRepository{}, err
	}
	added.AgentMissing = slices.ContainsFunc(file.Agents, orchyaml.Agent.Placeholder)
	return added, nil
}

// writeNewFile begins an orch.yaml with the agent that was named. One that is there is left as it is.
func writeNewFile(path, agentCommand string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("begin %s: %w", path, err)
	}
	_, err = f.WriteString(orchyaml.Template(agentCommand))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("begin %s: %w", path, err)
	}
	return nil
}

// findTest guesses the test command from what the base branch holds.
func findTest(ctx context.Context, program *gitcmd.Git, checked forge.Checked) (string, error) {
	dir := checked.Path
	if !checked.Bare {
		dir = filepath.Join(dir, ".git")
	}
	read := func(name string) (string, bool) {
		content, err := program.Run(ctx, dir, nil, "cat-file", "blob", checked.Head+":"+name)
		return string(content), err == nil
	}
	makefile, _ := read("Makefile")
	npm, _ := read("package.json")
	switch {
	case regexp.MustCompile(`(?m)^test\s*:`).MatchString(makefile):
		return "make test", nil
	case has(read, "go.mod"):
		return "go test ./...", nil
	case has(read, "Cargo.toml"):
		return "cargo test", nil
	case strings.Contains(npm, `"test"`):
		return "npm test", nil
	case has(read, "pytest.ini"), has(read, "tox.ini"), has(read, "conftest.py"):
		return "python3 -m pytest", nil
	case has(read, "test.sh"):
		return "sh test.sh", nil
	default:
		return "", ErrNoTest
	}
}

func has(read func(string) (string, bool), name string) bool {
	_, found := read(name)
	return found
}
