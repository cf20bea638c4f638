package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"orch/api"
	"orch/internal/httpapi"
	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/task"
)

// lanes are those that jobs are in.
func lanes() []string { return []string{task.LaneAgents, task.LaneMerge, task.LaneSystem} }

// Pause implements httpapi.Jobs.
func (a Jobs) Pause(ctx context.Context, p httpapi.NewPause) (api.Pause, error) {
	if err := a.checkHeld(ctx, p.Held); err != nil {
		return api.Pause{}, err
	}
	wanted := pause.Pause{Scope: pause.Scope(p.Scope), Name: p.Name, Reason: p.Reason, Actor: p.Actor}
	if err := a.Pauses.Pause(ctx, wanted); err != nil {
		return api.Pause{}, err
	}
	paused, err := a.Pauses.Pauses(ctx)
	if err != nil {
		return api.Pause{}, err
	}
	for _, found := range paused {
		if found.Scope == wanted.Scope && found.Name == wanted.Name {
			return shownPause(found), nil
		}
	}
	return shownPause(wanted), nil // resumed by somebody in this moment
}

// Resume implements httpapi.Jobs.
func (a Jobs) Resume(ctx context.Context, what httpapi.Held) (bool, error) {
	was, err := a.Pauses.Resume(ctx, pause.Scope(what.Scope), what.Name)
	if err != nil || was {
		return was, err
	}
	return false, a.checkHeld(ctx, what)
}

// checkHeld refuses a name that means nothing: a pause that holds back nothing would lull whoever made it.
func (a Jobs) checkHeld(ctx context.Context, what httpapi.Held) error {
	if what.Scope == api.PauseLane {
		if !slices.Contains(lanes(), what.Name) {
			return httpapi.Invalid("lane", fmt.Sprintf("no lane is called %q; there are: %s", what.Name, strings.Join(lanes(), ", ")))
		}
		return nil
	}
	if what.Scope == api.PauseAgent {
		return a.checkAgent(ctx, what.Name)
	}
	known, err := a.repoNames(ctx)
	if err != nil || slices.Contains(known, what.Name) {
		return err
	}
	seen, err := a.Tasks.List(ctx, task.Filter{Repo: what.Name, Limit: 1})
	if err != nil || len(seen) > 0 {
		return err
	}
	if len(known) == 0 {
		return httpapi.Invalid("repo", fmt.Sprintf("no repository is called %q, and none is configured", what.Name))
	}
	return httpapi.Invalid("repo", fmt.Sprintf("no repository is called %q; there are: %s", what.Name, strings.Join(known, ", ")))
}

// checkAgent takes the agents of orch.yaml, and others that have run today or are paused.
func (a Jobs) checkAgent(ctx context.Context, name string) error {
	list, err := Agents(a).ListAgents(ctx)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		if item.Name == name {
			return nil
		}
		names = append(names, item.Name)
	}
	if len(names) == 0 {
		return httpapi.Invalid("agent", fmt.Sprintf("no agent is called %q, and none is configured", name))
	}
	return httpapi.Invalid("agent", fmt.Sprintf("no agent is called %q; there are: %s", name, strings.Join(names, ", ")))
}

// repoNames are the repositories of orch.yaml, and those that are paused: another server of this database may have
// them.
func (a Jobs) repoNames(ctx context.Context) ([]string, error) {
	names := slices.Clone(a.Catalog.Current(ctx).RepoNames())
	paused, err := a.Pauses.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range paused {
		if p.Scope == pause.Repo {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func shownPause(p pause.Pause) api.Pause {
	shown := api.Pause{
		Scope: api.PauseScope(p.Scope), Name: p.Name, Reason: p.Reason, Actor: p.Actor, Since: p.At.UTC(), Code: orNil(p.Code),
	}
	if p.Until != nil {
		shown.Until = new(p.Until.UTC())
	}
	return shown
}

// pausesOf are the pauses that hold back a task's job: a queued one that no living run pins.
func (a Tasks) pausesOf(ctx context.Context, t task.Task, job queue.Job) ([]api.Pause, error) {
	holding := []api.Pause{}
	if job.State != queue.StateQueued || job.RunID != nil {
		return holding, nil
	}
	paused, err := a.Pauses.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range paused {
		holds := p.Scope == pause.Lane && p.Name == job.Lane || p.Scope == pause.Repo && p.Name == t.Repo ||
			p.Scope == pause.Agent && orEmpty(job.Phase) == pause.WaitingForAgent(p.Name)
		if holds {
			holding = append(holding, shownPause(p))
		}
	}
	return holding, nil
}
