package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"orch/api"
	"orch/internal/agent"
	"orch/internal/config/orchyaml"
	"orch/internal/forge"
	"orch/internal/httpapi"
	"orch/internal/queue"
	"orch/internal/task"
)

// shownRuns and shownEvents bound what one look at a task brings.
const (
	shownRuns   = 50
	shownEvents = 50
)

// taskAPI is httpapi.Tasks.
type taskAPI struct{ *system }

// ListTasks implements httpapi.Tasks.
func (a taskAPI) ListTasks(ctx context.Context, filter httpapi.TaskFilter) ([]api.Task, error) {
	f := task.Filter{Repo: filter.Repo, Before: filter.Before, Limit: filter.Limit}
	for _, state := range filter.States {
		f.States = append(f.States, task.State(state))
	}
	found, err := a.tasks.List(ctx, f)
	if err != nil {
		return nil, err
	}
	tasks := make([]api.Task, 0, len(found))
	for _, t := range found {
		tasks = append(tasks, a.shown(ctx, t))
	}
	return tasks, nil
}

// GetTask implements httpapi.Tasks.
func (a taskAPI) GetTask(ctx context.Context, key string) (api.TaskDetail, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return api.TaskDetail{}, err
	}
	detail := api.TaskDetail{Task: a.shown(ctx, t), Events: []api.TaskEvent{}, Runs: []api.Run{}}
	job, err := a.queue.ActiveForTask(ctx, t.ID)
	if err != nil {
		return api.TaskDetail{}, err
	}
	if job != nil {
		shown := shownJob(*job, t.Key)
		detail.Job = &shown
	}
	runs, err := a.runs.Latest(ctx, t.ID, shownRuns)
	if err != nil {
		return api.TaskDetail{}, err
	}
	for _, run := range runs {
		detail.Runs = append(detail.Runs, shownRun(run, t.Key))
	}
	events, err := a.tasks.LastEvents(ctx, t.ID, shownEvents)
	if err != nil {
		return api.TaskDetail{}, err
	}
	for _, e := range events {
		detail.Events = append(detail.Events, shownEvent(e))
	}
	return detail, nil
}

// TaskEvents implements httpapi.Tasks.
func (a taskAPI) TaskEvents(ctx context.Context, key string, filter httpapi.EventFilter) ([]api.TaskEvent, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return nil, err
	}
	events, err := a.tasks.EventsAfter(ctx, t.ID, filter.After, filter.Limit)
	if err != nil {
		return nil, err
	}
	shown := make([]api.TaskEvent, 0, len(events))
	for _, e := range events {
		shown = append(shown, shownEvent(e))
	}
	return shown, nil
}

// CancelTask implements httpapi.Tasks.
func (a taskAPI) CancelTask(ctx context.Context, key, actor string) (api.Task, error) {
	t, err := a.tasks.Cancel(ctx, key, actor)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return api.Task{}, httpapi.NotFound("task")
	case errors.Is(err, task.ErrLandingStarted):
		return api.Task{}, httpapi.Conflict("landing_started", "the landing has started: the task can't be cancelled any more")
	case errors.Is(err, task.ErrEnded):
		return api.Task{}, httpapi.Conflict("task_ended", "the task has ended already")
	case err != nil:
		return api.Task{}, err
	}
	return a.shown(ctx, t), nil
}

// RetryTask implements httpapi.Tasks.
func (a taskAPI) RetryTask(ctx context.Context, key, actor, note string) (api.Task, error) {
	t, err := a.tasks.Retry(ctx, key, actor, note)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return api.Task{}, httpapi.NotFound("task")
	case errors.Is(err, task.ErrNotBlocked):
		return api.Task{}, httpapi.Conflict("task_not_blocked", "the task isn't blocked: there is nothing to retry")
	case errors.Is(err, task.ErrBusy):
		return api.Task{}, httpapi.Conflict("task_busy", "a job of the task hasn't ended yet: try again in a moment")
	case err != nil:
		return api.Task{}, err
	}
	return a.shown(ctx, t), nil
}

