package orchyaml

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const maxFile = 1 << 20

// Words of orch.yaml.
const (
	ForgeLocal = "local"
	LandAuto   = "auto"
	LandManual = "manual"
	TestNone   = "none" // what `test:` says when a repository has no test on purpose

	StageDeploy       = "deploy"
	stageDevelopment  = "development"
	MethodFastForward = "fast-forward"
	MethodRebase      = "rebase"
	MethodMerge       = "merge"
	MethodSquash      = "squash"

	GateCommits         = "commits"
	GateCommand         = "command"
	GateBranchMergeable = "branch_mergeable"

	// DefaultPipeline is used by repositories that name none. It is built in unless the file defines it.
	DefaultPipeline = "default"

	defaultBase    = "main"
	defaultTimeout = time.Hour
	maxBatch       = 64
)

// File is orch.yaml, checked and with its defaults filled in.
type File struct {
	Path   string
	Repos  []Repo
	Agents []Agent // by name
	// Budgets are those of the file, or the ones that hold when it says nothing.
	Budgets Budgets
	Alerts  Alerts

	pipelines map[string]Pipeline
}

// Alerts says what a person isn't told of.
type Alerts struct {
	QuietReclaims bool // merge leases taken from dead holders: logged and counted only
}

// Repo is one repository.
type Repo struct {
	Name     string
	Forge    string
	Path     string // absolute
	Base     string // the branch changes land on
	Pipeline string
	Setup    string // command that prepares a checkout; may be empty
	Test     string // command that decides whether a commit may land; empty when the file says none
	Land     string // LandAuto or LandManual
	Batch    int    // how many changes may be tested and landed together
}

// Pipeline is the way of a task through its stages.
type Pipeline struct {
	Name   string
	Stages []Stage
}

// Stage is one step of a pipeline.
type Stage struct {
	Name   string
	Agent  string // empty when no agent works in it
	Prompt string // text of its template; empty for the built-in one
	Gates  []Gate
	OnFail string // the stage that a failed gate sends the task back to
	Method string // of landing; only in deploy
}

// Gate is a check that a task passes to leave a stage.
type Gate struct {
	Name    string
	Command string        // of the gate "command"
	Timeout time.Duration // 0 = the gate's own default
}

// ProblemError is one thing in orch.yaml that can't be used.
type ProblemError struct {
	File    string
	Line    int
	Message string
}

// Error implements error.
func (p *ProblemError) Error() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message) }

// LoadFile reads orch.yaml at path; check looks at its prompts. Its error joins every *ProblemError found, or wraps
// os.ErrNotExist.
func LoadFile(path string, check PromptCheck) (*File, error) {
	content, err := readLimited(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return parseFile(path, content, check)
}

func readLimited(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, nil
}

func parseFile(path string, content []byte, check PromptCheck) (*File, error) {
	doc, err := decodeFile(path, content)
	if err != nil {
		return nil, err
	}
	r := &resolver{doc: doc, dir: filepath.Dir(path), check: check, file: &File{Path: path, pipelines: map[string]Pipeline{}}}
	r.file.Budgets, r.file.Alerts = r.budgets(), Alerts(doc.data.Alerts)
	r.agents()
	r.pipelines()
	r.repos()
	if err := errors.Join(r.problems...); err != nil {
		return nil, err
	}
	return r.file, nil
}

// Repo finds a repository by name.
func (f *File) Repo(name string) (Repo, bool) {
	i := slices.IndexFunc(f.Repos, func(r Repo) bool { return r.Name == name })
	if i < 0 {
		return Repo{}, false
	}
	return f.Repos[i], true
}

// RepoNames lists the names of the repositories.
func (f *File) RepoNames() []string {
	names := make([]string, 0, len(f.Repos))
	for _, r := range f.Repos {
		names = append(names, r.Name)
	}
	return names
}

// ResolvePipeline answers the pipeline called name as it is for repo: a gate "command" without a command runs the
// repository's test, and is left out of the built-in pipeline when there is none.
func (f *File) ResolvePipeline(repo Repo, name string) (Pipeline, error) {
	if name == "" {
		name = repo.Pipeline
	}
	pipeline, ok := f.pipelines[name]
	if !ok && name == DefaultPipeline {
		agent, err := f.defaultAgent()
		if err != nil {
			return Pipeline{}, err
		}
		return BuiltIn(repo, agent), nil
	}
	if !ok {
		return Pipeline{}, fmt.Errorf("no pipeline is called %q (known: %s)", name, known(f.pipelineNames()))
	}
	stages := slices.Clone(pipeline.Stages)
	for i, stage := range stages {
		stages[i].Gates = slices.Clone(stage.Gates)
		for j, gate := range stages[i].Gates {
			if gate.Name != GateCommand || gate.Command != "" {
				continue
			}
			if repo.Test == "" {
				return Pipeline{}, fmt.Errorf("stage %s of pipeline %s has the gate %q, which runs the repository's test, and %s has none: "+
					"give the gate a command of its own or the repository a test", stage.Name, name, GateCommand, repo.Name)
			}
			stages[i].Gates[j].Command = repo.Test
		}
	}
	return Pipeline{Name: name, Stages: stages}, nil
}

// Timeouts are the longest that an agent and the command of a gate may take; zero when the file says nothing of any.
func (f *File) Timeouts() (agent, command time.Duration) {
	for _, a := range f.Agents {
		agent = max(agent, a.Timeout)
	}
	for _, p := range f.pipelines {
		for _, s := range p.Stages {
			for _, g := range s.Gates {
				command = max(command, g.Timeout)
			}
		}
	}
	return agent, command
}

func (f *File) pipelineNames() []string {
	names := []string{DefaultPipeline}
	for name := range f.pipelines {
		if name != DefaultPipeline {
			names = append(names, name)
		}
	}
	return names
}

// defaultAgent is the one that works in the built-in pipeline.
func (f *File) defaultAgent() (string, error) {
	const preferred = "coder"
	if _, ok := f.Agent(preferred); ok {
		return preferred, nil
	}
	switch len(f.Agents) {
	case 0:
		return "", errors.New("the built-in pipeline needs an agent: define one under `agents`")
	case 1:
		return f.Agents[0].Name, nil
	}
	return "", fmt.Errorf("the built-in pipeline needs one agent, and there are several: call one of them %q, or define a pipeline", preferred)
}

// BuiltIn is the pipeline of a repository that names none, `development → deploy`: one agent and a test are enough.
func BuiltIn(repo Repo, agent string) Pipeline {
	gates := []Gate{{Name: GateCommits}}
	if repo.Test != "" {
		gates = append(gates, Gate{Name: GateCommand, Command: repo.Test})
	}
	return Pipeline{Name: DefaultPipeline, Stages: []Stage{
		{Name: stageDevelopment, Agent: agent, Gates: gates, OnFail: stageDevelopment},
		{Name: StageDeploy, Gates: []Gate{{Name: GateBranchMergeable}}, OnFail: stageDevelopment, Method: MethodFastForward},
	}}
}
