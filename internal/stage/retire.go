package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task"
)

const (
	// retirePause is how long a clean-up rests while a job of the task hasn't ended.
	retirePause = 2 * time.Second
	// retireRest is the longest rest of a clean-up that fails.
	retireRest = 10 * time.Minute
)

// RetireConfig says what a RetireHandler needs from others.
type RetireConfig struct {
	Store     *task.Store
	Queue     *queue.Queue
	Remains   Remains
	Publisher Publisher // of salvage refs; nil = they stay in the mirror
	// EndRuns ends every run of the task that still lives, and returns when nothing of them is left. nil = none can live.
	EndRuns func(ctx context.Context, taskID int64) error
	// ConsumeAllTx marks all finished runs of a task as used: nobody will ask for them any more. It may be nil.
	ConsumeAllTx func(ctx context.Context, tx pgx.Tx, taskID int64) error
	Logger       *slog.Logger // nil = silent
}

// RetireHandler cleans up after a task that has ended or is blocked: what its workspace holds is salvaged, then
// workspace and checkouts are removed. Each step may be repeated.
type RetireHandler struct {
	cfg   RetireConfig
	store *task.Store
	log   *slog.Logger
}

// NewRetireHandler returns a handler for jobs of KindRetire.
func NewRetireHandler(cfg RetireConfig) *RetireHandler {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &RetireHandler{cfg: cfg, store: cfg.Store, log: cfg.Logger}
}

// salvaged is what an event of kind salvaged says.
type salvaged struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
	JobID  int64  `json:"job_id"`
}

// Run does the job that l holds. What fails is tried again for as long as it takes, at growing intervals: an attempt is
// never spent on it, since what isn't cleaned up now nobody else would.
func (h *RetireHandler) Run(ctx context.Context, l *queue.Lease) error {
	err := h.run(ctx, l)
	if leaves(ctx, l, err) {
		return err
	}
	if _, rests := errors.AsType[*queue.SnoozeError](err); rests {
		return err
	}
	failed, named := errors.AsType[*queue.Failure](err)
	if named && failed.Terminal {
		return err
	}
	rest := &queue.SnoozeError{After: restFor(l.Job().WaitingSince, time.Now()), WaitingFor: "clean_up"}
	switch {
	case outOfSpace(err):
		rest.WaitingFor = waitingForSpace
	case named:
		rest.WaitingFor = failed.Code
	}
	h.log.WarnContext(ctx, "clean-up failed, tried again", slog.Int64("job_id", l.Job().ID), slog.String("waiting_for", rest.WaitingFor),
		slog.Duration("after", rest.After), slog.Any("error", err))
	if err := h.noteFailure(ctx, l, rest.WaitingFor, err); err != nil {
		h.log.WarnContext(ctx, "failed clean-up not noted", slog.Int64("job_id", l.Job().ID), slog.Any("error", err))
	}
	return rest
}

// restFor doubles the time that a job has been put off for already.
func restFor(since *time.Time, now time.Time) time.Duration {
	if since == nil {
		return restPause
	}
	return min(max(now.Sub(*since), restPause), retireRest)
}

// noteFailure tells once for each job that the clean-up fails, in the task's history.
func (h *RetireHandler) noteFailure(ctx context.Context, l *queue.Lease, code string, failed error) error {
	id := l.Job().TaskID
	if id == nil {
		return nil
	}
	told, err := h.store.EventsOf(ctx, *id, task.EventRetireFailed)
	if err != nil {
		return err
	}
	for _, event := range told {
		var by struct {
			JobID int64 `json:"job_id"`
		}
		if err := json.Unmarshal(event.Data, &by); err == nil && by.JobID == l.Job().ID {
			return nil
		}
	}
	return l.Tx(ctx, func(tx pgx.Tx) error {
		return h.store.NoteTx(ctx, tx, *id, task.EventRetireFailed, failed.Error()+"; it is tried again",
			map[string]any{"code": code, "job_id": l.Job().ID})
	})
}

func (h *RetireHandler) run(ctx context.Context, l *queue.Lease) error {
	var args task.RetireArgs
	if err := l.Job().Decode(&args); err != nil {
		return queue.Terminal("bad_args", fmt.Errorf("decode the arguments of a retire job: %w", err))
	}
	t, err := h.store.ByID(ctx, args.TaskID)
	if errors.Is(err, task.ErrNotFound) {
		return queue.Terminal("task_not_found", err)
	}
	if err != nil {
		return err
	}
	if !retirable(t) {
		return nil
	}
	job, err := h.cfg.Queue.ActiveForTask(ctx, t.ID)
	if err != nil {
		return err
	}
	if job != nil {
		return &queue.SnoozeError{After: retirePause, WaitingFor: "active_job"}
	}
	if h.cfg.EndRuns != nil {
		if err := h.cfg.EndRuns(ctx, t.ID); err != nil {
			return failure(ctx, "end_runs", "end the runs of task "+t.Key, err)
		}
	}
	kept, err := h.salvage(ctx, l, t)
	if err != nil {
		return err
	}
	return h.remove(ctx, l, t, kept)
}

