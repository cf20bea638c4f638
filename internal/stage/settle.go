package stage

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// settle ends the job in one transaction: the run's result is consumed, the pin falls, the events are written and the
// task moves, or none of it. A task that was moved by somebody else meanwhile is left alone: the job just ends. The
// context may be cancelled already; only the fence decides whether this may still be written.
func (h *Handler) settle(ctx context.Context, w *work, end func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	h.cfg.At("settling")
	var found task.Task
	superseded := false
	err := w.lease.Tx(ctx, func(tx pgx.Tx) error {
		if w.ran != nil && h.cfg.ConsumeTx != nil {
			if err := h.cfg.ConsumeTx(ctx, tx, w.ran.RunID); err != nil {
				return fmt.Errorf("consume run: %w", err)
			}
		}
		if w.ran != nil && w.ran.Pause != nil && h.cfg.PauseTx != nil { // whatever has become of the task meanwhile
			if err := h.cfg.PauseTx(ctx, tx, *w.ran.Pause); err != nil {
				return fmt.Errorf("pause agent %s: %w", w.ran.Pause.Agent, err)
			}
		}
		if err := w.lease.UnpinTx(ctx, tx); err != nil {
			return fmt.Errorf("unpin job: %w", err)
		}
		t, current, err := h.store.HoldTx(ctx, tx, w.task.At())
		if err != nil {
			return err
		}
		found, superseded = t, !current
		if superseded {
			return w.lease.CompleteTx(ctx, tx)
		}
		if err := h.noteTx(ctx, tx, w); err != nil {
			return err
		}
		return end(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("settle stage %s of task %s: %w", w.stage.Name, w.task.Key, err)
	}
	h.cfg.At("settled")
	if superseded {
		h.superseded(ctx, w.lease, found)
	}
	return nil
}

// noteTx writes what the run and the gates were as events.
func (h *Handler) noteTx(ctx context.Context, tx pgx.Tx, w *work) error {
	if w.ran != nil {
		if err := h.store.NoteTx(ctx, tx, w.task.ID, task.EventRunFinished, "", ranFacts(w)); err != nil {
			return err
		}
	}
	for i, gate := range w.gates { // answered in the order of the stage
		kind := task.EventGatePassed
		if gate.Outcome != GatePass {
			kind = task.EventGateFailed
		}
		data := map[string]any{
			"gate": gate.Name, "stage": w.stage.Name, "round": w.task.Round,
			"reused": gate.Reused, "duration_ms": gate.Duration.Milliseconds(),
		}
		if gate.EvidenceID != 0 {
			data["evidence_id"] = gate.EvidenceID
		}
		if i < len(w.stage.Gates) && w.stage.Gates[i].Name == gate.Name && w.stage.Gates[i].Command != "" {
			data["command"] = w.stage.Gates[i].Command
		}
		if gate.Outcome != GatePass && gate.OutputTail != "" {
			data["output"] = task.Clean(gate.OutputTail, task.MaxEventOutput)
		}
		if gate.ExitCode != nil {
			data["exit_code"] = *gate.ExitCode
		}
		if gate.RunID != nil {
			data["run_id"] = gate.RunID.String()
		}
		if err := h.store.NoteTx(ctx, tx, w.task.ID, kind, gate.Reason, data); err != nil {
			return err
		}
	}
	return nil
}

// ranFacts is what the event says of the run.
func ranFacts(w *work) map[string]any {
	ran, job := w.ran, w.lease.Job()
	data := map[string]any{
		"run_id": ran.RunID.String(), "outcome": ran.Outcome, "stage": w.stage.Name, "round": w.task.Round,
		"agent": ran.Agent, "job_id": job.ID, "attempt": job.Attempt, "summary": ran.Summary,
	}
	if ran.ExitCode != nil {
		data["exit_code"] = *ran.ExitCode
	}
	if ran.CostUSD != nil {
		data["cost_usd"] = *ran.CostUSD
	}
	if ran.Tokens > 0 {
		data["tokens"] = ran.Tokens
	}
	if ran.Turns > 0 {
		data["turns"] = ran.Turns
	}
	if ran.Detail != "" {
		data["detail"] = ran.Detail
	}
	if ran.Pause != nil && !ran.Pause.Until.IsZero() {
		data["reset_at"] = ran.Pause.Until.UTC().Format(time.RFC3339)
	}
	if ran.Fallback != "" {
		data["fallback"] = ran.Fallback
	}
	return data
}

func (h *Handler) advance(ctx context.Context, w *work) error {
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		if err := w.lease.CompleteTx(ctx, tx); err != nil {
			return err
		}
		_, err := h.store.AdvanceTx(ctx, tx, w.task.At(), task.Advance{Commit: w.commit})
		return err
	})
}

