package merge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/attempt"
	"orch/internal/merge/build"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
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
	Store     *attempt.Store
	Tasks     Tasks
	Mirrors   build.Mirrors
	Catalog   Catalog
	Tester    Tester
	Forge     forge.Forge
	Committer git.Identity // of the commits that are made
	Owner     string       // the installation, in whose name targets are claimed; "" claims none
	Logger    *slog.Logger

	WaitPoll    time.Duration // longest wait of the next in line for a lost wake-up; default 15 s, more further back
	LandTimeout time.Duration // bound of what follows the intent, from look to finalise; default 15 min: a first fetch is in it
	RetryMin    time.Duration // first back-off after a problem; default 15 s, doubled each time
	RetryMax    time.Duration // longest back-off; default 10 min
	MaxMoved    int           // moves of the target or the head under a landing until it is parked; default 20
	MaxLater    int           // problems that time may cure until then; default 30, some four hours
	MaxRefused  int           // problems that a person has to solve until then; default 5

	// Paused says whether a person has paused the repository: then a landing goes no further, up to its intent. nil = never.
	Paused func(ctx context.Context, repo string) (bool, error)
	// EndRuns ends every run of the task that still lives here. It is called for a job that is pinned by such a run when
	// nobody will follow it any more: the task was cancelled, or has moved on. nil = there are none.
	EndRuns func(ctx context.Context, taskID int64) error
	// At is called at each point between steps, as "merge:POINT": tests stop, kill or freeze the process there. May be nil.
	At func(point string)
}

// Handler runs merge jobs. It has the shape of a worker's handler.
type Handler struct {
	cfg   Config
	build build.Builder
	log   *slog.Logger
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
	cfg.LandTimeout = orDefault(cfg.LandTimeout, 15*time.Minute)
	cfg.RetryMin = orDefault(cfg.RetryMin, 15*time.Second)
	cfg.RetryMax = orDefault(cfg.RetryMax, 10*time.Minute)
	cfg.MaxMoved = orDefault(cfg.MaxMoved, 20)
	cfg.MaxLater = orDefault(cfg.MaxLater, 30)
	cfg.MaxRefused = orDefault(cfg.MaxRefused, 5)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.At == nil {
		cfg.At = func(string) {}
	}
	return &Handler{cfg: cfg, build: build.Builder{Mirrors: cfg.Mirrors, Forge: cfg.Forge, Committer: cfg.Committer}, log: cfg.Logger}, nil
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

func (h *Handler) at(p point) { h.cfg.At("merge:" + string(p)) }

// Run lands the task of one merge job, or does as much of it as there is to do.
func (h *Handler) Run(ctx context.Context, l *queue.Lease) error {
	var args Args
	if err := l.Job().Decode(&args); err != nil {
		return err
	}
	err := h.land(ctx, l, args)
	if errors.Is(err, queue.ErrCancelRequested) && !l.Ended() {
		// A test may be running that was begun under an earlier grant, and this one never came to follow it.
		if err := h.endRuns(ctx, l, args.TaskID); err != nil {
			return err
		}
	}
	return err
}

func (h *Handler) land(ctx context.Context, l *queue.Lease, args Args) error {
	task, current, err := h.load(ctx, l, args.TaskID)
	if err != nil && !errors.Is(err, ErrSuperseded) {
		return err
	}
	if err != nil || !task.Open || task.Stage != args.Stage || task.Round != args.Round {
		return h.superseded(ctx, l, args.TaskID)
	}
	d := &drive{h: h, job: l, task: task}
	entering := ctx
	if current != nil && current.Step.Intended() {
		// The target may have moved: nothing but the repository says how that ended, so nothing else is asked.
		d.def = settled(*current, task)
		var cancel context.CancelFunc
		entering, cancel = context.WithTimeout(context.WithoutCancel(ctx), h.cfg.LandTimeout)
		defer cancel()
	} else {
		if err := d.define(ctx); err != nil {
			return over(ctx, err)
		}
		d.offer(ctx, current)
	}
	entered, err := h.enter(entering, d)
	if err != nil {
		return over(entering, err)
	}
	if !entered {
		return nil
	}
	return d.run(ctx)
}

// over is err, or the cause why ctx is over when err is but its echo.
func over(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, queue.ErrLeaseLost) {
		return context.Cause(ctx)
	}
	return err
}