// retirable says that no job works in the task's workspace, and that none will without a person.
func retirable(t task.Task) bool { return t.State.Ended() || t.State == task.Blocked || t.Ready() }

// salvage keeps what the workspace holds, then publishes and notes whatever was kept of the task and isn't noted yet: by
// this job before a crash, or by the rounds before. It returns the newest that this job
// noted.
func (h *RetireHandler) salvage(ctx context.Context, l *queue.Lease, t task.Task) (salvaged, error) {
	if err := h.cfg.Remains.Salvage(ctx, t, t.State == task.Done || t.Ready()); err != nil {
		return salvaged{}, failure(ctx, "salvage", "salvage task "+t.Key, err)
	}
	list, err := h.cfg.Remains.Salvages(ctx, t)
	if err != nil {
		return salvaged{}, failure(ctx, "salvage", "list the salvages of task "+t.Key, err)
	}
	noted, last, err := h.noted(ctx, l, t.ID)
	if err != nil {
		return salvaged{}, err
	}
	for _, s := range list {
		if noted[s] {
			continue
		}
		last, err = h.publish(ctx, l, t, salvaged{Ref: s.Ref, Commit: s.Commit, JobID: l.Job().ID})
		if err != nil {
			return salvaged{}, err
		}
	}
	return last, nil
}

// publish puts a salvage into the task's repository and notes it, in this order: what is noted is there.
func (h *RetireHandler) publish(ctx context.Context, l *queue.Lease, t task.Task, kept salvaged) (salvaged, error) {
	if h.cfg.Publisher != nil {
		ref, err := h.cfg.Publisher.Publish(ctx, t, kept.Ref)
		if err != nil {
			return salvaged{}, failure(ctx, "publish", "publish "+kept.Ref, err)
		}
		kept.Ref = ref
	}
	err := l.Tx(ctx, func(tx pgx.Tx) error {
		return h.store.NoteTx(ctx, tx, t.ID, task.EventSalvaged, "",
			map[string]any{"ref": kept.Ref, "commit": kept.Commit, "job_id": kept.JobID})
	})
	if err != nil {
		return salvaged{}, fmt.Errorf("note salvage of task %s: %w", t.Key, err)
	}
	h.log.InfoContext(ctx, "salvage published", slog.String("task", t.Key), slog.String("ref", kept.Ref), slog.String("commit", kept.Commit))
	return kept, nil
}

// noted returns what was noted of the task, and the newest that this job noted.
func (h *RetireHandler) noted(ctx context.Context, l *queue.Lease, id int64) (map[Salvaged]bool, salvaged, error) {
	events, err := h.store.EventsOf(ctx, id, task.EventSalvaged)
	if err != nil {
		return nil, salvaged{}, fmt.Errorf("list salvages: %w", err)
	}
	all := make(map[Salvaged]bool, len(events))
	var last salvaged
	for _, event := range events {
		var kept salvaged
		if err := json.Unmarshal(event.Data, &kept); err != nil {
			return nil, salvaged{}, fmt.Errorf("list salvages: %w", err)
		}
		all[Salvaged{Ref: kept.Ref, Commit: kept.Commit}] = true
		if kept.JobID == l.Job().ID {
			last = kept
		}
	}
	return all, last, nil
}

// remove deletes what is left and ends the job. The lease is checked just before: a job that was lost meanwhile may
// have been followed by a retry that works in a new workspace.
func (h *RetireHandler) remove(ctx context.Context, l *queue.Lease, t task.Task, kept salvaged) error {
	if err := l.Check(ctx); err != nil {
		return fmt.Errorf("retire task %s: %w", t.Key, err)
	}
	if err := h.cfg.Remains.Remove(ctx, t); err != nil {
		return failure(ctx, "remove", "remove the workspace of task "+t.Key, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := l.Tx(ctx, func(tx pgx.Tx) error {
		if h.cfg.ConsumeAllTx != nil {
			if err := h.cfg.ConsumeAllTx(ctx, tx, t.ID); err != nil {
				return fmt.Errorf("consume runs: %w", err)
			}
		}
		data := map[string]any{"state": string(t.State), "job_id": l.Job().ID}
		if kept.Commit != "" {
			data["salvage_ref"], data["salvage_commit"] = kept.Ref, kept.Commit
		}
		if err := h.store.NoteTx(ctx, tx, t.ID, task.EventRetired, "", data); err != nil {
			return err
		}
		return l.CompleteTx(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("retire task %s: %w", t.Key, err)
	}
	return nil
}
