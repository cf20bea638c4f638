package view

import (
	"context"
	"encoding/json"

	"orch/api"
	"orch/internal/agent"
	"orch/internal/queue"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// shown is a task as the API shows it, with the job that moves it, if there is one. A task whose pipeline isn't configured any
// more is shown with the usual cap.
func (a Tasks) shown(ctx context.Context, t task.Task, job *queue.Job) api.Task {
	pipeline, err := a.Catalog.Pipeline(ctx, t)
	if err != nil {
		pipeline = flow.Pipeline{}
	}
	return held(api.Task{
		ID: t.ID, Key: t.Key, Repo: t.Repo, Title: t.Title, Body: t.Body, Source: t.Source, Branch: t.Branch, Base: t.BaseBranch,
		PullRequest: t.PullRequest, Pipeline: t.Pipeline, Stage: t.Stage, State: api.TaskState(t.State),
		WaitingFor: orNil(t.WaitingFor), ReasonCode: orNil(t.ReasonCode), Reason: orNil(t.Reason), Round: t.Round,
		MaxRounds: pipeline.Rounds(), Priority: t.Priority, Land: t.Land, LandedCommit: orNil(t.LandedCommit),
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt,
	}, job)
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
		Preset: r.Preset, SessionID: r.SessionID, ResumedFrom: r.ResumedFrom, Question: r.Question, Detail: r.Detail, Error: r.Error,
		ResetAt: r.ResetAt, CachedTokens: r.CachedTokens, ConsumedAt: r.ConsumedAt, RemovedAt: r.RemovedAt,
		RootID: r.RootID, ShimPid: r.ShimPID, Slot: r.Slot, UserMs: r.UserMS, SystemMs: r.SystemMS, MaxRssBytes: r.MaxRSSBytes,
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

func keyOf(keys map[int64]string, id *int64) string {
	if id == nil {
		return ""
	}
	return keys[*id]
}

func orNil[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func orEmpty[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