// CreateTask implements httpapi.Tasks. What would make the landing impossible is refused here, before an agent costs
// money.
func (a taskAPI) CreateTask(ctx context.Context, n httpapi.NewTask) (api.Task, error) {
	add := task.Add{
		Title: n.Title, Body: n.Body, Source: n.Source, Priority: n.Priority, Pipeline: orchyaml.DefaultPipeline, Land: true,
	}
	repo, err := a.repository(ctx, n, &add)
	if err != nil {
		return api.Task{}, err
	}
	if n.Land != nil {
		add.Land = *n.Land
	}
	checked, err := a.check(ctx, repo)
	var problem *forge.ProblemError
	if errors.As(err, &problem) && (add.Land || !onlyLandingHinders(problem.Code)) {
		return api.Task{}, httpapi.Refuse(string(problem.Code), problem.Error())
	}
	if err != nil && problem == nil {
		return api.Task{}, err
	}
	add.Location, add.BaseBranch = checked.Path, checked.Base
	if add.Location == "" {
		add.Location, add.BaseBranch = repo.Location, repo.Base
	}
	if n.Adhoc != nil {
		if add.Repo, err = a.tasks.RepoName(ctx, add.Location, repoName(add.Location), a.taken(ctx)); err != nil {
			return api.Task{}, err
		}
	}
	created, err := a.tasks.Create(ctx, add)
	if err != nil {
		return api.Task{}, refusedTask(err)
	}
	return a.shown(ctx, created), nil
}

