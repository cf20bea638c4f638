package apitest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"orch/api"
	"orch/internal/httpapi"
)

// Pauses returns what is paused.
func (b *Backend) Pauses() []api.Pause {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pauses)
}

// Pause implements httpapi.Jobs. Every name but "nowhere" exists.
func (b *Backend) Pause(_ context.Context, p httpapi.NewPause) (api.Pause, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.Name == "nowhere" {
		return api.Pause{}, httpapi.Invalid(string(p.Scope), "there is no nowhere")
	}
	b.endPause(p.Held)
	paused := api.Pause{Scope: p.Scope, Name: p.Name, Reason: p.Reason, Actor: p.Actor, Since: time.Now()}
	b.pauses = append(b.pauses, paused)
	return paused, nil
}

// Resume implements httpapi.Jobs.
func (b *Backend) Resume(_ context.Context, what httpapi.Held) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.endPause(what), nil
}

func (b *Backend) endPause(what httpapi.Held) bool {
	before := len(b.pauses)
	b.pauses = slices.DeleteFunc(b.pauses, func(p api.Pause) bool { return p.Scope == what.Scope && p.Name == what.Name })
	return len(b.pauses) < before
}

// RetryJob implements httpapi.Jobs.
func (b *Backend) RetryJob(_ context.Context, id int64, _ string) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.jobs {
		if job := &b.jobs[i]; job.ID == id {
			if job.State != api.JobFailed && job.State != api.JobCancelled {
				return api.Job{}, httpapi.Conflict("job_not_failed", "the job neither failed nor was it cancelled")
			}
			job.State, job.FinishedAt = api.JobQueued, nil
			return *job, nil
		}
	}
	return api.Job{}, httpapi.NotFound(fmt.Sprintf("job %d", id))
}

// SetAgents says what ListAgents returns.
func (b *Backend) SetAgents(list api.AgentList) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.agents = list
}

// SetBudget says what every task has used.
func (b *Backend) SetBudget(budget api.Budget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.budget = budget
}

// SetRuns says which runs a task has had, newest first.
func (b *Backend) SetRuns(key string, runs ...api.Run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown == nil {
		b.shown = map[string][]api.Run{}
	}
	b.shown[key] = runs
}

// ListAgents implements httpapi.Agents.
func (b *Backend) ListAgents(context.Context) (api.AgentList, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.agents, nil
}
