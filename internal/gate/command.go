package gate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// Words of the shim for how a run ended, as far as a verdict depends on them.
const (
	whyExited  = "exited"
	whyTimeout = "timeout"
	whyStalled = "stalled"
)

// Exit codes by which a shell says that it couldn't run the command at all.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// unjudgedPause keeps a run that can never start from being tried in a tight loop.
const unjudgedPause = 5 * time.Second

// command passes when the command exits with 0 in a checkout of exactly the subject's commit.
func (r *Registry) command(ctx context.Context, l *queue.Lease, d Definition, s Subject) (Result, error) {
	if s.Commit == "" || s.Tree == "" {
		return r.keep(ctx, l, d, s, Result{Name: d.Name, Outcome: Fail, Reason: "the branch has no commit to check"})
	}
	kept, found, err := r.reusable(ctx, d, s)
	if err != nil || found {
		return kept, err
	}
	if r.cfg.Runner == nil {
		return Result{}, errNoRunner
	}
	timeout := d.Timeout
	if timeout == 0 {
		timeout = r.cfg.Timeout
	}
	ran, err := r.cfg.Runner.RunCommand(ctx, l, CommandRun{
		Purpose: "gate", Key: d.Key(s.Commit), TaskID: s.TaskID, TaskKey: s.TaskKey, Stage: s.Stage, Round: s.Round,
		Commit: s.Commit, Command: d.Command, Timeout: timeout,
	})
	if err != nil {
		return Result{}, fmt.Errorf("run the command: %w", err)
	}
	result, judged := r.judge(ran, timeout)
	if !judged {
		return Result{}, r.discard(ctx, l, d, ran)
	}
	result.Name, result.RunID = d.Name, &ran.RunID
	return r.keep(ctx, l, d, s, result)
}

// judge turns the end of a run into an answer; false means that the end says nothing about the branch.
func (r *Registry) judge(ran CommandResult, timeout time.Duration) (Result, bool) {
	result := Result{Outcome: Fail, ExitCode: ran.ExitCode, Duration: ran.Duration, OutputTail: Tail(ran.OutputTail, r.cfg.TailBytes)}
	switch ran.Why {
	case whyTimeout:
		result.Reason = fmt.Sprintf("the command didn't end within %s and was stopped", timeout)
	case whyStalled:
		result.Reason = "the command printed nothing for too long and was stopped"
	case whyExited:
		switch code := ran.ExitCode; {
		case code == nil:
			result.Reason = "the command was ended by a signal"
		case *code == 0:
			result.Outcome = Pass
		case *code == exitNotFound:
			result.Reason = "the command, or a program that it calls, was not found (exit code 127)"
		case *code == exitNotExecutable:
			result.Reason = "the command can't be executed (exit code 126)"
		default:
			result.Reason = fmt.Sprintf("the command ended with exit code %d", *code)
		}
	default:
		return Result{}, false
	}
	return result, true
}

// discard consumes a run without a verdict, so that the next question starts a new one.
func (r *Registry) discard(ctx context.Context, l *queue.Lease, d Definition, ran CommandResult) error {
	err := l.Tx(ctx, func(tx pgx.Tx) error { return r.consume(ctx, l, tx, ran.RunID) })
	if err != nil {
		return fmt.Errorf("discard a run without a verdict: %w", err)
	}
	return &UnjudgedError{Gate: d.Name, Why: ran.Why, RunID: ran.RunID, After: unjudgedPause}
}
