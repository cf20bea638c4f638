package main

import (
	"strings"
	"syscall"
	"testing"

	"orch/api"
	"orch/internal/testagent"
)

// A task uses up what it may and waits for a person, who allows as much again; then all tasks together use up the day.
func TestBudgetsHoldBackWhatWouldGoBeyond(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	commit := func(name string) testagent.Turn { // each costs 0.032467 USD
		return testagent.Turn{Kind: testagent.Works, Work: "echo x > " + name + " && git add " + name + " && git commit -qm " + name}
	}
	program := testagent.Install(t, p.dir, "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{commit("one"), commit("two"), commit("three")}})
	p.write("root/orch.yaml", `budgets:
  task: {max_cost_usd: 0.05}
  day: {max_cost_usd: 0.09}
repos:
  - {name: app, path: `+p.repo+`, test: test -f three}
agents:
  coder: {preset: claude, command: [`+program.Path+`]}
`)
	p.onGivenDatabase()
	s := p.serve()
	key := s.add("Do it")
	s.until(key, "its budget is used up", func(d api.TaskDetail) bool {
		return d.Task.State == api.TaskBlocked && *d.Task.ReasonCode == "budget_task"
	})
	if out := p.orch("why", key); !strings.Contains(out, "used 0.06 of the 0.05 USD that it may (budgets.task.max_cost_usd)") || !strings.Contains(out, "orch task retry "+key) {
		t.Errorf("orch why:\n%s", out)
	}
	if n := len(program.Calls(t)); n != 2 {
		t.Errorf("started %d times", n)
	}
	p.orch("task", "retry", key)
	if d := s.landed(key); d.Budget.Used.Runs != 3 || *d.Budget.MaxCostUsd != 0.05 {
		t.Errorf("used %+v", d.Budget)
	}
	second := s.add("Do more")
	s.until(second, "the day's budget is used up", func(d api.TaskDetail) bool {
		return d.Job != nil && d.Job.Phase != nil && *d.Job.Phase == "budget_day"
	})
	if out := p.orch("why", second); !strings.Contains(out, "Today's budget is used up") {
		t.Errorf("orch why:\n%s", out)
	}
	if out := p.orch("agent", "list"); !strings.Contains(out, "today (UTC): 3 runs, 0.10 of 0.09 USD") {
		t.Errorf("orch agent list:\n%s", out)
	}
	if n := len(program.Calls(t)); n != 3 {
		t.Errorf("started %d times", n)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}
