package view

import (
	"context"
	"maps"
	"slices"

	"orch/api"
	"orch/internal/agent/preset"
	"orch/internal/agent/usage"
	"orch/internal/config/orchyaml"
	"orch/internal/queue/pause"
	"orch/internal/task"
)

// Agents is httpapi.Agents.
type Agents struct{ Sources }

// ListAgents implements httpapi.Agents.
func (a Agents) ListAgents(ctx context.Context) (api.AgentList, error) {
	file := a.Catalog.Current(ctx)
	today, err := a.Usage.Today(ctx)
	if err != nil {
		return api.AgentList{}, err
	}
	running, err := a.Runs.AgentsRunning(ctx)
	if err != nil {
		return api.AgentList{}, err
	}
	paused, err := a.pausedAgents(ctx)
	if err != nil {
		return api.AgentList{}, err
	}
	shown := map[string]api.Agent{}
	for _, entry := range file.Agents {
		shown[entry.Name] = shownAgent(entry)
	}
	day := usage.Usage{}
	for name := range namesIn(today, running, paused) {
		if _, known := shown[name]; !known {
			shown[name] = api.Agent{Name: name}
		}
	}
	list := api.AgentList{}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		item := shown[name]
		item.Running = int64(running[name])
		item.Today.Used = shownUsage(today[name])
		if p, is := paused[name]; is {
			item.Paused = new(shownPause(p))
		}
		list.Items = append(list.Items, item)
		day = day.Plus(today[name])
	}
	list.Today = shownBudget(day, usage.Limit{
		CostUSD: file.Budgets.Day.MaxCostUSD, Tokens: file.Budgets.Day.MaxTokens, Runs: file.Budgets.Day.MaxRuns,
	})
	return list, nil
}

// namesIn are the agents that orch.yaml needn't have: others that ran or were paused.
func namesIn(today map[string]usage.Usage, running map[string]int, paused map[string]pause.Pause) map[string]bool {
	names := map[string]bool{}
	for name := range today {
		names[name] = true
	}
	for name := range running {
		names[name] = true
	}
	for name := range paused {
		names[name] = true
	}
	return names
}

func (a Sources) pausedAgents(ctx context.Context) (map[string]pause.Pause, error) {
	all, err := a.Pauses.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	paused := map[string]pause.Pause{}
	for _, p := range all {
		if p.Scope == pause.Agent {
			paused[p.Name] = p
		}
	}
	return paused, nil
}

func shownAgent(entry orchyaml.Agent) api.Agent {
	own, _ := preset.Of(entry.Preset)
	program := own.Program
	if len(entry.Command.Argv) > 0 {
		program = entry.Command.Argv[0]
	}
	written := preset.Entry{Preset: entry.Preset, Command: preset.Template{Argv: entry.Command.Argv, Shell: entry.Command.Shell}}
	return api.Agent{
		Name: entry.Name, Preset: orNil(entry.Preset), Program: orNil(program), Model: orNil(entry.Model), Fallback: orNil(entry.Fallback),
		Resumes: written.CanResume(), ReportsCost: own.Priced, Today: api.Budget{MaxCostUsd: entry.MaxCostUSDDay},
	}
}

// budget is what a task has used, and what it may. Of one whose plan can't be made any more only the former is known.
func (a Tasks) budget(ctx context.Context, t task.Task) (api.Budget, error) {
	used, err := a.Usage.Task(ctx, t.ID)
	if err != nil {
		return api.Budget{}, err
	}
	plan, err := a.Catalog.Plan(ctx, t)
	if err != nil {
		return shownBudget(used, usage.Limit{CostUSD: t.MaxCostUSD}), nil //nolint:nilerr // the task is shown without
	}
	return shownBudget(used, plan.Limits.Task), nil
}

func shownBudget(used usage.Usage, limit usage.Limit) api.Budget {
	shown := api.Budget{Used: shownUsage(used), MaxCostUsd: limit.CostUSD, MaxTokens: limit.Tokens}
	if limit.Runs != nil {
		shown.MaxRuns = new(int64(*limit.Runs))
	}
	return shown
}

func shownUsage(u usage.Usage) api.Usage {
	return api.Usage{
		Runs: int64(u.Runs), Failed: int64(u.Failed), CostUsd: u.CostUSD, Unpriced: int64(u.Unpriced), InputTokens: u.InputTokens,
		OutputTokens: u.OutputTokens, Turns: u.Turns,
	}
}
