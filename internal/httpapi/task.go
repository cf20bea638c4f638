package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"orch/api"
	"orch/internal/httpapi/form"
	"orch/internal/httpapi/front"
	"orch/internal/httpapi/problem"
)

// ListTasks answers with a page of tasks.
func (h *handlers) ListTasks(ctx context.Context, request api.ListTasksRequestObject) (api.ListTasksResponseObject, error) {
	size, before, err := page(request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	states := value(request.Params.State)
	for _, state := range states {
		if !state.Valid() {
			return nil, problem.BadParameter("state", "must be active, waiting, blocked, done or cancelled")
		}
	}
	slices.Sort(states)
	repo := value(request.Params.Repo)
	if err := checkFilter("repo", repo); err != nil {
		return nil, err
	}
	filter := TaskFilter{States: slices.Compact(states), Repo: repo, Before: before, Limit: size + 1}
	tasks, err := h.tasks.ListTasks(ctx, filter)
	if err != nil {
		return nil, err
	}
	items, next := cut(tasks, size, func(t api.Task) int64 { return t.ID })
	return api.ListTasks200JSONResponse{Items: items, NextCursor: next}, nil
}

// CreateTask adds a task.
func (h *handlers) CreateTask(ctx context.Context, request api.CreateTaskRequestObject) (api.CreateTaskResponseObject, error) {
	if request.Body.Adhoc != nil && front.CameBy(ctx) != front.Socket {
		return nil, &RefusedError{
			Status: http.StatusForbidden, Code: problem.CodeAdhocNeedSocket,
			Detail: "adhoc runs commands of its own and is accepted over the unix socket only; add the repository to orch.yaml instead",
		}
	}
	task, err := newTask(*request.Body)
	if err != nil {
		return nil, err
	}
	task.Source = actor(ctx)
	created, err := h.tasks.CreateTask(ctx, task)
	if err != nil {
		return nil, err
	}
	location := "/tasks/" + url.PathEscape(created.Key)
	return api.CreateTask201JSONResponse{Body: created, Headers: api.CreateTask201ResponseHeaders{Location: &location}}, nil
}

// GetTask answers with all about a task.
func (h *handlers) GetTask(ctx context.Context, request api.GetTaskRequestObject) (api.GetTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	detail, err := h.tasks.GetTask(ctx, request.Key)
	if err != nil {
		return nil, err
	}
	detail.Runs = orEmpty(detail.Runs)
	detail.Events = fillEvents(detail.Events)
	detail.Paused = orEmpty(detail.Paused)
	if detail.Job != nil {
		job := fillJob(*detail.Job)
		detail.Job = &job
	}
	return api.GetTask200JSONResponse(detail), nil
}

// ListTaskEvents answers with a page of what happened to a task.
func (h *handlers) ListTaskEvents(
	ctx context.Context, request api.ListTaskEventsRequestObject,
) (api.ListTaskEventsResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	size, after, err := page(request.Params.Limit, request.Params.Cursor)
	if err != nil {
		return nil, err
	}
	events, err := h.tasks.TaskEvents(ctx, request.Key, EventFilter{After: after, Limit: size + 1})
	if err != nil {
		return nil, err
	}
	items, next := cut(events, size, func(e api.TaskEvent) int64 { return e.ID })
	answer := api.ListTaskEvents200JSONResponse{Items: fillEvents(items), NextCursor: next, LastCursor: request.Params.Cursor}
	if len(items) > 0 {
		answer.LastCursor = new(form.CursorAt(items[len(items)-1].ID))
	}
	return answer, nil
}

// CancelTask cancels a task.
func (h *handlers) CancelTask(ctx context.Context, request api.CancelTaskRequestObject) (api.CancelTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	task, err := h.tasks.CancelTask(ctx, request.Key, actor(ctx))
	if err != nil {
		return nil, err
	}
	return api.CancelTask200JSONResponse(task), nil
}

// maxNote bounds what a person may tell the agent with a retry, in bytes.
const maxNote = 64 << 10

// RetryTask lets a blocked task go on.
func (h *handlers) RetryTask(ctx context.Context, request api.RetryTaskRequestObject) (api.RetryTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	note := value(request.Body.Note)
	if len(note) > maxNote {
		return nil, Invalid("note", fmt.Sprintf("must be at most %d bytes", maxNote))
	}
	task, err := h.tasks.RetryTask(ctx, request.Key, actor(ctx), note)
	if err != nil {
		return nil, err
	}
	return api.RetryTask200JSONResponse(task), nil
}

// AnswerTask answers what the agent of a task has asked.
func (h *handlers) AnswerTask(ctx context.Context, request api.AnswerTaskRequestObject) (api.AnswerTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	answer := request.Body.Answer
	if strings.TrimSpace(answer) == "" || len(answer) > maxNote {
		return nil, Invalid("answer", fmt.Sprintf("must be text of at most %d bytes", maxNote))
	}
	task, err := h.tasks.AnswerTask(ctx, request.Key, actor(ctx), answer)
	if err != nil {
		return nil, err
	}
	return api.AnswerTask200JSONResponse(task), nil
}

// RevertTask adds a task that takes back what a task has landed.
func (h *handlers) RevertTask(ctx context.Context, request api.RevertTaskRequestObject) (api.RevertTaskResponseObject, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	created, err := h.tasks.RevertTask(ctx, request.Key, actor(ctx))
	if err != nil {
		return nil, err
	}
	location := "/tasks/" + url.PathEscape(created.Key)
	return api.RevertTask201JSONResponse{Body: created, Headers: api.RevertTask201ResponseHeaders{Location: &location}}, nil
}

func fillEvents(events []api.TaskEvent) []api.TaskEvent {
	filled := make([]api.TaskEvent, len(events))
	for i, event := range events {
		event.Data = orObject(event.Data)
		filled[i] = event
	}
	return filled
}

func orObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}
