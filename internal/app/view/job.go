package view

import (
	"context"
	"errors"
	"strconv"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/task"
)

// Jobs is httpapi.Jobs.
type Jobs struct{ Sources }

// ListJobs implements httpapi.Jobs.
func (a Jobs) ListJobs(ctx context.Context, filter httpapi.JobFilter) ([]api.Job, error) {
	f := overview.Filter{State: queue.State(filter.State), Before: filter.Before, Limit: filter.Limit}
	if filter.Task != "" {
		t, err := Tasks(a).find(ctx, filter.Task)
		if err != nil {
			return nil, err
		}
		f.TaskID = t.ID
	}
	jobs, err := a.Overview.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return a.shownJobs(ctx, jobs)
}

func (a Jobs) shownJobs(ctx context.Context, jobs []queue.Job) ([]api.Job, error) {
	var ids []int64
	for _, j := range jobs {
		if j.TaskID != nil {
			ids = append(ids, *j.TaskID)
		}
	}
	keys, err := a.Tasks.Keys(ctx, ids)
	if err != nil {
		return nil, err
	}
	shown := make([]api.Job, 0, len(jobs))
	for _, j := range jobs {
		shown = append(shown, shownJob(j, keyOf(keys, j.TaskID)))
	}
	return shown, nil
}

// GetJob implements httpapi.Jobs.
func (a Jobs) GetJob(ctx context.Context, id int64) (api.Job, error) {
	job, err := a.Jobs.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) {
		return api.Job{}, noJob(id)
	}
	if err != nil {
		return api.Job{}, err
	}
	shown, err := a.shownJobs(ctx, []queue.Job{job})
	if err != nil {
		return api.Job{}, err
	}
	return shown[0], nil
}

// CancelJob implements httpapi.Jobs. A task's job isn't cancelled alone: the task would only
// be given another one by the reconciler.
func (a Jobs) CancelJob(ctx context.Context, id int64, _ string) (api.Job, error) {
	job, err := a.Jobs.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) {
		return api.Job{}, noJob(id)
	}
	if err != nil {
		return api.Job{}, err
	}
	if job.State.Terminal() {
		return api.Job{}, httpapi.Conflict("job_ended", "the job has ended already")
	}
	if job.TaskID != nil {
		keys, err := a.Tasks.Keys(ctx, []int64{*job.TaskID})
		if err != nil {
			return api.Job{}, err
		}
		if job.Kind == task.KindRetire {
			return api.Job{}, httpapi.Conflict("job_of_task",
				"the job cleans up after task "+keys[*job.TaskID]+": it ends by itself, and would only be queued again")
		}
		return api.Job{}, httpapi.Conflict("job_of_task",
			"the job moves task "+keys[*job.TaskID]+": cancel the task, its job ends with it")
	}
	if _, err := a.Jobs.Cancel(ctx, id); err != nil {
		return api.Job{}, err
	}
	return a.GetJob(ctx, id)
}

// RetryJob implements httpapi.Jobs. A job that moved a task isn't retried: the task may have gone on, with another job.
// The clean-up after a task is: nothing else would bring it back.
func (a Jobs) RetryJob(ctx context.Context, id int64, _ string) (api.Job, error) {
	job, err := a.Jobs.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) {
		return api.Job{}, noJob(id)
	}
	if err != nil {
		return api.Job{}, err
	}
	if job.TaskID != nil && job.Kind != task.KindRetire {
		keys, err := a.Tasks.Keys(ctx, []int64{*job.TaskID})
		if err != nil {
			return api.Job{}, err
		}
		key := keys[*job.TaskID]
		return api.Job{}, httpapi.Conflict("job_of_task",
			"the job belongs to task "+key+": retry the task, with `orch task retry "+key+"`")
	}
	_, err = a.Jobs.Requeue(ctx, id)
	switch {
	case errors.Is(err, queue.ErrNotFound): // pruned in this moment
		return api.Job{}, noJob(id)
	case errors.Is(err, queue.ErrNotEnded):
		return api.Job{}, httpapi.Conflict("job_not_failed", "only a job that failed or was cancelled is retried")
	case errors.Is(err, queue.ErrDuplicate):
		return api.Job{}, httpapi.Conflict("job_has_twin", "the same work is queued or running already, as another job")
	case err != nil:
		return api.Job{}, err
	}
	return a.GetJob(ctx, id)
}

func noJob(id int64) error { return httpapi.NotFound("job " + strconv.FormatInt(id, 10)) }
