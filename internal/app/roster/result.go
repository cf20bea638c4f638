package roster

import (
	"context"
	"fmt"
	"time"

	"orch/internal/agent"
	"orch/internal/agent/outcome"
	"orch/internal/stage"
)

// result is what a run's end means for its stage, and for its agent.
func (r *Roster) result(ctx context.Context, run stage.AgentRun, res agent.Result) (stage.AgentResult, error) {
	ran := stage.AgentResult{
		RunID: res.RunID, Agent: res.Agent, Outcome: string(res.Outcome), Retry: stage.RetryClass(res.Outcome.Class()),
		Summary: res.Summary, Question: res.Question, Detail: res.Detail, LogTail: res.LogTail, ExitCode: res.Exit.Code,
		CostUSD: res.Usage.CostUSD, Tokens: res.Usage.Tokens(), Turns: res.Usage.Turns, Resumed: res.Resumed,
	}
	if ran.Agent == "" {
		ran.Agent = run.Agent
	}
	if !res.Outcome.Pauses() {
		return ran, nil
	}
	pause := stage.Pause{Agent: ran.Agent, Code: ran.Outcome, Reason: reason(run, res)}
	if res.Outcome.UntilReset() {
		until, err := r.reset(ctx, ran.Agent, res)
		if err != nil {
			return stage.AgentResult{}, err
		}
		if pause.Until = until; !until.After(time.Now()) {
			return ran, nil // over by now: nobody looked at the end of the run for so long
		}
		ran.RetryAfter = time.Until(until)
	}
	ran.Pause = &pause
	fallback, err := r.fallback(ctx, run, ran.Agent)
	if err != nil {
		return stage.AgentResult{}, err
	}
	if fallback != "" {
		ran.Fallback, ran.Retry = fallback, stage.RetryGiven
	}
	return ran, nil
}

// reset is when an agent can go on that met a limit: as it said, or after a while that grows from one time to the next.
func (r *Roster) reset(ctx context.Context, name string, res agent.Result) (time.Time, error) {
	if res.ResetAt != nil && !res.ResetAt.IsZero() {
		return *res.ResetAt, nil
	}
	row, err := r.cfg.Runs.InARow(ctx, name, res.Outcome)
	if err != nil {
		return time.Time{}, err
	}
	ended := res.Exit.FinishedAt
	if ended.IsZero() {
		ended = time.Now()
	}
	return ended.Add(res.Outcome.Wait(max(row-1, 0))), nil
}

// fallback is the agent that can take over at once from one that is about to be paused; empty when there is none.
func (r *Roster) fallback(ctx context.Context, run stage.AgentRun, from string) (string, error) {
	plan, err := r.cfg.Catalog.Plan(ctx, run.Task)
	if err != nil {
		return "", nil //nolint:nilerr // an edit took it away; the next start says so
	}
	chain := chainOf(plan, run.Agent)
	paused, err := r.paused(ctx, chain)
	if err != nil {
		return "", err
	}
	for _, entry := range chain {
		if _, is := paused[entry.Name]; !is && entry.Name != from {
			return entry.Name, nil
		}
	}
	return "", nil
}

// reason is a sentence for people who wonder why the agent is paused.
func reason(run stage.AgentRun, res agent.Result) string {
	what := "it ended with " + string(res.Outcome)
	switch res.Outcome {
	case outcome.Quota:
		what = "its quota is used up"
	case outcome.RateLimited:
		what = "it is asked to slow down"
	case outcome.Auth:
		what = "it isn't signed in, or its key is refused"
	case outcome.NotFound:
		what = "its program was not found"
	default:
	}
	if res.Detail != "" {
		what += ": " + res.Detail
	}
	return fmt.Sprintf("%s (task %s)", what, run.Task.Key)
}
