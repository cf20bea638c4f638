package app

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/agent"
	"orch/internal/httpapi"
	"orch/internal/process"
	"orch/internal/queue"
)

// jobAPI is httpapi.Jobs.
type jobAPI struct{ *system }

// ListJobs implements httpapi.Jobs.
func (a jobAPI) ListJobs(ctx context.Context, filter httpapi.JobFilter) ([]api.Job, error) {
	f := queue.Filter{State: queue.State(filter.State), Before: filter.Before, Limit: filter.Limit}
	if filter.Task != "" {
		t, err := taskAPI(a).find(ctx, filter.Task)
		if err != nil {
			return nil, err
		}
		f.TaskID = t.ID
	}
	jobs, err := a.queue.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return a.shownJobs(ctx, jobs)
}

func (a jobAPI) shownJobs(ctx context.Context, jobs []queue.Job) ([]api.Job, error) {
	var ids []int64
	for _, j := range jobs {
		if j.TaskID != nil {
			ids = append(ids, *j.TaskID)
		}
	}
	keys, err := a.tasks.Keys(ctx, ids)
	if err != nil {
		return nil, err
	}
	shown := make([]api.Job, 0, len(jobs))
	for _, j := range jobs {
		shown = append(shown, shownJob(j, keyOf(keys, j.TaskID)))
	}
	return shown, nil
}

func keyOf(keys map[int64]string, id *int64) string {
	if id == nil {
		return ""
	}
	return keys[*id]
}

// GetJob implements httpapi.Jobs.
func (a jobAPI) GetJob(ctx context.Context, id int64) (api.Job, error) {
	job, err := a.queue.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) {
		return api.Job{}, httpapi.NotFound("job")
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

// CancelJob implements httpapi.Jobs. A task's job isn't cancelled alone: the task would be left without one.
func (a jobAPI) CancelJob(ctx context.Context, id int64, _ string) (api.Job, error) {
	job, err := a.queue.Get(ctx, id)
	if errors.Is(err, queue.ErrNotFound) {
		return api.Job{}, httpapi.NotFound("job")
	}
	if err != nil {
		return api.Job{}, err
	}
	if job.State.Terminal() {
		return api.Job{}, httpapi.Conflict("job_ended", "the job has ended already")
	}
	if job.TaskID != nil {
		keys, err := a.tasks.Keys(ctx, []int64{*job.TaskID})
		if err != nil {
			return api.Job{}, err
		}
		return api.Job{}, httpapi.Conflict("job_of_task",
			"the job moves task "+keys[*job.TaskID]+": cancel the task, its job ends with it")
	}
	if _, err := a.queue.Cancel(ctx, id); err != nil {
		return api.Job{}, err
	}
	return a.GetJob(ctx, id)
}

// runAPI is httpapi.Runs.
type runAPI struct{ *system }

// GetRun implements httpapi.Runs.
func (a runAPI) GetRun(ctx context.Context, id uuid.UUID) (api.Run, error) {
	run, err := a.runs.Get(ctx, id)
	if errors.Is(err, agent.ErrNotFound) {
		return api.Run{}, httpapi.NotFound("run")
	}
	if err != nil {
		return api.Run{}, err
	}
	keys, err := a.tasks.Keys(ctx, []int64{run.TaskID})
	if err != nil {
		return api.Run{}, err
	}
	return shownRun(run, keys[run.TaskID]), nil
}

func (a runAPI) log(ctx context.Context, id uuid.UUID) (*process.Log, error) {
	log, err := a.runs.OpenLog(ctx, id)
	switch {
	case errors.Is(err, agent.ErrNotFound):
		return nil, httpapi.NotFound("log of the run")
	case errors.Is(err, agent.ErrElsewhere):
		return nil, httpapi.Refuse("run_elsewhere", "the run's log is on the machine of another data root: ask the server there")
	}
	return log, err
}

// LogBounds implements httpapi.Runs.
func (a runAPI) LogBounds(ctx context.Context, id uuid.UUID) (first, end int64, err error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return 0, 0, err
	}
	if end, err = log.Size(); err != nil {
		return 0, 0, err
	}
	_, err = log.ReadAt(make([]byte, 1), 0)
	if dropped, ok := errors.AsType[*process.DroppedError](err); ok {
		first = dropped.Oldest
	} else if err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	return first, end, nil
}

// ReadLog implements httpapi.Runs.
func (a runAPI) ReadLog(ctx context.Context, id uuid.UUID, offset int64, limit int) (httpapi.LogPart, error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return httpapi.LogPart{}, err
	}
	part := httpapi.LogPart{Offset: offset, Data: make([]byte, 0, limit)}
	for len(part.Data) < limit {
		at := part.Offset + int64(len(part.Data))
		n, err := log.ReadAt(part.Data[len(part.Data):limit], at)
		var dropped *process.DroppedError
		switch {
		case errors.As(err, &dropped) && len(part.Data) == 0:
			part.Offset = dropped.Oldest
			continue
		case errors.As(err, &dropped), errors.Is(err, io.EOF):
			return part, nil
		case err != nil:
			return httpapi.LogPart{}, err
		}
		part.Data = part.Data[:len(part.Data)+n]
	}
	return part, nil
}

// endWait bounds how long the end of a log waits for the end of its run to be noted.
const endWait = 10 * time.Second

// FollowLog implements httpapi.Runs.
func (a runAPI) FollowLog(ctx context.Context, id uuid.UUID, offset int64, emit func(httpapi.LogPart) error) (httpapi.RunEnd, error) {
	log, err := a.log(ctx, id)
	if err != nil {
		return httpapi.RunEnd{}, err
	}
	for chunk, err := range log.Follow(ctx, offset) {
		if err != nil {
			return httpapi.RunEnd{}, err
		}
		if err := emit(httpapi.LogPart{Offset: chunk.Offset, Data: chunk.Data}); err != nil {
			return httpapi.RunEnd{}, err
		}
	}
	return a.end(ctx, id)
}

// end says how the run ended: the log is complete a moment before that is noted.
func (a runAPI) end(ctx context.Context, id uuid.UUID) (httpapi.RunEnd, error) {
	deadline := time.Now().Add(endWait)
	for {
		run, err := a.runs.Get(ctx, id)
		if err != nil {
			return httpapi.RunEnd{}, err
		}
		if run.State == agent.StateFinished || time.Now().After(deadline) {
			end := httpapi.RunEnd{ExitCode: run.ExitCode, FinishedAt: run.FinishedAt}
			end.Ended, end.Signal, end.Outcome = orEmpty(run.Ended), orEmpty(run.Signal), string(orEmpty(run.Outcome))
			return end, nil
		}
		timer := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return httpapi.RunEnd{}, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func orEmpty[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
