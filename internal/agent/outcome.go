package agent

import (
	"orch/internal/process"
)

// Outcome is what a run's end means for the work.
type Outcome string

// The outcomes of a run.
const (
	OutcomeOK           Outcome = "ok"
	OutcomeAgentFailed  Outcome = "agent_failed"
	OutcomeTimeout      Outcome = "timeout"
	OutcomeStalled      Outcome = "stalled"
	OutcomeAuth         Outcome = "auth"
	OutcomeQuota        Outcome = "quota"
	OutcomeRateLimited  Outcome = "rate_limited"
	OutcomeNeedsInput   Outcome = "needs_input"
	OutcomeKilled       Outcome = "killed"
	OutcomeCrashed      Outcome = "crashed"
	OutcomeNotFound     Outcome = "not_found"
	OutcomeOrphaned     Outcome = "orphaned"
	OutcomeInterrupted  Outcome = "interrupted"
	OutcomeCancelled    Outcome = "cancelled"
	OutcomeNeverStarted Outcome = "never_started"
)

// Class is what an outcome means for the attempt.
type Class string

// The classes of outcomes.
const (
	// Done: go on with gates.
	Done Class = "done"
	// Retryable: the attempt is spent, and another may go better.
	Retryable Class = "retryable"
	// Terminal: another attempt would end the same way until a person has done something.
	Terminal Class = "terminal"
	// GiveBack: the run was cut short or held up for a reason that isn't the agent's; the attempt isn't spent.
	GiveBack Class = "give_back"
)

// Class tells how to go on after an outcome. An unknown one is Retryable: attempts are bounded.
func (o Outcome) Class() Class {
	switch o {
	case OutcomeOK:
		return Done
	case OutcomeAuth, OutcomeNotFound, OutcomeNeedsInput:
		return Terminal
	case OutcomeQuota, OutcomeRateLimited, OutcomeInterrupted, OutcomeCancelled, OutcomeNeverStarted:
		return GiveBack
	default:
		return Retryable
	}
}

// Exit codes by which shells pass on what happened to the program they ran.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
	codeSignal        = 128 // plus the signal's number
)

// classify judges a run by the reason of its end, then by what the program said of itself, then by its exit code.
func classify(exit process.Exit, said Report) Outcome {
	switch exit.Why {
	case process.WhyTimeout:
		return OutcomeTimeout
	case process.WhyStalled:
		return OutcomeStalled
	case process.WhyCancelled:
		return OutcomeCancelled
	case process.WhyOrphaned:
		return OutcomeOrphaned
	case process.WhyInterrupted:
		return OutcomeInterrupted
	case process.WhyNeverStarted:
		return OutcomeNeverStarted
	case process.WhyShimDead:
		return OutcomeCrashed
	default:
	}
	switch {
	case exit.Signal != "":
		return signalled(exit.Signal)
	case exit.Code == nil:
		return OutcomeCrashed
	case said.Status == StatusNeedsInput:
		return OutcomeNeedsInput
	case *exit.Code == 0 && said.Status == StatusFailed:
		return OutcomeAgentFailed
	case *exit.Code == 0:
		return OutcomeOK
	default:
		return exited(*exit.Code)
	}
}

func exited(code int) Outcome {
	switch code {
	case codeNotExecutable, codeNotFound:
		return OutcomeNotFound
	case codeSignal + 1, codeSignal + 2, codeSignal + 9, codeSignal + 15: // HUP, INT, KILL, TERM
		return OutcomeKilled
	case codeSignal + 4, codeSignal + 6, codeSignal + 7, codeSignal + 8, codeSignal + 11: // ILL, ABRT, BUS, FPE, SEGV
		return OutcomeCrashed
	default:
		return OutcomeAgentFailed
	}
}

func signalled(name string) Outcome {
	switch name {
	case "SIGHUP", "SIGINT", "SIGKILL", "SIGTERM", "SIGQUIT", "SIGXCPU":
		return OutcomeKilled
	default:
		return OutcomeCrashed
	}
}