// check looks at a repository. While a landing is under way its checkout looks dirty or locked for a moment: then it looks again.
func (a taskAPI) check(ctx context.Context, repo forge.Repo) (forge.Checked, error) {
	const looks, pause = 20, 100 * time.Millisecond
	calm := false // nothing lands any more: what the next look sees is how it is
	for n := 1; ; n++ {
		checked, err := a.forge.Check(ctx, repo)
		var problem *forge.ProblemError
		if calm || n == looks || !errors.As(err, &problem) || !problem.Retry && !onlyLandingHinders(problem.Code) {
			return checked, err
		}
		if !problem.Retry {
			leases, leaseErr := a.leases.Leases(ctx)
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

// onlyLandingHinders tells problems that don't matter to a task that orch isn't to land.
func onlyLandingHinders(code forge.Code) bool {
	switch code {
	case forge.CodeDirty, forge.CodeUnfinished, forge.CodeOverwrites, forge.CodeFilters:
		return true
	default:
		return false
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
func (a taskAPI) repository(ctx context.Context, n httpapi.NewTask, add *task.Add) (forge.Repo, error) {
	if n.Adhoc != nil {
		return a.adhocRepository(ctx, n, add)
	}
	file := a.catalog.current(ctx)
	repo, known := file.Repo(n.Repo)
	if !known {
		return forge.Repo{}, httpapi.Invalid("repo", unknownRepo(n.Repo, file))
	}
	add.Repo, add.Pipeline, add.Land = repo.Name, repo.Pipeline, repo.Land == orchyaml.LandAuto
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

func (a taskAPI) adhocRepository(ctx context.Context, n httpapi.NewTask, add *task.Add) (forge.Repo, error) {
	own := n.Adhoc
	file := a.catalog.current(ctx)
	if own.Agent != "" {
		if _, known := file.Agent(own.Agent); !known {
			return forge.Repo{}, httpapi.Invalid("adhoc.agent", fmt.Sprintf("no agent is called %q in %s", own.Agent, file.Path))
		}
	}
	if own.Agent == "" && own.AgentCommand == "" {
		return forge.Repo{}, httpapi.Invalid("adhoc.agent_command", "name an agent of orch.yaml, or give the agent's command")
	}
	add.Overrides = adhoc{
		Path: own.Path, Test: own.TestCommand, Agent: own.Agent, AgentCommand: own.AgentCommand, Setup: own.Setup,
		TimeoutS: own.Timeout.Seconds(), Env: own.AgentEnv,
	}
	return forge.Repo{Location: own.Path, Base: n.Base}, nil
}

// repoName makes a name for keys, branches and paths from where a repository is.
func repoName(location string) string {
	name := strings.TrimSuffix(filepath.Base(location), ".git")
	name = regexp.MustCompile(`[^a-z0-9_-]+`).ReplaceAllString(strings.ToLower(name), "-")
	name = strings.Trim(name, "-_")
	if name == "" {
		return "repo"
	}
	return name[:min(len(name), 40)]
}

// taken tells which names belong to repositories of orch.yaml at another place.
func (a taskAPI) taken(ctx context.Context) func(name, location string) bool {
	file := a.catalog.current(ctx)
	return func(name, location string) bool {
		repo, known := file.Repo(name)
		return known && repo.Path != location
	}
}

func (a taskAPI) find(ctx context.Context, key string) (task.Task, error) {
	t, err := a.tasks.Get(ctx, key)
	if errors.Is(err, task.ErrNotFound) {
		return task.Task{}, httpapi.NotFound("task")
	}
	return t, err
}

// shown is a task as the API shows it. A task whose pipeline isn't configured any more is shown with the usual cap.
func (a *system) shown(ctx context.Context, t task.Task) api.Task {
	pipeline, err := a.catalog.Pipeline(ctx, t)
	if err != nil {
		pipeline = task.Pipeline{}
	}
	return api.Task{
		ID: t.ID, Key: t.Key, Repo: t.Repo, Title: t.Title, Body: t.Body, Source: t.Source, Branch: t.Branch, Base: t.BaseBranch,
		PullRequest: t.PullRequest, Pipeline: t.Pipeline, Stage: t.Stage, State: api.TaskState(t.State),
		WaitingFor: orNil(t.WaitingFor), ReasonCode: orNil(t.ReasonCode), Reason: orNil(t.Reason), Round: t.Round,
		MaxRounds: pipeline.Rounds(), Priority: t.Priority, Land: t.Land, LandedCommit: orNil(t.LandedCommit),
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt,
	}
}

func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func shownEvent(e task.Event) api.TaskEvent {
	data := e.Data
	if len(data) == 0 {
		data = json.RawMessage(`{}`)
	}
	return api.TaskEvent{ID: e.ID, At: e.At, Actor: e.Actor, Kind: string(e.Kind), Reason: e.Reason, Data: data}
}

func shownRun(r agent.Run, taskKey string) api.Run {
	var outcome *string
	if r.Outcome != nil {
		outcome = orNil(string(*r.Outcome))
	}
	return api.Run{
		ID: r.ID, Task: taskKey, JobID: r.JobID, Purpose: string(r.Purpose), Key: r.Key, Stage: r.Stage, Round: r.Round,
		Attempt: r.Attempt, Agent: r.Agent, State: api.RunState(r.State), Host: r.Host, Pid: r.PID,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Ended: r.Ended, ExitCode: r.ExitCode,
		Signal: r.Signal, Outcome: outcome, Summary: r.Summary, CostUsd: r.CostUSD, InputTokens: r.InputTokens,
		OutputTokens: r.OutputTokens, Turns: r.Turns, LogBytes: r.LogBytes,
	}
}

func shownJob(j queue.Job, taskKey string) api.Job {
	job := api.Job{
		ID: j.ID, Kind: j.Kind, Lane: j.Lane, Args: j.Args, State: api.JobState(j.State), Priority: j.Priority, RunAt: j.RunAt,
		WaitingSince: j.WaitingSince, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts, Recoveries: j.Recoveries, Epoch: j.Epoch,
		WorkerID: j.WorkerID, Host: j.Host, Pid: j.PID, RunID: j.RunID, Phase: j.Phase, HeartbeatAt: j.HeartbeatAt,
		LeaseExpiresAt: j.LeaseExpiresAt, CancelRequestedAt: j.CancelRequestedAt, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt,
		CreatedAt: j.CreatedAt, ErrorCode: j.ErrorCode, Error: j.Error, Task: orNil(taskKey),
	}
	if len(j.Progress) > 0 {
		progress := j.Progress
		job.Progress = &progress
	}
	return job
}
