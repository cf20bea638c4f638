package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// Phases that a stage job shows while it runs.
const (
	PhasePreparing = "preparing"
	PhaseFollowing = "following"
	PhaseGates     = "gates"
)

// Reason codes of tasks that are blocked here, besides outcomes of runs and those of package task.
const (
	CodeNotFound      = "not_found"
	CodeAuth          = "auth"
	CodeRunsExhausted = "runs_exhausted"
	CodeSetupFailed   = "setup_failed"
)

// settleTimeout bounds the transaction that ends a job although its context may be cancelled already.
const settleTimeout = 20 * time.Second

// defaultPause is how long a job rests whose agent can't run now and doesn't say until when.
const defaultPause = 10 * time.Second

// Config says what a Handler needs from others.
type Config struct {
	Store      *task.Store
	Agents     Agents
	Gates      Gates
	Workspaces Workspaces
	ConsumeTx  ConsumeFunc // nil = runs aren't kept
	PauseTx    PauseFunc   // nil = no agent is ever paused
	// EndRuns ends every run of the task that still lives here. It is called by a job that is pinned by such a run
	// while its task has been moved or cancelled; nobody else would end it. nil = left to its own time limit.
	EndRuns func(ctx context.Context, l *queue.Lease, taskID int64) error
	// LivingRuns counts the runs of a task whose end isn't known. While there are any, a job that can't go on because of an
	// edit of the configuration rests: to block the task would end them. nil = none.
	LivingRuns func(ctx context.Context, taskID int64) (int, error)
	// At is told of each step just before it is done, for tests that end the process there: gates, settling, settled.
	At     func(point string) // nil = nobody
	Logger *slog.Logger       // nil = silent
}

// Handler runs stage jobs: one agent, then the gates, then one transition. It is re-entrant; see the package comment.
type Handler struct {
	cfg   Config
	store *task.Store
	log   *slog.Logger
}

// NewHandler returns a handler for jobs of KindStage.
func NewHandler(cfg Config) *Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.At == nil {
		cfg.At = func(string) {}
	}
	return &Handler{cfg: cfg, store: cfg.Store, log: cfg.Logger}
}

// work is one stage of one task, done by one job.
type work struct {
	lease    *queue.Lease
	task     task.Task
	pipeline flow.Pipeline
	stage    flow.Stage
	ran      *AgentResult // nil: the stage has no agent
	gates    []GateResult
	commit   string // that the gates judged
}

// Run does the job that l holds. nil means that the job has ended, or that the worker may complete it.
func (h *Handler) Run(ctx context.Context, l *queue.Lease) error {
	err := h.run(ctx, l)
	if leaves(ctx, l, err) {
		return err
	}
	if _, away := errors.AsType[*AwayError](err); away {
		rest := &queue.SnoozeError{After: min(restFor(l.Job().WaitingSince, time.Now()), awayRest), WaitingFor: waitingForRepository}
		h.log.WarnContext(ctx, "repository is away, the job waits", slog.Int64("job_id", l.Job().ID), slog.Duration("after", rest.After),
			slog.Any("error", err))
		return rest
	}
	if !outOfSpace(err) {
		return err
	}
	h.log.WarnContext(ctx, "disk is full, the job waits", slog.Int64("job_id", l.Job().ID), slog.Any("error", err))
	return &queue.SnoozeError{After: restPause, WaitingFor: waitingForSpace}
}

func (h *Handler) run(ctx context.Context, l *queue.Lease) error {
	var args task.JobArgs
	if err := l.Job().Decode(&args); err != nil {
		return queue.Terminal("bad_args", fmt.Errorf("decode the arguments of a stage job: %w", err))
	}
	t, err := h.load(ctx, args.TaskID)
	if err != nil {
		return err
	}
	if t.State != task.Active || t.At() != args.At() {
		return h.leave(ctx, l, t)
	}
	w := &work{lease: l, task: t}
	if w.pipeline, err = h.store.Pipeline(ctx, t); err != nil && !errors.Is(err, task.ErrUnknownPipeline) {
		return err
	}
	var known bool
	w.stage, known = w.pipeline.Stage(t.Stage)
	if !known || w.stage.Landing() {
		if err := h.letRunsEnd(ctx, w); err != nil {
			return err
		}
	}
	if !known {
		return h.block(ctx, w, task.UnknownStage(t, t.Stage))
	}
	if w.stage.Landing() {
		return h.handOver(ctx, w)
	}
	err = h.work(ctx, w)
	if failure, ok := errors.AsType[*queue.Failure](err); ok && failure.Terminal && !leaves(ctx, l, err) {
		if rest := h.letRunsEnd(ctx, w); rest != nil {
			return rest
		}
	}
	return err
}

