package merge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/lease"
	"orch/internal/queue"
)

// Kind and Lane of merge jobs.
const (
	Kind = "merge"
	Lane = "merge"
)

// WaitingForLease is what a merge job waits for while others of its target are before it.
const WaitingForLease = "merge_lease"

// Args are the arguments of a merge job: the landing of a task as it stands at one stage and round.
type Args struct {
	TaskID int64  `json:"task_id"`
	Stage  string `json:"stage"`
	Round  int    `json:"round"`
}

// Config configures a Handler. Store, Tasks, Mirrors, Catalog, Tester and Forge are required.
type Config struct {
	Store     *Store
	Tasks     Tasks
	Mirrors   Mirrors
	Catalog   Catalog
	Tester    Tester
	Forge     forge.Forge
	Committer git.Identity // of the commits that a replay makes
	Logger    *slog.Logger

	WaitPoll    time.Duration                                // longest wait of the next in line for a lost wake-up; default 15 s, more further back
	LandTimeout time.Duration                                // bound of what follows the intent, from look to finalise; default 2 min
	RetryMin    time.Duration                                // first back-off after a problem; default 15 s, doubled each time
	RetryMax    time.Duration                                // longest back-off; default 10 min
	MaxTries    int                                          // problems and moved bases until the attempt is parked; default 20
	OnReclaim   func(ctx context.Context, r lease.Reclaimed) // told of a lease that was taken over at acquire; may be nil

	failpoint func(point string) // tests end the handler's goroutine here, as a crash would
}

// Handler runs merge jobs. It has the shape of a worker's handler.
type Handler struct {
	cfg Config
	log *slog.Logger
}

// NewHandler checks the configuration and fills in its defaults.
func NewHandler(cfg Config) (*Handler, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("merge handler: no store")
	case cfg.Tasks == nil, cfg.Mirrors == nil, cfg.Catalog == nil, cfg.Tester == nil, cfg.Forge == nil:
		return nil, errors.New("merge handler: tasks, mirrors, catalog, tester and forge are required")
	}
	cfg.WaitPoll = orDefault(cfg.WaitPoll, 15*time.Second)
	cfg.LandTimeout = orDefault(cfg.LandTimeout, 2*time.Minute)
	cfg.RetryMin = orDefault(cfg.RetryMin, 15*time.Second)
	cfg.RetryMax = orDefault(cfg.RetryMax, 10*time.Minute)
	cfg.MaxTries = orDefault(cfg.MaxTries, 20)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.failpoint == nil {
		cfg.failpoint = func(string) {}
	}
	return &Handler{cfg: cfg, log: cfg.Logger}, nil
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// Run lands the task of one merge job, or does as much of it as there is to do.
func (h *Handler) Run(ctx context.Context, l *queue.Lease) error {
	var args Args
	if err := l.Job().Decode(&args); err != nil {
		return err
	}
	task, err := h.cfg.Tasks.Load(ctx, args.TaskID)
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return fmt.Errorf("load task: %w", err)
	}
	if err != nil || !task.Open || task.Stage != args.Stage || task.Round != args.Round {
		return h.superseded(ctx, l, args.TaskID)
	}
	def, err := h.cfg.Catalog.Definition(ctx, task)
	if err != nil {
		return fmt.Errorf("find how to land %s: %w", task.Key, err)
	}
	if def.Method == "" {
		def.Method = MethodRebase
	}
	d, err := h.enter(ctx, l, task, def)
	if err != nil || d == nil {
		return err
	}
	return d.run(ctx)
}

// superseded ends a job whose task has moved on without it, and what it may have left behind.
func (h *Handler) superseded(ctx context.Context, l *queue.Lease, taskID int64) error {
	l.SetPhase(CodeSuperseded)
	return fenced(ctx, l, func(tx pgx.Tx) error {
		// A former grant of the job may have died with the lease.
		if err := h.cfg.Store.leases.FreeTx(ctx, tx, taskID, l.Job().ID); err != nil {
			return err
		}
		if err := h.cfg.Store.AbandonTx(ctx, tx, taskID, CodeSuperseded); err != nil {
			return err
		}
		return l.CompleteTx(ctx, tx)
	})
}

// enter opens the attempt and takes the merge lease, or sends the job back into the line: the look at the lease and
// the snooze are one transaction, so that a release can't fall between. A nil drive without an error means that the
// job was released.
func (h *Handler) enter(ctx context.Context, l *queue.Lease, t Task, def Definition) (*drive, error) {
	var d *drive
	var taken *lease.Reclaimed
	s := h.cfg.Store
	err := fenced(ctx, l, func(tx pgx.Tx) error {
		d, taken = nil, nil
		a, err := s.openAttemptTx(ctx, tx, l, t, def)
		if err != nil {
			return err
		}
		got, position, from, err := s.leases.AcquireTx(ctx, tx, l, a.turn())
		if err != nil {
			return err
		}
		if got != nil {
			d, taken = &drive{h: h, job: l, task: t, def: def, right: got, attempt: a}, from
			return nil
		}
		a.Wait = min(time.Duration(max(position-1, 1))*h.cfg.WaitPoll, s.leases.TTL())
		a.LastError = ""
		if err := saveAttemptTx(ctx, tx, l, a); err != nil {
			return err
		}
		return l.ReleaseTx(ctx, tx, queue.Release{After: a.Wait, WaitingFor: WaitingForLease})
	})
	if err != nil {
		return nil, fmt.Errorf("take the merge lease for %s: %w", t.Key, err)
	}
	if taken != nil {
		s.leases.Warn(ctx, *taken)
		if h.cfg.OnReclaim != nil {
			h.cfg.OnReclaim(ctx, *taken)
		}
	}
	if d != nil {
		h.cfg.failpoint(pointEntered)
	}
	return d, nil
}

// fenced is l.Tx, tried again when the database broke a deadlock: a task is locked after its job here and before it
// where someone cancels it, and then one of the two has to begin again.
func fenced(ctx context.Context, l *queue.Lease, fn func(pgx.Tx) error) error {
	const tries = 5
	var err error
	for range tries {
		err = l.Tx(ctx, fn)
		if code := db.Code(err); code != db.CodeDeadlock && code != db.CodeSerialization {
			return err
		}
	}
	return err
}
