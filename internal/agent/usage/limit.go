package usage

import (
	"fmt"
	"strconv"
	"time"
)

// Usage sums runs of agents.
type Usage struct {
	Runs         int     `db:"runs"`
	Failed       int     `db:"failed"` // ended otherwise than well, for a reason of the agent's
	CostUSD      float64 `db:"cost_usd"`
	Unpriced     int     `db:"unpriced"` // ended without naming a cost: CostUSD doesn't know of them
	InputTokens  int64   `db:"input_tokens"`
	OutputTokens int64   `db:"output_tokens"`
	Turns        int64   `db:"turns"`
}

// Plus is the sum of both.
func (u Usage) Plus(other Usage) Usage {
	return Usage{
		Runs: u.Runs + other.Runs, Failed: u.Failed + other.Failed, CostUSD: u.CostUSD + other.CostUSD, Unpriced: u.Unpriced + other.Unpriced,
		InputTokens: u.InputTokens + other.InputTokens, OutputTokens: u.OutputTokens + other.OutputTokens, Turns: u.Turns + other.Turns,
	}
}

// Tokens are those of both directions.
func (u Usage) Tokens() int64 { return u.InputTokens + u.OutputTokens }

// Limit bounds a Usage; what is nil has no bound.
type Limit struct {
	CostUSD *float64
	Tokens  *int64
	Runs    *int
}

// Limits are the budgets for one task's next run.
type Limits struct {
	// Run bounds each run, Task all of the task, Day all of a day, Agent a day of the agent called AgentName.
	Run, Task, Day, Agent Limit
	AgentName             string
	// OwnCost means that the task itself says what it may cost.
	OwnCost bool
}

// Spent is what the limits are held against. Last and Task don't know of runs before a person allowed more.
type Spent struct {
	// Runs counts the runs that the task ever had, but for those that aren't its agent's doing; Retries how often a person
	// let it go on.
	Runs, Retries int
	Task          Usage // its living runs included, with what is known of them
	Last          Usage // the newest run that has ended
	Day, Agent    Usage
	LastAgent     string // whose run Last was: its limit counts, not that of the agent that is next
}

// Codes of what is over.
const (
	CodeRuns = "runs_exhausted"
	CodeRun  = "budget_run"
	CodeTask = "budget_task"
	CodeDay  = "budget_day"
)

// PerPerson says of a code that a person's retry allows as much again.
func PerPerson(code string) bool { return code == CodeRun || code == CodeTask }

// runsPerRetry is how many more runs each retry by a person grants.
const runsPerRetry = 3

// Over is a budget that has been used up.
type Over struct {
	Code   string
	Reason string // a sentence that says what to do
	// Waits means that it passes by itself, at NextDay.
	Waits bool
}

// Over says which budget keeps the task called key from another run: the first that a person has to do something about,
// else the one that passes by itself.
func (l Limits) Over(s Spent, key string) (Over, bool) {
	if l.Task.Runs != nil && s.Runs >= *l.Task.Runs+s.Retries*runsPerRetry {
		return Over{Code: CodeRuns, Reason: fmt.Sprintf("the task has used up the %d agent runs that it may have (budgets.task.max_runs): "+
			"find out why it needs so many, then allow some more with `orch task retry %s`, or cancel it", *l.Task.Runs, key)}, true
	}
	// The number of a task's runs was looked at, and of one run there is one.
	task, run := Limit{CostUSD: l.Task.CostUSD, Tokens: l.Task.Tokens}, Limit{CostUSD: l.Run.CostUSD, Tokens: l.Run.Tokens}
	if used, limit, name, over := task.reached(s.Task); over {
		name = "budgets.task." + name
		if l.OwnCost && task.CostUSD != nil && s.Task.CostUSD >= *task.CostUSD {
			name = "its own max_cost_usd"
		}
		return Over{Code: CodeTask, Reason: fmt.Sprintf("the task has used %s of the %s that it may (%s): "+
			"allow as much again with `orch task retry %s`, or cancel it", used, limit, name, key)}, true
	}
	if used, limit, name, over := run.exceeded(s.Last); over {
		return Over{Code: CodeRun, Reason: fmt.Sprintf("its last run%s used %s, more than the %s that one may (%s): "+
			"look at what it did with `orch task show %s`, then let it go on with `orch task retry %s`", by(s.LastAgent), used, limit, name, key, key)}, true
	}
	const later = "it goes on at 00:00 UTC, or within ten minutes of a higher limit in orch.yaml"
	if used, limit, name, over := l.Agent.reached(s.Agent); over {
		return Over{Code: CodeDay, Waits: true, Reason: fmt.Sprintf("today's runs of agent %s have used %s of %s (agents.%s.%s_day): %s",
			l.AgentName, used, limit, l.AgentName, name, later)}, true
	}
	if used, limit, name, over := l.Day.reached(s.Day); over {
		return Over{Code: CodeDay, Waits: true, Reason: fmt.Sprintf("today's runs have used %s of %s (budgets.day.%s): %s", used, limit, name, later)}, true
	}
	return Over{}, false
}

// reached answers the first bound that u has come to, in words.
func (l Limit) reached(u Usage) (used, limit, name string, over bool) {
	switch {
	case l.Runs != nil && u.Runs >= *l.Runs:
		return strconv.Itoa(u.Runs), fmt.Sprintf("%d runs", *l.Runs), "max_runs", true
	case l.CostUSD != nil && u.CostUSD >= *l.CostUSD:
		return amount(u.CostUSD), amount(*l.CostUSD) + " USD", "max_cost_usd", true
	case l.Tokens != nil && u.Tokens() >= *l.Tokens:
		return strconv.FormatInt(u.Tokens(), 10), fmt.Sprintf("%d tokens", *l.Tokens), "max_tokens", true
	}
	return "", "", "", false
}

// by names an agent, if it is known.
func by(agent string) string {
	if agent == "" {
		return ""
	}
	return ", by agent " + agent + ","
}

// exceeded is reached for what has ended: to have used all that was allowed is no offence.
func (l Limit) exceeded(u Usage) (used, limit, name string, over bool) {
	if l.CostUSD != nil && u.CostUSD <= *l.CostUSD {
		l.CostUSD = nil
	}
	if l.Tokens != nil && u.Tokens() <= *l.Tokens {
		l.Tokens = nil
	}
	return l.reached(u)
}

// amount writes US dollars to the cent, and small ones to the millionth.
func amount(usd float64) string {
	if usd < 0.01 {
		return strconv.FormatFloat(usd, 'g', 2, 64)
	}
	return strconv.FormatFloat(usd, 'f', 2, 64)
}

// NextDay is when the day's budgets begin anew.
func NextDay(now time.Time) time.Time {
	const day = 24 * time.Hour
	return now.UTC().Truncate(day).Add(day)
}