// letRunsEnd answers a *queue.SnoozeError while a run of the task lives: nothing of what its job finds wrong with the
// configuration is the run's fault, and the next edit may put it right.
func (h *Handler) letRunsEnd(ctx context.Context, w *work) error {
	if h.cfg.LivingRuns == nil {
		return nil
	}
	living, err := h.cfg.LivingRuns(ctx, w.task.ID)
	if err != nil {
		return fmt.Errorf("look for living runs of task %s: %w", w.task.Key, err)
	}
	if living == 0 {
		return nil
	}
	h.log.WarnContext(ctx, "configuration no longer has what a living run is for, the job waits", slog.String("task", w.task.Key),
		slog.String("stage", w.task.Stage), slog.Int64("job_id", w.lease.Job().ID), slog.Int("runs", living))
	return &queue.SnoozeError{After: restPause, WaitingFor: waitingForConfiguration}
}

func (h *Handler) work(ctx context.Context, w *work) error {
	w.lease.SetPhase(PhasePreparing)
	here, err := h.start(ctx, w)
	if err != nil {
		return fmt.Errorf("start stage %s of task %s: %w", w.stage.Name, w.task.Key, err)
	}
	if !here {
		return h.leaveMoved(ctx, w)
	}
	if w.stage.Agent == "" {
		if _, err := h.prepare(ctx, w, false); err != nil {
			return err
		}
		return h.judge(ctx, w)
	}
	result, err := h.runAgent(ctx, w)
	if stop, ok := errors.AsType[*BlockError](err); ok {
		return h.block(ctx, w, task.Block{Code: stop.Code, Reason: stop.Reason})
	}
	if err != nil {
		return err
	}
	w.ran = &result
	if result.Retry == RetryNone {
		return h.judge(ctx, w)
	}
	return h.unfinished(ctx, w)
}

// start ties the task and its job to a data root, and notes once for each place that work on it has begun. Only jobs of
// the task note it, and the claim of this one ended what every earlier claim could write: what isn't noted now nobody else
// will note. It answers false when there is nothing to do here: the task has moved, or another root has its branch and
// workspace, to which the job is given then.
func (h *Handler) start(ctx context.Context, w *work) (here bool, err error) {
	noted, err := h.started(ctx, w.task)
	if err != nil {
		return false, err
	}
	own := w.lease.Worker().RootID
	err = w.lease.Tx(ctx, func(tx pgx.Tx) error {
		here = false
		bound, current, err := h.store.BindTx(ctx, tx, w.task.At(), own)
		if err != nil || !current {
			return err
		}
		if err := w.lease.PinRootTx(ctx, tx, bound); err != nil {
			return err
		}
		if bound != own {
			h.log.InfoContext(ctx, "job belongs to another data root", slog.String("task", w.task.Key),
				slog.Int64("job_id", w.lease.Job().ID), slog.String("root_id", bound.String()))
			return w.lease.ReleaseTx(ctx, tx, queue.Release{})
		}
		here = true
		if noted {
			return nil
		}
		return h.store.NoteTx(ctx, tx, w.task.ID, task.EventStageStarted, "", map[string]any{
			"stage": w.task.Stage, "round": w.task.Round, "agent": w.stage.Agent, "job_id": w.lease.Job().ID,
		})
	})
	return here, err
}

// leaveMoved ends a job that has nothing to do here, unless it was given to another root already.
func (h *Handler) leaveMoved(ctx context.Context, w *work) error {
	if w.lease.Ended() {
		return nil
	}
	t, err := h.load(ctx, w.task.ID)
	if err != nil {
		return err
	}
	return h.leave(ctx, w.lease, t)
}

func (h *Handler) started(ctx context.Context, t task.Task) (bool, error) {
	events, err := h.store.EventsOf(ctx, t.ID, task.EventStageStarted)
	if err != nil {
		return false, err
	}
	for _, event := range events {
		var place struct {
			Stage string `json:"stage"`
			Round int    `json:"round"`
		}
		if err := json.Unmarshal(event.Data, &place); err != nil {
			return false, fmt.Errorf("read event %d: %w", event.ID, err)
		}
		if place.Stage == t.Stage && place.Round == t.Round {
			return true, nil
		}
	}
	return false, nil
}

