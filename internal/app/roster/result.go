package roster

import (
	"context"
	"fmt"
	"time"

	"orch/internal/agent"
	"orch/internal/agent/outcome"
	"orch/internal/queue/pause"
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
	plan, unplanned := r.cfg.Catalog.Plan(ctx, run.Task)
	own := unplanned == nil && ran.Agent == plan.OwnAgent
	met := stage.Pause{Agent: ran.Agent, Code: ran.Outcome, Reason: reason(run, res)}
	if res.Outcome.UntilReset() {
		until, err := r.reset(ctx, ran.Agent, own, res)
		if err != nil {
			return stage.AgentResult{}, err
		}
		if met.Until = until; !until.After(time.Now()) {
			return ran, nil // over by now: nobody looked at the end of the run for so long
		}
		ran.RetryAfter = time.Until(until)
	}
	if own {
		return ran, nil // what it met is no other task's matter
	}
	ran.Pause = &met
	if unplanned != nil {
		return ran, nil //nolint:nilerr // an edit took it away; the next start says so
	}
	chain := chainOf(plan, run.Agent)
	paused, err := r.paused(ctx, chain)
	if err != nil {
		return stage.AgentResult{}, err
	}
	paused[ran.Agent] = pause.Pause{Until: orNil(met.Until)}
	for _, entry := range chain {
		if _, is := paused[entry.Name]; !is {
			ran.Fallback, ran.Retry = entry.Name, stage.RetryGiven
			return ran, nil
		}
	}
	if res.Outcome.UntilReset() && len(chain) > 0 { // whichever of them may go on first
		waits := rest(chain, paused, time.Now())
		ran.RetryAfter, ran.WaitingFor = waits.After, waits.WaitingFor
	}
	return ran, nil
}

// reset is when an agent can go on that met a limit: as it said, or after a while that grows from one time to the next. It
// doesn't for one that a task brought along: what others of that name met says nothing.
func (r *Roster) reset(ctx context.Context, name string, own bool, res agent.Result) (time.Time, error) {
	if res.ResetAt != nil && !res.ResetAt.IsZero() {
		return *res.ResetAt, nil
	}
	row := 1
	if !own {
		var err error
		if row, err = r.cfg.Runs.InARow(ctx, name, res.Outcome); err != nil {
			return time.Time{}, err
		}
	}
	ended := res.Exit.FinishedAt
	if ended.IsZero() {
		ended = time.Now()
	}
	return ended.Add(res.Outcome.Wait(max(row-1, 0))), nil
}

// orNil is nil for a time that isn't set.
func orNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
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
