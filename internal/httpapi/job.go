package httpapi

import (
	"context"
	"fmt"

	"orch/api"
	"orch/internal/httpapi/problem"
)

// ListJobs answers with a page of jobs.
func (h *handlers) ListJobs(ctx context.Context, request api.ListJobsRequestObject) (api.ListJobsResponseObject, error) {
	size, before, err := page(request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	state := value(request.Params.State)
	if state != "" && !state.Valid() {
		return nil, problem.BadParameter("state", "must be queued, running, succeeded, failed or cancelled")
	}
	task := value(request.Params.Task)
	if err := checkFilter("task", task); err != nil {
		return nil, err
	}
	jobs, err := h.jobs.ListJobs(ctx, JobFilter{State: state, Task: task, Before: before, Limit: size + 1})
	if err != nil {
		return nil, err
	}
	items, next := cut(jobs, size, func(j api.Job) int64 { return j.ID })
	filled := make([]api.Job, len(items))
	for i, job := range items {
		filled[i] = fillJob(job)
	}
	return api.ListJobs200JSONResponse{Items: filled, NextCursor: next}, nil
}

// GetJob answers with one job.
func (h *handlers) GetJob(ctx context.Context, request api.GetJobRequestObject) (api.GetJobResponseObject, error) {
	if request.ID < 1 {
		return nil, NotFound(fmt.Sprintf("job %d", request.ID))
	}
	job, err := h.jobs.GetJob(ctx, request.ID)
	if err != nil {
		return nil, err
	}
	return api.GetJob200JSONResponse(fillJob(job)), nil
}

// CancelJob cancels one job, or asks its worker to.
func (h *handlers) CancelJob(ctx context.Context, request api.CancelJobRequestObject) (api.CancelJobResponseObject, error) {
	if request.ID < 1 {
		return nil, NotFound(fmt.Sprintf("job %d", request.ID))
	}
	job, err := h.jobs.CancelJob(ctx, request.ID, actor(ctx))
	if err != nil {
		return nil, err
	}
	return api.CancelJob200JSONResponse(fillJob(job)), nil
}

// RetryJob gives a job that failed or was cancelled another attempt.
func (h *handlers) RetryJob(ctx context.Context, request api.RetryJobRequestObject) (api.RetryJobResponseObject, error) {
	if request.ID < 1 {
		return nil, NotFound(fmt.Sprintf("job %d", request.ID))
	}
	job, err := h.jobs.RetryJob(ctx, request.ID, actor(ctx))
	if err != nil {
		return nil, err
	}
	return api.RetryJob200JSONResponse(fillJob(job)), nil
}

func fillJob(job api.Job) api.Job {
	job.Args = orObject(job.Args)
	if job.Progress != nil && len(*job.Progress) == 0 {
		job.Progress = nil
	}
	return job
}