// runAgent follows the run of this stage and round, or starts it. Only a new run gets its workspace made ready: one that
// is there already goes on in its own.
func (h *Handler) runAgent(ctx context.Context, w *work) (AgentResult, error) {
	data := promptData(w.task, w.pipeline)
	answered, err := h.answers(ctx, w.task)
	if err != nil {
		return AgentResult{}, err
	}
	begins := data // who goes on knows the answers
	if answered != "" {
		begins.Feedback = strings.TrimSpace(begins.Feedback + "\n\n" + answered)
	}
	text, err := prompt.Render(w.stage.Prompt, begins)
	if err != nil {
		return AgentResult{}, queue.Terminal("prompt", err)
	}
	// What Prepare failed with decides about the job, however Agents wraps it.
	var prepared error
	w.lease.SetPhase(PhaseFollowing)
	result, err := h.cfg.Agents.Run(ctx, w.lease, AgentRun{
		Task: w.task, Stage: w.stage.Name, Round: w.task.Round, Key: fmt.Sprintf("agent:%s:%d", w.stage.Name, w.task.Round),
		Agent: w.stage.Agent, Dir: h.cfg.Workspaces.Dir(w.task), Prompt: text,
		Continue: func(earlier prompt.Earlier) ([]byte, error) { return prompt.GoOn(data, earlier) },
		Prepare: func(ctx context.Context, keep bool) (kept bool, err error) {
			w.lease.SetPhase(PhasePreparing)
			if kept, prepared = h.prepare(ctx, w, keep); prepared == nil {
				w.lease.SetPhase(PhaseFollowing)
			}
			return kept, prepared
		},
	})
	if err != nil {
		switch {
		case ctx.Err() != nil:
			return AgentResult{}, fmt.Errorf("run agent %s: %w: %w", w.stage.Agent, context.Cause(ctx), err)
		case prepared != nil && !errors.Is(err, queue.ErrStopping):
			return AgentResult{}, prepared
		}
		return AgentResult{}, fmt.Errorf("run agent %s: %w", w.stage.Agent, err)
	}
	if result.Agent == "" {
		result.Agent = w.stage.Agent
	}
	return result, nil
}

func (h *Handler) prepare(ctx context.Context, w *work, keep bool) (kept bool, err error) {
	made, err := h.cfg.Workspaces.Prepare(ctx, w.task, keep)
	if err != nil {
		return false, workspaceFailure(ctx, "prepare the workspace", err)
	}
	return made.Kept, nil
}

// judge asks the gates in order and stops at the first that isn't green.
func (h *Handler) judge(ctx context.Context, w *work) error {
	w.lease.SetPhase(PhaseGates)
	h.cfg.At("gates")
	head, err := h.cfg.Workspaces.Inspect(ctx, w.task)
	if left, ok := errors.AsType[*BranchError](err); ok && ctx.Err() == nil && !outOfSpace(err) {
		return h.sendBackBranch(ctx, w, left)
	}
	if err != nil {
		return workspaceFailure(ctx, "look into the workspace", err)
	}
	w.commit = head.Commit
	subject := GateSubject{
		TaskID: w.task.ID, TaskKey: w.task.Key, Stage: w.stage.Name, Round: w.task.Round, Commit: head.Commit,
		Tree: head.Tree, BaseCommit: head.Base, Upstream: head.Upstream, Dirty: head.Dirty,
	}
	for _, ref := range w.stage.Gates {
		result, err := h.cfg.Gates.Check(ctx, w.lease, ref, subject)
		if err != nil {
			return fmt.Errorf("ask gate %s: %w", ref.Name, err)
		}
		if result.Outcome == GatePending {
			// The run stays unconsumed: the next claim takes its result again and goes straight to the gates.
			return &queue.SnoozeError{After: max(result.Until, time.Second), WaitingFor: "gate_" + ref.Name}
		}
		w.gates = append(w.gates, result)
		if result.Outcome != GatePass {
			return h.sendBack(ctx, w, ref, result)
		}
	}
	return h.advance(ctx, w)
}

// load reads the task although a cancel may have been asked for already: what is to be ended depends on it.
func (h *Handler) load(ctx context.Context, id int64) (task.Task, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	t, err := h.store.ByID(ctx, id)
	if errors.Is(err, task.ErrNotFound) {
		return task.Task{}, queue.Terminal("task_not_found", err)
	}
	return t, err
}

// leave ends a job whose task is somewhere else by now, and what still runs for it.
func (h *Handler) leave(ctx context.Context, l *queue.Lease, t task.Task) error {
	h.superseded(ctx, l, t)
	job := l.Job()
	if job.RunID != nil && h.cfg.EndRuns != nil {
		if err := h.cfg.EndRuns(context.WithoutCancel(ctx), l, t.ID); err != nil {
			return fmt.Errorf("end the runs of task %s: %w", t.Key, err)
		}
	}
	if job.CancelRequestedAt != nil {
		return queue.ErrCancelRequested
	}
	return nil
}

func (h *Handler) superseded(ctx context.Context, l *queue.Lease, t task.Task) {
	h.log.InfoContext(ctx, "stage job superseded", slog.Int64("job_id", l.Job().ID), slog.String("task", t.Key),
		slog.String("state", string(t.State)), slog.String("stage", t.Stage), slog.Int("round", t.Round))
}

func promptData(t task.Task, p flow.Pipeline) prompt.Data {
	return prompt.Data{
		Key: t.Key, Repo: t.Repo, Title: t.Title, Body: t.Body, Branch: t.Branch, BaseBranch: t.BaseBranch,
		Stage: t.Stage, Round: t.Round, Rounds: p.Rounds(), Feedback: t.Feedback,
	}
}
