// Package apitest has parts in memory behind an API server, for tests of the server and of its clients.
package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi"
)

// Backend holds tasks, jobs and runs in memory. Its zero value is empty and ready.
type Backend struct {
	mu      sync.Mutex
	tasks   []api.Task
	created []httpapi.NewTask
	events  map[string][]api.TaskEvent
	jobs    []api.Job
	runs    map[uuid.UUID]*Run
	checks  []api.Check
	pauses  []api.Pause
	agents  api.AgentList
	budget  api.Budget
	shown   map[string][]api.Run
	queue   func(context.Context) (api.Queue, error)
}

// Config serves a backend on a socket and on a loopback port that the system chooses.
func Config(b *Backend, socket string) httpapi.Config {
	return httpapi.Config{
		Addr: "127.0.0.1:0", SocketPath: socket, Tasks: b, Jobs: b, Runs: b, Agents: b, Queue: b, Readiness: b,
	}
}

// Start runs a server until the test ends, or until the function that it returns is called.
func Start(tb testing.TB, cfg httpapi.Config) (server *httpapi.Server, stop func()) {
	tb.Helper()
	server, err := httpapi.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- server.Run(ctx, func() { close(ready) }) }()
	stop = sync.OnceFunc(func() {
		cancel(nil)
		if err := <-done; err != nil {
			tb.Errorf("the server ended with: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		cancel(nil)
		tb.Fatalf("the server didn't start: %v", err)
	}
	tb.Cleanup(stop)
	return server, stop
}

// AddTask adds a task as it is.
func (b *Backend) AddTask(task api.Task, events ...api.TaskEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks = append(b.tasks, task)
	if b.events == nil {
		b.events = map[string][]api.TaskEvent{}
	}
	b.events[task.Key] = events
}

// AddJob adds a job as it is.
func (b *Backend) AddJob(job api.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs = append(b.jobs, job)
}

// Created returns what CreateTask was given.
func (b *Backend) Created() []httpapi.NewTask {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.created)
}

// SetChecks sets what readiness answers.
func (b *Backend) SetChecks(checks ...api.Check) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks = checks
}

// SetQueue sets what builds queue snapshots.
func (b *Backend) SetQueue(build func(context.Context) (api.Queue, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = build
}

// Queue implements httpapi.QueueSource.
func (b *Backend) Queue(ctx context.Context) (api.Queue, error) {
	b.mu.Lock()
	build := b.queue
	b.mu.Unlock()
	if build == nil {
		return api.Queue{}, nil
	}
	return build(ctx)
}

// Check implements httpapi.Readiness.
func (b *Backend) Check(context.Context) []api.Check {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checks
}

// ListTasks implements httpapi.Tasks.
func (b *Backend) ListTasks(_ context.Context, filter httpapi.TaskFilter) ([]api.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := storable(filter.Repo); err != nil {
		return nil, err
	}
	var found []api.Task
	for _, task := range slices.Backward(b.tasks) {
		if len(filter.States) > 0 && !slices.Contains(filter.States, task.State) ||
			filter.Repo != "" && task.Repo != filter.Repo || filter.Before > 0 && task.ID >= filter.Before {
			continue
		}
		if found = append(found, task); len(found) == filter.Limit {
			break
		}
	}
	return found, nil
}

// storable fails for a text that PostgreSQL would fail for.
func storable(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return errors.New(`invalid byte sequence for encoding "UTF8"`)
	}
	return nil
}

func (b *Backend) task(key string) (*api.Task, error) {
	if err := storable(key); err != nil {
		return nil, err
	}
	for i := range b.tasks {
		if b.tasks[i].Key == key {
			return &b.tasks[i], nil
		}
	}
	return nil, httpapi.NotFound("task " + key)
}

// GetTask implements httpapi.Tasks.
func (b *Backend) GetTask(_ context.Context, key string) (api.TaskDetail, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	task, err := b.task(key)
	if err != nil {
		return api.TaskDetail{}, err
	}
	return api.TaskDetail{Task: *task, Budget: b.budget, Runs: b.shown[key], Events: b.events[key]}, nil
}

// TaskEvents implements httpapi.Tasks.
func (b *Backend) TaskEvents(_ context.Context, key string, filter httpapi.EventFilter) ([]api.TaskEvent, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.task(key); err != nil {
		return nil, err
	}
	var found []api.TaskEvent
	for _, event := range b.events[key] {
		if event.ID > filter.After && len(found) < filter.Limit {
			found = append(found, event)
		}
	}
	return found, nil
}

// CreateTask implements httpapi.Tasks.
func (b *Backend) CreateTask(_ context.Context, task httpapi.NewTask) (api.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.created = append(b.created, task)
	id := int64(len(b.tasks) + 1)
	made := api.Task{
		ID: id, Key: fmt.Sprintf("%s-%d", task.Repo, id), Repo: task.Repo, Title: task.Title, Body: task.Body, Source: task.Source,
		Base: task.Base, State: api.TaskActive, Round: 1, Priority: task.Priority,
	}
	b.tasks = append(b.tasks, made)
	return made, nil
}