func (h *Handler) sendBack(ctx context.Context, w *work, ref flow.GateRef, result GateResult) error {
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		if err := w.lease.CompleteTx(ctx, tx); err != nil {
			return err
		}
		_, err := h.store.ReturnTx(ctx, tx, w.task.At(), task.Return{
			Gate: result.Name, Reason: result.Reason, Feedback: gateFeedback(ref, result),
		})
		return err
	})
}

// commitsGate is the gate in whose name a branch that can't be taken is refused.
const commitsGate = "commits"

// sendBackBranch tells the agent that its branch can't be taken as it left it. The next Prepare salvages what is there and
// puts the workspace back on the branch.
func (h *Handler) sendBackBranch(ctx context.Context, w *work, left *BranchError) error {
	result := GateResult{Name: commitsGate, Outcome: GateFail, Reason: fmt.Sprintf(
		"%s. The work has to be committed on the branch %s: stay on it, and don't rewrite what it started from", left.Detail, w.task.Branch)}
	w.gates = append(w.gates, result)
	return h.sendBack(ctx, w, flow.GateRef{Name: commitsGate}, result)
}

// gateFeedback is what the next prompt says about a red gate.
func gateFeedback(ref flow.GateRef, result GateResult) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Gate %s failed: %s", ref.Name, result.Reason)
	if ref.Command != "" {
		fmt.Fprintf(&b, "\nCommand: %s", ref.Command)
	}
	head := task.Clean(b.String(), task.MaxText/2)
	if result.OutputTail == "" {
		return head
	}
	head += "\nEnd of its output:\n"
	// The head says what failed and must survive: only the output is cut.
	return head + task.Clean(result.OutputTail, task.MaxText-len(head))
}

func (h *Handler) block(ctx context.Context, w *work, b task.Block) error {
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		if err := w.lease.CompleteTx(ctx, tx); err != nil {
			return err
		}
		_, err := h.store.BlockTx(ctx, tx, w.task.At(), b)
		return err
	})
}

// unfinished deals with a run that didn't succeed.
func (h *Handler) unfinished(ctx context.Context, w *work) error {
	h.log.WarnContext(ctx, "agent run didn't succeed", slog.String("task", w.task.Key), slog.String("stage", w.stage.Name),
		slog.Int("round", w.task.Round), slog.String("run_id", w.ran.RunID.String()), slog.String("outcome", w.ran.Outcome),
		slog.String("retry", string(w.ran.Retry)))
	switch w.ran.Retry {
	case RetryNever:
		return h.block(ctx, w, task.Block{Code: w.ran.Outcome, Reason: neverReason(w), Feedback: w.ran.LogTail})
	case RetryAnswer:
		question := strings.TrimSpace(w.ran.Question)
		if question == "" {
			question = "(it didn't say what; see its log)"
		}
		return h.block(ctx, w, task.Block{Code: task.CodeNeedsInput, Reason: "the agent asks: " + question})
	case RetryGiven:
		return h.giveBack(ctx, w)
	default:
		return h.tryAgain(ctx, w)
	}
}

// giveBack queues the job again without spending its attempt. An agent that is out of quota may wait for as long as it takes.
func (h *Handler) giveBack(ctx context.Context, w *work) error {
	release := queue.Release{After: w.ran.RetryAfter, WaitingFor: w.ran.Outcome}
	switch {
	case w.ran.Fallback != "":
		release = queue.Release{}
	case w.ran.Outcome == "interrupted", w.ran.Outcome == "orphaned":
		return h.recovered(ctx, w, release)
	default:
		release.After = max(release.After, defaultPause)
		switch {
		case w.ran.WaitingFor != "":
			release.WaitingFor = w.ran.WaitingFor
		case w.ran.Pause != nil:
			release.WaitingFor = pause.WaitingForAgent(w.ran.Pause.Agent)
		}
	}
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		return w.lease.ReleaseTx(ctx, tx, release)
	})
}