// load reads the task and its open attempt although ctx may be over already: what is to be ended depends on them.
func (h *Handler) load(ctx context.Context, l *queue.Lease, taskID int64) (t Task, current *attempt.Attempt, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if t, err = h.cfg.Tasks.Load(ctx, taskID); err != nil {
		return Task{}, nil, fmt.Errorf("load task: %w", err)
	}
	err = fenced(ctx, l, func(tx pgx.Tx) (err error) {
		current, err = h.cfg.Store.CurrentTx(ctx, tx, taskID)
		return err
	})
	return t, current, err
}

// superseded ends a job whose task has moved on without it, and what it may have left behind.
func (h *Handler) superseded(ctx context.Context, l *queue.Lease, taskID int64) error {
	l.SetPhase(problem.Superseded)
	cancelled := l.Job().CancelRequestedAt != nil || errors.Is(context.Cause(ctx), queue.ErrCancelRequested)
	if !cancelled { // else Run does it
		if err := h.endRuns(ctx, l, taskID); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := fenced(ctx, l, func(tx pgx.Tx) error {
		// A former grant of the job may have died with the lease.
		if err := h.cfg.Store.Leases().FreeTx(ctx, tx, taskID, l.Job().ID); err != nil {
			return err
		}
		if err := h.cfg.Store.AbandonTx(ctx, tx, taskID, problem.Superseded); err != nil || cancelled {
			return err
		}
		return l.CompleteTx(ctx, tx)
	})
	if err == nil && cancelled {
		err = queue.ErrCancelRequested
	}
	return err
}

// endRuns ends what still runs for the task when its job is pinned by a run that nobody will follow any more.
func (h *Handler) endRuns(ctx context.Context, l *queue.Lease, taskID int64) error {
	if h.cfg.EndRuns == nil || l.Job().RunID == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endRunsTimeout)
	defer cancel()
	if err := l.Check(ctx); err != nil {
		return err
	}
	if err := h.cfg.EndRuns(ctx, taskID); err != nil {
		return fmt.Errorf("end the runs of task %d: %w", taskID, err)
	}
	return nil
}

const (
	settleTimeout  = 30 * time.Second // of what is read or written although the context may be over
	endRunsTimeout = 2 * time.Minute
)

// enter opens the attempt and takes the merge lease, or sends the job back into the line: the look at the lease and
// the snooze are one transaction, so that a release can't fall between. The lease's row is locked before the attempt is
// written, as by whoever leads a group and writes the attempts of others. False without an error means that the job was
// released.
func (h *Handler) enter(ctx context.Context, d *drive) (entered bool, err error) {
	var taken *lease.Reclaimed
	s, l := h.cfg.Store, d.job
	err = fenced(ctx, l, func(tx pgx.Tx) error {
		entered, taken = false, nil
		// Whoever cancelled the task since it was loaded has found no attempt to close.
		if cancelled, err := l.CancelRequestedTx(ctx, tx); d.defined && (err != nil || cancelled) {
			return cmp.Or(err, queue.ErrCancelRequested)
		}
		if err := s.Leases().LockTx(ctx, tx, d.def.Repo.Name, d.def.Target); err != nil {
			return err
		}
		a, err := s.OpenTx(ctx, tx, l, attempt.Open{
			TaskID: d.task.ID, Repo: d.def.Repo.Name, Target: d.def.Target, Branch: d.task.Branch, Method: d.def.Method,
		})
		if err != nil {
			return err
		}
		if d.offered {
			a.Offered = true
			if err := l.FreeRootTx(ctx, tx); err != nil {
				return err
			}
		}
		got, position, from, err := s.Leases().AcquireTx(ctx, tx, l, a.Turn())
		if err != nil {
			return err
		}
		if got != nil {
			d.right, d.attempt = got, a
			entered, taken = true, from
			if d.mates, err = matesTx(ctx, tx, s, a); err != nil || !d.offered {
				return err
			}
			return attempt.SaveTx(ctx, tx, l, a)
		}
		a.Wait = min(time.Duration(max(position-1, 1))*h.cfg.WaitPoll, s.Leases().TTL())
		a.LastError = ""
		if err := attempt.SaveTx(ctx, tx, l, a); err != nil {
			return err
		}
		return l.ReleaseTx(ctx, tx, queue.Release{After: a.Wait, WaitingFor: WaitingForLease})
	})
	if err != nil {
		return false, fmt.Errorf("take the merge lease for %s: %w", d.task.Key, err)
	}
	if taken != nil {
		s.Leases().Warn(ctx, *taken)
	}
	if entered {
		h.at(pointEntered)
	}
	return entered, nil
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