// CancelTask implements httpapi.Tasks.
func (b *Backend) CancelTask(_ context.Context, key, actor string) (api.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	task, err := b.task(key)
	if err != nil {
		return api.Task{}, err
	}
	if task.State == api.TaskDone || task.State == api.TaskCancelled {
		return api.Task{}, httpapi.Conflict("task_ended", "the task has ended")
	}
	task.State, task.ReasonCode = api.TaskCancelled, &actor
	return *task, nil
}

// RetryTask implements httpapi.Tasks.
func (b *Backend) RetryTask(_ context.Context, key, _, note string) (api.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	task, err := b.task(key)
	if err != nil {
		return api.Task{}, err
	}
	if task.State != api.TaskBlocked {
		return api.Task{}, httpapi.Conflict("task_not_blocked", "the task isn't blocked")
	}
	task.State, task.Reason = api.TaskActive, &note
	return *task, nil
}

// AnswerTask implements httpapi.Tasks.
func (b *Backend) AnswerTask(_ context.Context, key, _, answer string) (api.Task, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	task, err := b.task(key)
	if err != nil {
		return api.Task{}, err
	}
	if task.State != api.TaskBlocked || task.ReasonCode == nil || *task.ReasonCode != "needs_input" {
		return api.Task{}, httpapi.Conflict("task_not_asking", "the task doesn't ask anything")
	}
	task.State, task.Reason = api.TaskActive, &answer
	return *task, nil
}

// RevertTask implements httpapi.Tasks.
func (b *Backend) RevertTask(ctx context.Context, key, actor string) (api.Task, error) {
	b.mu.Lock()
	task, err := b.task(key)
	b.mu.Unlock()
	if err != nil {
		return api.Task{}, err
	}
	if task.State != api.TaskDone {
		return api.Task{}, httpapi.Conflict("task_not_landed", "the task hasn't landed")
	}
	return b.CreateTask(ctx, httpapi.NewTask{Repo: task.Repo, Title: "Revert " + key + ": " + task.Title, Source: actor})
}

// Salvages implements httpapi.Tasks: a task that is blocked has two.
func (b *Backend) Salvages(_ context.Context, key string) ([]api.Salvage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	task, err := b.task(key)
	if err != nil || task.State != api.TaskBlocked {
		return nil, err
	}
	var all []api.Salvage
	for n := 1; n <= 2; n++ {
		all = append(all, api.Salvage{
			Number: n, Ref: fmt.Sprintf("refs/orch/salvage/%s/%d", key, n), Commit: strings.Repeat(strconv.Itoa(n), 40),
			CommittedAt: time.Unix(int64(n), 0).UTC(), Subject: "orch: salvaged",
		})
	}
	return all, nil
}

// RestoreTask implements httpapi.Tasks. The branch main is taken.
func (b *Backend) RestoreTask(ctx context.Context, key, _ string, r httpapi.Restore) (api.Restored, error) {
	all, err := b.Salvages(ctx, key)
	if err != nil {
		return api.Restored{}, err
	}
	if r.Salvage > len(all) || len(all) == 0 {
		return api.Restored{}, &httpapi.RefusedError{Status: http.StatusNotFound, Code: "no_salvage", Detail: "nothing was salvaged"}
	}
	if r.Branch == "main" {
		return api.Restored{}, httpapi.Conflict("branch_taken", "main is taken")
	}
	n := cmp.Or(r.Salvage, len(all))
	branch := cmp.Or(r.Branch, fmt.Sprintf("orch/restored/%s-%d", key, n))
	return api.Restored{Salvage: n, Ref: all[n-1].Ref, Commit: all[n-1].Commit, Branch: branch, Repository: "/srv/repo"}, nil
}

// ListJobs implements httpapi.Jobs.
func (b *Backend) ListJobs(_ context.Context, filter httpapi.JobFilter) ([]api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := storable(filter.Task); err != nil {
		return nil, err
	}
	var found []api.Job
	for _, job := range slices.Backward(b.jobs) {
		if filter.State != "" && job.State != filter.State || filter.Before > 0 && job.ID >= filter.Before ||
			filter.Task != "" && (job.Task == nil || *job.Task != filter.Task) {
			continue
		}
		if found = append(found, job); len(found) == filter.Limit {
			break
		}
	}
	return found, nil
}

// GetJob implements httpapi.Jobs.
func (b *Backend) GetJob(_ context.Context, id int64) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, job := range b.jobs {
		if job.ID == id {
			return job, nil
		}
	}
	return api.Job{}, httpapi.NotFound(fmt.Sprintf("job %d", id))
}

// CancelJob implements httpapi.Jobs.
func (b *Backend) CancelJob(_ context.Context, id int64, _ string) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.jobs {
		if job := &b.jobs[i]; job.ID == id {
			if job.FinishedAt != nil {
				return api.Job{}, httpapi.Conflict("job_ended", "the job has ended")
			}
			now := time.Now()
			job.State, job.FinishedAt = api.JobCancelled, &now
			return *job, nil
		}
	}
	return api.Job{}, httpapi.NotFound(fmt.Sprintf("job %d", id))
}
