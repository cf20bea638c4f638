package outcome

import "time"

// Outcome is what a run's end means for the work.
type Outcome string

// The outcomes of a run.
const (
	OK           Outcome = "ok"
	AgentFailed  Outcome = "agent_failed"
	SetupFailed  Outcome = "setup_failed"
	Timeout      Outcome = "timeout"
	Stalled      Outcome = "stalled"
	Auth         Outcome = "auth"
	Quota        Outcome = "quota"
	RateLimited  Outcome = "rate_limited"
	NeedsInput   Outcome = "needs_input"
	Killed       Outcome = "killed"
	Crashed      Outcome = "crashed"
	NotFound     Outcome = "not_found"
	Orphaned     Outcome = "orphaned"
	Interrupted  Outcome = "interrupted"
	Cancelled    Outcome = "cancelled"
	NeverStarted Outcome = "never_started"
)

// Class is what an outcome means for the attempt.
type Class string

// The classes of outcomes.
const (
	// None: the run did what it should, the gates decide.
	None Class = "none"
	// Spent: another attempt may go better.
	Spent Class = "spent"
	// Given: the run was cut short or held up for a reason that isn't the task's; the attempt isn't spent.
	Given Class = "given"
	// Never: another attempt would end the same way until a person has done something.
	Never Class = "never"
	// Answer: a person has to answer first.
	Answer Class = "answer"
)

// Class tells how to go on after an outcome. An unknown one spends an attempt: those are bounded.
func (o Outcome) Class() Class {
	switch o {
	case OK:
		return None
	case Auth, NotFound:
		return Never
	case NeedsInput:
		return Answer
	case Quota, RateLimited, Orphaned, Interrupted, Cancelled, NeverStarted:
		return Given
	default:
		return Spent
	}
}

// Pauses reports whether the outcome concerns every task of the agent, which has to pause therefore.
func (o Outcome) Pauses() bool { return o.UntilReset() || o == Auth || o == NotFound }

// UntilReset reports whether the agent can go on by itself, some time later.
func (o Outcome) UntilReset() bool { return o == Quota || o == RateLimited }

// Judgement is an outcome with what was found out on the way.
type Judgement struct {
	Outcome Outcome
	// ResetAt is when the agent may be started again after Quota or RateLimited; zero when the program didn't say: see Wait.
	ResetAt time.Time
	// Detail is the sentence that the outcome was read from; it may be empty.
	Detail string
	// Question is what a person is asked after NeedsInput.
	Question string
}

// How long an agent pauses that didn't say when its limit ends.
const (
	quotaWait, quotaWaitMost = 15 * time.Minute, 6 * time.Hour
	rateWait, rateWaitMost   = time.Minute, 15 * time.Minute
)

// Wait is how long an agent pauses after Quota or RateLimited without a ResetAt. It doubles with each one that came
// before it in a row.
func (o Outcome) Wait(before int) time.Duration {
	wait, most := rateWait, rateWaitMost
	if o == Quota {
		wait, most = quotaWait, quotaWaitMost
	}
	for range before {
		if wait *= 2; wait >= most {
			return most
		}
	}
	return wait
}
