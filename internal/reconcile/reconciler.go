package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/queue/tally"
	"orch/internal/task"
)

const (
	// CounterRepaired is the queue's counter of repairs since the database was made.
	CounterRepaired = "repaired_total"
	// LatestRepaired is the row of the newest repair in the table latest; its data are a Repaired.
	LatestRepaired = "last_repaired"
)

// Repaired is what is kept of the newest repair.
type Repaired struct {
	Repair string `json:"repair"`
	Task   string `json:"task"` // key
	Repo   string `json:"repo"`
}

// Landings is what is asked of the repositories that tasks land in. resting.Landings of merge is one.
type Landings interface {
	// Upstream says whether the work of a task that waits for a person is on its target.
	Upstream(ctx context.Context, taskID int64) (bool, error)
	// Cleared says whether a look at the task's repository finds nothing any more that stands in the way of a landing.
	Cleared(ctx context.Context, taskID int64) (bool, error)
}

// Config is what a Reconciler needs. Pool, Tasks, Landings and Root are required.
type Config struct {
	Pool     *pgxpool.Pool
	Tasks    *task.Store
	Landings Landings
	// Root is the data root of this process. Repositories are looked at for its own tasks only: what another machine has at
	// the same path may be something else.
	Root uuid.UUID

	Interval time.Duration // 0 = 1 min
	// Rest is how long a parked landing rests before it is looked at, doubled each time that it is resumed in vain;
	// 0 = 10 min. One with an open intent rests a tenth of it.
	Rest     time.Duration
	LeaseTTL time.Duration // for how long after its last beat a worker lives; 0 = 60 s
	Beat     func()        // called at least once in a tick, and after each subject; may be nil
	Logger   *slog.Logger  // nil = silent
}

// Snapshot is how the reconciler is.
type Snapshot struct {
	LastRun   time.Time // end of the last tick; zero before
	LastError string    // code of what its last tick met; "" = nothing
	Failing   int       // subjects whose repair failed in the last tick
}

// Reconciler repairs. Run or Tick are for one goroutine at a time, Snapshot is for any.
type Reconciler struct {
	cfg     Config
	log     *slog.Logger
	repairs []*repair
	away    string // code of what keeps the database from being asked, as it was logged

	mu       sync.Mutex
	snapshot Snapshot
}

// New returns a reconciler that has looked at nothing.
func New(cfg Config) *Reconciler {
	if cfg.Interval <= 0 {
		cfg.Interval = time.Minute
	}
	if cfg.Rest <= 0 {
		cfg.Rest = 10 * time.Minute
	}
	if cfg.LeaseTTL <= 0 {
		cfg.LeaseTTL = time.Minute
	}
	if cfg.Beat == nil {
		cfg.Beat = func() {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reconciler{cfg: cfg, log: cfg.Logger}
	r.repairs = []*repair{
		{name: "job_missing", find: r.jobless, mend: r.revive},
		{name: intentOpen, find: r.intents, mend: r.resolve},
		{name: landedOutside, find: r.ready, mend: r.landed},
		{name: parkedCleared, find: r.parked, mend: r.cleared},
		{name: "runs_left", find: r.remains, mend: r.tidy},
		{name: "unserved", find: r.unserved, mend: r.block},
	}
	return r
}

// Run repairs at once and then at every interval, until ctx is done. Nothing depends on its first tick.
func (r *Reconciler) Run(ctx context.Context, ready func()) error {
	ready()
	ticker := time.NewTicker(r.cfg.Interval)
	defer ticker.Stop()
	for {
		_ = r.Tick(ctx) // told by itself, and in the snapshot
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Tick looks once and repairs what it finds. What fails is logged, and tried again by the next tick; it is returned
// for whoever calls it alone.
func (r *Reconciler) Tick(ctx context.Context) error {
	var failed []error
	failing := 0
	for _, repair := range r.repairs {
		n, err := r.pass(ctx, repair)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failing += n
		failed = append(failed, err)
		r.cfg.Beat()
		if away(err) {
			break // all others would meet the same
		}
	}
	r.tell(ctx, failed[len(failed)-1])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = Snapshot{LastRun: time.Now(), LastError: first(failed), Failing: failing}
	return errors.Join(failed...)
}

// tell says once that the database is away.
func (r *Reconciler) tell(ctx context.Context, last error) {
	now := ""
	if away(last) {
		now = code(last)
	}
	if now != r.away && now != "" {
		r.log.WarnContext(ctx, "nothing repaired, tried again", slog.String("code", now), slog.Any("error", db.Public(last)))
	}
	r.away = now
}

// first is the code of the first error.
func first(failed []error) string {
	for _, err := range failed {
		if err != nil {
			return code(err)
		}
	}
	return ""
}

// Snapshot says how the last tick went.
func (r *Reconciler) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snapshot
}

// noted counts a repair and shows it as the newest, in its transaction. The rows are everybody's: they come last.
func (r *Reconciler) noted(name string, s subject) task.Within {
	return func(ctx context.Context, tx pgx.Tx) error {
		if err := tally.AddCounterTx(ctx, tx, CounterRepaired, 1); err != nil {
			return fmt.Errorf("count repair: %w", err)
		}
		return tally.SetLatestTx(ctx, tx, LatestRepaired, Repaired{Repair: name, Task: s.Key, Repo: s.Repo})
	}
}
