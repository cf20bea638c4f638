package roster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/stage"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testagent"
)

// budgets is orch.yaml with one agent, which can't go on with sessions of its own cost, and these budgets.
func budgets(text string) string { return "budgets: " + text + "\n" + oneAgent }

// spends is a turn that doesn't end the work, and says what a run of claude costs.
var spends = testagent.Turn{Print: "max_turns", Code: 1}

// used adds to what the task's runs have cost.
func (w *world) used(usd float64) {
	w.t.Helper()
	w.exec(`update runs set cost_usd = $1`, usd)
}

func (w *world) blockedFor(t task.Task, code, words string) {
	w.t.Helper()
	if now := w.get(t); now.State != task.Blocked || now.ReasonCode != code || !strings.Contains(now.Reason, words) {
		w.t.Fatalf("%+v", now)
	}
}

func (w *world) retry(t task.Task) {
	w.t.Helper()
	if _, err := w.store.Retry(w.ctx, t.Key, "me", ""); err != nil {
		w.t.Fatal(err)
	}
}

// A task that has used its money waits for a person, who allows as much again.
func TestOverTheTaskBudgetAPersonIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgets("{run: {max_cost_usd: none}, task: {max_cost_usd: 10}}"))
	p := w.program("coder", "claude", spends, works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.used(12.4)
	w.due()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.blockedFor(added, "budget_task", "has used 12.40 of the 10.00 USD")
	if len(w.calls(p)) != 1 {
		t.Errorf("%d starts", len(w.calls(p)))
	}
	w.retry(added)
	w.through(added)
}

func TestOverTheRunBudgetAPersonIsAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.Replace(oneAgent, "preset: claude", "preset: claude, max_cost_usd: 5", 1))
	w.program("coder", "claude", spends, works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.used(7.2)
	w.due()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.blockedFor(added, "budget_run", "7.20")
	w.retry(added)
	w.through(added)
}

// The day's money is nobody's fault: the jobs wait for the next day, or for a higher limit.
func TestOverTheDayBudgetWaitsForTomorrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgets("{day: {max_cost_usd: 25}}"))
	p := w.program("coder", "claude", works)
	w.exec(`insert into agent_days (day, agent, runs, cost_usd) values ((now() at time zone 'UTC')::date, 'other', 9, 25.1)`)
	added := w.add()
	var snooze *queue.SnoozeError
	for range 4 {
		if err := w.work(); !errors.As(err, &snooze) || snooze.WaitingFor != "budget_day" || snooze.After > lookAgain || snooze.After < time.Second {
			t.Fatal(err)
		}
		w.due()
	}
	if w.get(added).State != task.Active || w.job(added).Attempt != 0 || len(w.calls(p)) != 0 {
		t.Errorf("%+v, %d starts", w.job(added), len(w.calls(p)))
	}
	w.exec(`update agent_days set day = day - 1`)
	w.through(added)
}

func TestRaisedBudgetLetsItGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgets("{day: {max_cost_usd: 25}}"))
	w.program("coder", "claude", works)
	w.exec(`insert into agent_days (day, agent, runs, cost_usd) values ((now() at time zone 'UTC')::date, 'coder', 9, 25.1)`)
	added := w.add()
	var snooze *queue.SnoozeError
	if err := w.work(); !errors.As(err, &snooze) {
		t.Fatal(err)
	}
	w.configure(budgets("{day: {max_cost_usd: 250}}"))
	w.due()
	w.through(added)
}

func TestARunningAgentIsNotEndedByABudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgets("{day: {max_cost_usd: 1}, task: {max_cost_usd: 1}}"))
	end := filepath.Join(w.dir, "go")
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Works, Hold: end})
	added, answer := w.add(), make(chan error, 1)
	l := w.claim()
	go func() { answer <- w.do(l) }()
	w.until("the agent works", func() bool { return len(w.calls(p)) == 1 })
	w.used(99)
	w.exec(`insert into agent_days (day, agent, runs, cost_usd) values ((now() at time zone 'UTC')::date, 'coder', 9, 99)`)
	l.BeginStop() // and it is claimed anew meanwhile
	if err := <-answer; !errors.Is(err, queue.ErrStopping) {
		t.Fatal(err)
	}
	l = w.claim()
	go func() { answer <- w.do(l) }()
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil || w.get(added).Stage != flow.Deploy {
		t.Errorf("%v, %+v", err, w.get(added))
	}
}

func TestRunsOfATaskAreCapped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgets("{task: {max_runs: 2}}"))
	p := w.program("coder", "claude", spends, spends, works)
	added := w.add()
	for range 3 {
		w.due()
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	w.blockedFor(added, stage.CodeRunsExhausted, "used up the 2 agent runs")
	if len(w.calls(p)) != 2 {
		t.Errorf("%d starts", len(w.calls(p)))
	}
	w.retry(added)
	w.through(added)
}

// The setup command is the repository's: its failure is no agent's, and pauses none.
func TestSetupFailureIsNotTheAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", works)
	w.setup("test -e " + w.dir + "/network")
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if job := w.job(added); *job.ErrorCode != stage.CodeSetupFailed || job.Attempt != 1 || len(w.pauses()) != 0 || len(w.calls(p)) != 0 {
		t.Errorf("%+v, pauses %+v", job, w.pauses())
	}
	w.mkdir("network")
	w.due()
	w.through(added)
}