// recovered gives the job back after a death of what orch itself is responsible for: its container, its machine, its contact.
// An agent that takes its container with it each time would go on for ever, so these are counted.
func (h *Handler) recovered(ctx context.Context, w *work, release queue.Release) error {
	reason := fmt.Sprintf("agent %q was cut short (%s) again and again, each time before it had said anything new: see what its container or "+
		"machine dies of, then `orch task retry %s`", w.ran.Agent, w.ran.Outcome, w.task.Key)
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		state, err := w.lease.RecoverTx(ctx, tx, release, reason)
		if err != nil || state != queue.StateFailed {
			return err
		}
		// As in tryAgain.
		_, err = h.store.BlockTx(ctx, tx, w.task.At(), task.Block{Code: queue.CodeCrashLoop, Reason: reason, Feedback: w.ran.LogTail})
		return err
	})
}

func (h *Handler) tryAgain(ctx context.Context, w *work) error {
	job := w.lease.Job()
	failure := queue.Failure{Code: w.ran.Outcome, Message: spentReason(w, job.Attempt, job.MaxAttempts), After: w.ran.RetryAfter}
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		state, err := w.lease.RetryTx(ctx, tx, failure)
		if err != nil || state != queue.StateFailed {
			return err
		}
		// A queue with an OnFailed has blocked the task already; then this changes nothing.
		_, err = h.store.BlockTx(ctx, tx, w.task.At(), task.Block{Code: failure.Code, Reason: failure.Message, Feedback: w.ran.LogTail})
		return err
	})
}

// handOver replaces a stage job by a merge job: the pipeline was edited and the stage lands now.
func (h *Handler) handOver(ctx context.Context, w *work) error {
	return h.settle(ctx, w, func(ctx context.Context, tx pgx.Tx) error {
		if err := w.lease.CompleteTx(ctx, tx); err != nil {
			return err
		}
		return h.store.EnqueueTx(ctx, tx, w.task, w.stage)
	})
}

func neverReason(w *work) string {
	what := fmt.Sprintf("agent %q can't work (%s)", w.ran.Agent, w.ran.Outcome)
	switch w.ran.Outcome {
	case CodeNotFound:
		what = fmt.Sprintf("the program of agent %q was not found: install it, or correct the agent's command", w.ran.Agent)
	case CodeAuth:
		what = fmt.Sprintf("agent %q isn't signed in or its key is refused: renew its credentials", w.ran.Agent)
	}
	if w.ran.Detail != "" {
		what += fmt.Sprintf(" (%s)", w.ran.Detail)
	}
	if w.ran.Pause != nil {
		what += fmt.Sprintf("; it is paused for all tasks until `orch resume --agent %s`", w.ran.Pause.Agent)
	}
	return fmt.Sprintf("%s, then `orch task retry %s`", what, w.task.Key)
}

// lastSaid is the sentence that the outcome was read from, or else the last line that the program printed for people.
func lastSaid(ran *AgentResult) string {
	const longest = 200
	if ran.Detail != "" {
		return ran.Detail
	}
	tail := strings.TrimSpace(ran.LogTail)
	line := strings.TrimSpace(tail[strings.LastIndexByte(tail, '\n')+1:])
	if strings.HasPrefix(line, "{") {
		return ""
	}
	return task.Clean(line, longest)
}

// spentReason says what the failed attempt was and, when it was the last one, what a person can do.
func spentReason(w *work, attempt, attempts int) string {
	what := fmt.Sprintf("agent %q ended with %s", w.ran.Agent, w.ran.Outcome)
	if w.ran.Outcome == CodeSetupFailed {
		what = fmt.Sprintf("the setup command of repository %s failed, so that agent %q wasn't started", w.task.Repo, w.ran.Agent)
	}
	if code := w.ran.ExitCode; code != nil && w.ran.Outcome != CodeSetupFailed {
		what += fmt.Sprintf(" (exit code %d)", *code)
	}
	if said := lastSaid(w.ran); said != "" {
		what += ": " + said
	}
	if attempt < attempts {
		return fmt.Sprintf("%s, attempt %d of %d", what, attempt, attempts)
	}
	return fmt.Sprintf("%s, and all %d attempts are used up: read its log with `orch job log %d`, then `orch task retry %s`, or cancel the task",
		what, attempts, w.lease.Job().ID, w.task.Key)
}
