package usage_test

import (
	"testing"
	"time"

	"orch/internal/agent/usage"
)

func TestOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits usage.Limits
		spent  usage.Spent
		code   string
		reason string
	}{
		"nothing is bounded": {usage.Limits{}, usage.Spent{Runs: 1000, Task: usage.Usage{CostUSD: 1e6}}, "", ""},
		"below everything": {
			usage.Limits{Run: usage.Limit{CostUSD: new(5.0)}, Task: usage.Limit{Runs: new(20)}, Day: usage.Limit{CostUSD: new(25.0)}},
			usage.Spent{Runs: 19, Last: usage.Usage{CostUSD: 5}, Day: usage.Usage{CostUSD: 24.99}},
			"", "",
		},
		"runs of the task": {
			usage.Limits{Task: usage.Limit{Runs: new(20)}},
			usage.Spent{Runs: 20},
			usage.CodeRuns,
			"the task has used up the 20 agent runs that it may have (budgets.task.max_runs): find out why it needs so many, " +
				"then allow some more with `orch task retry demo-1`, or cancel it",
		},
		"runs that a retry granted": {usage.Limits{Task: usage.Limit{Runs: new(20)}}, usage.Spent{Runs: 22, Retries: 1}, "", ""},
		"and those used up":         {usage.Limits{Task: usage.Limit{Runs: new(20)}}, usage.Spent{Runs: 23, Retries: 1}, usage.CodeRuns, ""},
		"cost of the task": {
			usage.Limits{Task: usage.Limit{CostUSD: new(10.0)}},
			usage.Spent{Task: usage.Usage{CostUSD: 12.4}},
			usage.CodeTask,
			"the task has used 12.40 of the 10.00 USD that it may (budgets.task.max_cost_usd): allow as much again with `orch task retry demo-1`, or cancel it",
		},
		"what the task says itself": {
			usage.Limits{Task: usage.Limit{CostUSD: new(1.5)}, OwnCost: true},
			usage.Spent{Task: usage.Usage{CostUSD: 1.5}},
			usage.CodeTask,
			"the task has used 1.50 of the 1.50 USD that it may (its own max_cost_usd): allow as much again with `orch task retry demo-1`, or cancel it",
		},
		"tokens of the task": {
			usage.Limits{Task: usage.Limit{Tokens: new(int64(100))}},
			usage.Spent{Task: usage.Usage{InputTokens: 90, OutputTokens: 10}},
			usage.CodeTask,
			"the task has used 100 of the 100 tokens that it may (budgets.task.max_tokens): allow as much again with `orch task retry demo-1`, or cancel it",
		},
		"cost of a run": {
			usage.Limits{Run: usage.Limit{CostUSD: new(5.0)}},
			usage.Spent{Last: usage.Usage{Runs: 1, CostUSD: 7.2}},
			usage.CodeRun,
			"its last run used 7.20, more than the 5.00 USD that one may (max_cost_usd): look at what it did with `orch task show demo-1`, " +
				"then let it go on with `orch task retry demo-1`",
		},
		"all that a run may cost": {usage.Limits{Run: usage.Limit{CostUSD: new(5.0), Tokens: new(int64(10))}}, usage.Spent{Last: usage.Usage{CostUSD: 5, InputTokens: 10}}, "", ""},
		"tokens of a run":         {usage.Limits{Run: usage.Limit{CostUSD: new(5.0), Tokens: new(int64(10))}}, usage.Spent{Last: usage.Usage{CostUSD: 5, InputTokens: 11}}, usage.CodeRun, ""},
		"cost of the day": {
			usage.Limits{Day: usage.Limit{CostUSD: new(25.0)}},
			usage.Spent{Day: usage.Usage{CostUSD: 25.1}},
			usage.CodeDay,
			"today's runs have used 25.10 of 25.00 USD (budgets.day.max_cost_usd): it goes on at 00:00 UTC, or within ten minutes of a higher limit in orch.yaml",
		},
		"runs of the day": {
			usage.Limits{Day: usage.Limit{Runs: new(3)}},
			usage.Spent{Day: usage.Usage{Runs: 3}},
			usage.CodeDay,
			"today's runs have used 3 of 3 runs (budgets.day.max_runs): it goes on at 00:00 UTC, or within ten minutes of a higher limit in orch.yaml",
		},
		"an agent's day": {
			usage.Limits{Agent: usage.Limit{CostUSD: new(1.0)}, AgentName: "coder"},
			usage.Spent{Agent: usage.Usage{CostUSD: 1}},
			usage.CodeDay,
			"today's runs of agent coder have used 1.00 of 1.00 USD (agents.coder.max_cost_usd_day): it goes on at 00:00 UTC, or within ten minutes of a higher limit in orch.yaml",
		},
		"what a person has to do comes first": {
			usage.Limits{Task: usage.Limit{CostUSD: new(1.0)}, Day: usage.Limit{CostUSD: new(1.0)}},
			usage.Spent{Task: usage.Usage{CostUSD: 1}, Day: usage.Usage{CostUSD: 1}},
			usage.CodeTask, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over, is := test.limits.Over(test.spent, "demo-1")
			if over.Code != test.code || is != (test.code != "") || test.reason != "" && over.Reason != test.reason || over.Waits != (over.Code == usage.CodeDay) {
				t.Errorf("%v: %+v, want %s: %s", is, over, test.code, test.reason)
			}
		})
	}
}

func TestTheDayBeginsAtMidnightUTC(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("tokyo", 9*60*60)
	for _, now := range []time.Time{
		time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 23, 59, 59, 999, time.UTC), time.Date(2026, 3, 2, 8, 59, 0, 0, tokyo),
	} {
		if next := usage.NextDay(now); !next.Equal(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("after %v comes %v", now, next)
		}
	}
}
