package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"orch/api"
	"orch/internal/app/catalog"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/httpapi"
	"orch/internal/task"
)

// CreateTask implements httpapi.Tasks. What would make the landing impossible is refused here, before an agent costs
// money.
func (a Tasks) CreateTask(ctx context.Context, n httpapi.NewTask) (api.Task, error) {
	add := task.Add{
		Title: n.Title, Body: n.Body, Source: n.Source, Priority: n.Priority, MaxCostUSD: n.MaxCostUSD, Pipeline: orchyaml.DefaultPipeline,
	}
	repo, err := a.repository(ctx, n, &add)
	if err != nil {
		return api.Task{}, err
	}
	checked, err := a.check(ctx, repo)
	var problem *forge.ProblemError
	if err != nil && !errors.As(err, &problem) {
		return api.Task{}, err
	}
	if problem != nil && !problem.Code.HindersOnlyLanding() {
		return api.Task{}, httpapi.Refuse(string(problem.Code), problem.Error())
	}
	add.Location, add.BaseBranch = checked.Path, checked.Base
	if add.Location == "" {
		add.Location, add.BaseBranch = repo.Location, repo.Base
	}
	if n.Adhoc != nil { // nobody else knows the repository, or has it on disk
		add.Root = a.Root
		if add.Repo, err = a.Tasks.RepoName(ctx, add.Location, catalog.RepoName(add.Location), a.taken(ctx)); err != nil {
			return api.Task{}, err
		}
	}
	if add.Land, err = a.lands(ctx, n, add); err != nil {
		return api.Task{}, refusedTask(err)
	}
	if problem != nil && add.Land {
		return api.Task{}, httpapi.Refuse(string(problem.Code), problem.Error())
	}
	created, err := a.Tasks.Create(ctx, add)
	if err != nil {
		return api.Task{}, refusedTask(err)
	}
	return a.shown(ctx, created, nil), nil
}

// lands says whether a new task is to land: as was asked, else as the plan for it says.
func (a Tasks) lands(ctx context.Context, n httpapi.NewTask, add task.Add) (bool, error) {
	if n.Land != nil {
		return *n.Land, nil
	}
	own, err := json.Marshal(add.Overrides)
	if err != nil {
		return false, fmt.Errorf("encode what the task brings along: %w", err)
	}
	plan, err := a.Catalog.Plan(ctx, task.Task{Repo: add.Repo, BaseBranch: add.BaseBranch, Pipeline: add.Pipeline, Overrides: own})
	return plan.Land, err
}

// check looks at a repository. While a landing is under way its checkout looks dirty or locked for a moment: then it looks again.
func (a Tasks) check(ctx context.Context, repo forge.Repo) (forge.Checked, error) {
	const looks, pause = 20, 100 * time.Millisecond
	calm := false // nothing lands any more: what the next look sees is how it is
	for n := 1; ; n++ {
		checked, err := a.Forge.Check(ctx, repo)
		var problem *forge.ProblemError
		if calm || n == looks || !errors.As(err, &problem) || !problem.Retry && !problem.Code.HindersOnlyLanding() {
			return checked, err
		}
		if !problem.Retry {
			leases, leaseErr := a.Leases.Leases(ctx)
			if leaseErr != nil {
				return checked, err
			}
			if calm = len(leases) == 0; calm {
				continue
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return checked, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func refusedTask(err error) error {
	var invalid *task.InvalidError
	switch {
	case errors.As(err, &invalid):
		return httpapi.Invalid(invalid.Field, invalid.Reason)
	case errors.Is(err, task.ErrUnknownPipeline):
		return httpapi.Refuse("configuration", err.Error())
	case errors.Is(err, task.ErrRepositoryMoved):
		return httpapi.Refuse("repository_moved", err.Error())
	default:
		return err
	}
}

// repository says which repository a new task is for, and how it is to be done there.
func (a Tasks) repository(ctx context.Context, n httpapi.NewTask, add *task.Add) (forge.Repo, error) {
	if n.Adhoc != nil {
		return a.adhocRepository(ctx, n, add)
	}
	file := a.Catalog.Current(ctx)
	repo, known := file.Repo(n.Repo)
	if !known {
		return forge.Repo{}, httpapi.Invalid("repo", unknownRepo(n.Repo, file))
	}
	add.Repo, add.Pipeline = repo.Name, repo.Pipeline
	base := repo.Base
	if n.Base != "" {
		base = n.Base
	}
	return forge.Repo{Name: repo.Name, Location: repo.Path, Base: base}, nil
}

func unknownRepo(name string, file *orchyaml.File) string {
	if len(file.Repos) == 0 {
		return fmt.Sprintf("no repository is configured in %s: add one with `orch init PATH`", file.Path)
	}
	return fmt.Sprintf("no repository is called %q in %s; there are: %s", name, file.Path, strings.Join(file.RepoNames(), ", "))
}

func (a Tasks) adhocRepository(ctx context.Context, n httpapi.NewTask, add *task.Add) (forge.Repo, error) {
	own := n.Adhoc
	file := a.Catalog.Current(ctx)
	if own.Agent != "" {
		if _, known := file.Agent(own.Agent); !known {
			return forge.Repo{}, httpapi.Invalid("adhoc.agent", fmt.Sprintf("no agent is called %q in %s", own.Agent, file.Path))
		}
	}
	if own.Agent == "" && own.AgentCommand == "" {
		return forge.Repo{}, httpapi.Invalid("adhoc.agent_command", "name an agent of orch.yaml, or give the agent's command")
	}
	add.Overrides = catalog.Adhoc{
		Path: own.Path, Test: own.TestCommand, Agent: own.Agent, AgentCommand: own.AgentCommand, Setup: own.Setup,
		TimeoutS: own.Timeout.Seconds(), Env: own.AgentEnv,
	}
	return forge.Repo{Location: own.Path, Base: n.Base}, nil
}

// taken tells which names belong to repositories of orch.yaml at another place.
func (a Tasks) taken(ctx context.Context) func(name, location string) bool {
	file := a.Catalog.Current(ctx)
	return func(name, location string) bool {
		repo, known := file.Repo(name)
		return known && repo.Path != location
	}
}
