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

// retirePause is how long a clean-up rests while a job of the task hasn't ended.
const retirePause = 2 * time.Second

// RetireConfig says what a RetireHandler needs from others.
type RetireConfig struct {
	Store     *task.Store
	Queue     *queue.Queue
	Remains   Remains
	Publisher Publisher // of salvage refs; nil = they stay in the mirror
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

// SalvageRef names the n-th salvage of a task.
func SalvageRef(key string, n int) string { return fmt.Sprintf("refs/orch/salvage/%s/%d", key, n) }

// salvaged is what an event of kind salvaged says.
type salvaged struct {
	Ref    string `json:"ref"`
	Commit string `json:"commit"`
	JobID  int64  `json:"job_id"`
}

// Run does the job that l holds.
func (h *RetireHandler) Run(ctx context.Context, l *queue.Lease) error {
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
	kept, err := h.salvage(ctx, l, t)
	if err != nil {
		return err
	}
	return h.remove(ctx, l, t, kept)
}

// retirable says that no job works in the task's workspace, and that none will without a person.
func retirable(t task.Task) bool { return t.State.Ended() || t.State == task.Blocked || ready(t) }

// ready says that the task's branch was published for a person to land.
func ready(t task.Task) bool { return t.State == task.Waiting && t.WaitingFor == task.PersonLands }

// salvage keeps what the workspace holds and notes the ref before anything is removed. A repetition after a crash finds
// this job's note and doesn't salvage again, from a workspace that may be half gone.
func (h *RetireHandler) salvage(ctx context.Context, l *queue.Lease, t task.Task) (salvaged, error) {
	earlier, err := h.salvages(ctx, t.ID)
	if err != nil {
		return salvaged{}, err
	}
	if n := len(earlier); n > 0 && earlier[n-1].JobID == l.Job().ID {
		return earlier[n-1], nil
	}
	kept := salvaged{Ref: SalvageRef(t.Key, len(earlier)+1), JobID: l.Job().ID}
	if kept.Commit, err = h.cfg.Remains.Salvage(ctx, t, kept.Ref, t.State == task.Done || ready(t)); err != nil {
		return salvaged{}, failure(ctx, "salvage", "salvage task "+t.Key, err)
	}
	if kept.Commit == "" {
		return salvaged{}, nil
	}
	if h.cfg.Publisher != nil {
		if err := h.cfg.Publisher.Publish(ctx, t, kept.Ref); err != nil {
			return salvaged{}, failure(ctx, "publish", "publish "+kept.Ref, err)
		}
	}
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		return h.store.NoteTx(ctx, tx, t.ID, task.EventSalvaged, "",
			map[string]any{"ref": kept.Ref, "commit": kept.Commit, "job_id": kept.JobID})
	})
	if err != nil {
		return salvaged{}, fmt.Errorf("note salvage of task %s: %w", t.Key, err)
	}
	h.log.InfoContext(ctx, "workspace salvaged", slog.String("task", t.Key), slog.String("ref", kept.Ref), slog.String("commit", kept.Commit))
	return kept, nil
}

func (h *RetireHandler) salvages(ctx context.Context, id int64) ([]salvaged, error) {
	events, err := h.store.EventsOf(ctx, id, task.EventSalvaged)
	if err != nil {
		return nil, fmt.Errorf("list salvages: %w", err)
	}
	list := make([]salvaged, len(events))
	for i, event := range events {
		if err := json.Unmarshal(event.Data, &list[i]); err != nil {
			return nil, fmt.Errorf("list salvages: %w", err)
		}
	}
	return list, nil
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
