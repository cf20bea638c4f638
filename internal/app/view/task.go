package view

import (
	"context"
	"errors"
	"fmt"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/queue"
	"orch/internal/task"
)

// shownRuns and shownEvents bound what one look at a task brings.
const (
	shownRuns   = 50
	shownEvents = 50
)

// Tasks is httpapi.Tasks.
type Tasks struct{ Sources }

// ListTasks implements httpapi.Tasks.
func (a Tasks) ListTasks(ctx context.Context, filter httpapi.TaskFilter) ([]api.Task, error) {
	f := task.Filter{Repo: filter.Repo, Before: filter.Before, Limit: filter.Limit}
	for _, state := range filter.States {
		f.States = append(f.States, task.State(state))
	}
	found, err := a.Tasks.List(ctx, f)
	if err != nil {
		return nil, err
	}
	var active []int64
	for _, t := range found {
		if t.State == task.Active {
			active = append(active, t.ID)
		}
	}
	jobs, err := a.Overview.OfTasks(ctx, active)
	if err != nil {
		return nil, err
	}
	tasks := make([]api.Task, 0, len(found))
	for _, t := range found {
		var job *queue.Job
		if j, has := jobs[t.ID]; has {
			job = &j
		}
		tasks = append(tasks, a.shown(ctx, t, job))
	}
	return tasks, nil
}

// GetTask implements httpapi.Tasks.
func (a Tasks) GetTask(ctx context.Context, key string) (api.TaskDetail, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return api.TaskDetail{}, err
	}
	job, err := a.Jobs.ActiveForTask(ctx, t.ID)
	if err != nil {
		return api.TaskDetail{}, err
	}
	detail := api.TaskDetail{Task: a.shown(ctx, t, job), Paused: []api.Pause{}, Events: []api.TaskEvent{}, Runs: []api.Run{}}
	if job != nil {
		shown := shownJob(*job, t.Key)
		detail.Job = &shown
		if detail.Elsewhere, err = a.elsewhere(ctx, *job); err != nil {
			return api.TaskDetail{}, err
		}
		if detail.Paused, err = a.pausesOf(ctx, t, *job); err != nil {
			return api.TaskDetail{}, err
		}
	}
	if detail.Budget, err = a.budget(ctx, t); err != nil {
		return api.TaskDetail{}, err
	}
	runs, err := a.Runs.Latest(ctx, t.ID, shownRuns)
	if err != nil {
		return api.TaskDetail{}, err
	}
	for _, run := range runs {
		detail.Runs = append(detail.Runs, shownRun(run, t.Key))
	}
	events, err := a.Tasks.LastEvents(ctx, t.ID, shownEvents)
	if err != nil {
		return api.TaskDetail{}, err
	}
	for _, e := range events {
		detail.Events = append(detail.Events, shownEvent(e))
	}
	return detail, nil
}

// elsewhere is the data root that a queued job is tied to, unless it is this server's.
func (a Tasks) elsewhere(ctx context.Context, job queue.Job) (*api.DataRoot, error) {
	if a.Sighting == nil || job.State != queue.StateQueued || job.PinnedRoot == nil || *job.PinnedRoot == a.Root {
		return nil, nil //nolint:nilnil // here is an answer
	}
	seen, known, err := a.Sighting(ctx, *job.PinnedRoot)
	if err != nil || !known {
		return nil, err
	}
	return &api.DataRoot{ID: *job.PinnedRoot, Host: seen.Host, Path: seen.Path, SeenAt: seen.SeenAt.UTC()}, nil
}

// TaskEvents implements httpapi.Tasks.
func (a Tasks) TaskEvents(ctx context.Context, key string, filter httpapi.EventFilter) ([]api.TaskEvent, error) {
	t, err := a.find(ctx, key)
	if err != nil {
		return nil, err
	}
	events, err := a.Tasks.EventsAfter(ctx, t.ID, filter.After, filter.Limit)
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
func (a Tasks) CancelTask(ctx context.Context, key, actor string) (api.Task, error) {
	t, err := a.Tasks.Cancel(ctx, key, actor)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return api.Task{}, httpapi.NotFound("task " + key)
	case errors.Is(err, task.ErrLandingStarted):
		return api.Task{}, httpapi.Conflict("landing_started", "the landing has started: the task can't be cancelled any more")
	case errors.Is(err, task.ErrEnded):
		return api.Task{}, httpapi.Conflict("task_ended", "the task has ended already")
	case err != nil:
		return api.Task{}, err
	}
	return a.shown(ctx, t, nil), nil
}

// RetryTask implements httpapi.Tasks.
func (a Tasks) RetryTask(ctx context.Context, key, actor, note string) (api.Task, error) {
	t, err := a.Tasks.Retry(ctx, key, actor, note)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return api.Task{}, httpapi.NotFound("task " + key)
	case errors.Is(err, task.ErrNotBlocked):
		return api.Task{}, httpapi.Conflict("task_not_blocked",
			fmt.Sprintf("task %s isn't blocked: there is nothing to retry; `orch why %s` says what it waits for", key, key))
	}
	return a.gone(ctx, t, err)
}

// AnswerTask implements httpapi.Tasks.
func (a Tasks) AnswerTask(ctx context.Context, key, actor, answer string) (api.Task, error) {
	t, err := a.Tasks.Answer(ctx, key, actor, answer)
	switch {
	case errors.Is(err, task.ErrNotFound):
		return api.Task{}, httpapi.NotFound("task " + key)
	case errors.Is(err, task.ErrNotAsking):
		return api.Task{}, httpapi.Conflict("task_not_asking",
			fmt.Sprintf("task %s asks nothing, or was answered already: a hint for the agent of a blocked task goes with `orch task retry %s --note …`", key, key))
	}
	return a.gone(ctx, t, err)
}

// gone shows a task that was to go on, or says what kept it from that.
func (a Tasks) gone(ctx context.Context, t task.Task, err error) (api.Task, error) {
	switch {
	case errors.Is(err, task.ErrUnknownPipeline):
		return api.Task{}, httpapi.Refuse("configuration", err.Error())
	case errors.Is(err, task.ErrBusy):
		return api.Task{}, httpapi.Conflict("task_busy", "a job of the task hasn't ended yet: try again in a moment")
	case err != nil:
		return api.Task{}, err
	}
	return a.shown(ctx, t, nil), nil
}

func (a Tasks) find(ctx context.Context, key string) (task.Task, error) {
	t, err := a.Tasks.Get(ctx, key)
	if errors.Is(err, task.ErrNotFound) {
		return task.Task{}, httpapi.NotFound("task " + key)
	}
	return t, err
}
