package remote_test

import (
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/cli/exit"
)

func TestAgentListShowsPauseAndUsage(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	if out, _ := orch(t, exit.Done, dataRoot, "agent", "list"); !strings.Contains(out, "no agents") {
		t.Errorf("printed %q", out)
	}
	until := time.Now().Add(48 * time.Hour)
	pause := func(actor, reason, code string, until *time.Time) *api.Pause {
		p := &api.Pause{Scope: api.PauseAgent, Name: "x", Reason: reason, Actor: actor, Since: time.Now(), Until: until}
		if code != "" {
			p.Code = &code
		}
		return p
	}
	b.SetAgents(api.AgentList{
		Items: []api.Agent{
			{
				Name: "coder", Preset: new("claude"), Model: new("opus"), ReportsCost: true, Running: 1,
				Today: api.Budget{Used: api.Usage{Runs: 4, CostUsd: 3.166}, MaxCostUsd: new(15.0)},
			},
			{Name: "locked", Preset: new("gemini"), Paused: pause("orch", "API key \x1b[2Jinvalid", "auth", nil)},
			{Name: "mine", Preset: new("command"), ReportsCost: true, Paused: pause("cli", "broken", "", nil)},
			{Name: "old"},
			{Name: "spare", Preset: new("codex"), Paused: pause("orch", "quota", "quota", &until), Today: api.Budget{Used: api.Usage{Runs: 2}}},
		},
		Today: api.Budget{Used: api.Usage{Runs: 6, CostUsd: 3.166, Unpriced: 2}, MaxCostUsd: new(25.0)},
	})
	out, _ := orch(t, exit.Done, dataRoot, "agent", "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for n, want := range []string{
		"NAME PRESET MODEL RUNNING RUNS TODAY COST TODAY STATE",
		"coder claude opus 1 4 3.17 of 15.00 USD ready",
		"locked gemini - 0 0 - paused, API key [2Jinvalid (`orch resume --agent x`)",
		"mine command - 0 0 0.00 USD paused by cli: broken (`orch resume --agent x`)",
		"old - - 0 0 0.00 USD not in orch.yaml",
		"spare codex - 0 2 - paused, its quota is used up, until " + until.Format("2006-01-02 15:04:05"),
		"today (UTC): 6 runs, 3.17 of 25.00 USD, 0 tokens (2 without a price)",
	} {
		if got := strings.Join(strings.Fields(lines[n]), " "); got != want {
			t.Errorf("line %d is %q, want %q", n, got, want)
		}
	}
	out, _ = orch(t, exit.Done, dataRoot, "agent", "list", "--json")
	if list := decode[api.AgentList](t, out); len(list.Items) != 5 || list.Items[4].Paused == nil {
		t.Errorf("printed %s", out)
	}
}

func TestTaskShowsWhatItHasUsed(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	b.AddTask(api.Task{ID: 1, Key: "demo-1", Repo: "demo", Stage: "development", State: api.TaskActive})
	if out, _ := orch(t, exit.Done, dataRoot, "task", "show", "demo-1"); strings.Contains(out, "used") {
		t.Errorf("printed %q", out)
	}
	b.SetBudget(api.Budget{Used: api.Usage{Runs: 2, CostUsd: 1.25}, MaxCostUsd: new(20.0)})
	if out, _ := orch(t, exit.Done, dataRoot, "task", "show", "demo-1"); !strings.Contains(out, "  used 2 runs, 1.25 of 20.00 USD, 0 tokens\n") {
		t.Errorf("printed %q", out)
	}
}

func TestTaskWithABudgetOfItsOwn(t *testing.T) {
	t.Parallel()
	b, dataRoot := serve(t)
	orch(t, exit.Done, dataRoot, "task", "add", "--repo", "demo", "--title", "x", "--max-cost", "2.5")
	orch(t, exit.Done, dataRoot, "task", "add", "--repo", "demo", "--title", "x")
	if made := b.Created(); made[0].MaxCostUSD == nil || *made[0].MaxCostUSD != 2.5 || made[1].MaxCostUSD != nil {
		t.Errorf("created %+v", made)
	}
	if _, failed := orch(t, exit.Failed, dataRoot, "task", "add", "--repo", "demo", "--title", "x", "--max-cost=-1"); !strings.Contains(failed, "max_cost_usd") {
		t.Errorf("told %q", failed)
	}
}
