package reaper

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/agent"
	"orch/internal/db"
	"orch/internal/lifespan"
	"orch/internal/process"
	"orch/internal/queue"
)

// CounterReaped counts reaped jobs since the database was made; the newest is in table latest under LatestReaped.
const (
	CounterReaped = "reaped_total"
	LatestReaped  = "last_reaped"
)

// Queue is what the reaper does to jobs; *queue.Queue and *look.Store have it.
type Queue interface {
	RunningPage(ctx context.Context, after int64, limit int) ([]queue.Seen, error)
	RunningOfBoot(ctx context.Context, boot, namespace string) ([]queue.Worker, error)
	NoteGone(ctx context.Context, worker uuid.UUID) error
	Take(ctx context.Context, s queue.Seen, t queue.Taking) (*queue.Job, error)
	TakeMany(
		ctx context.Context, seen []queue.Seen, within func(ctx context.Context, tx pgx.Tx, taken []queue.Seen) error,
	) (taken, left []queue.Seen, err error)
}

// Runs is what it asks and does about runs of its data root; *agent.Runs has it.
type Runs interface {
	Seem(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]agent.Sight, error)
	End(ctx context.Context, id uuid.UUID, why process.Why) error
	NoteDead(ctx context.Context, id uuid.UUID) error
	MassDeath() (dead, all int, open bool)
}

// Subject is what people know a task by.
type Subject struct{ Task, Repo, Branch string }

// Reaped is a job that was taken from the dead. Its fields are codes, names and numbers.
type Reaped struct {
	JobID                                 int64
	Epoch                                 int
	Kind, Task, Repo, Branch, Agent, Host string
	// Reason is one of this package's, Outcome what the job is now: queued, failed or cancelled.
	Reason, Outcome string
	RunID           *uuid.UUID
	PID             int
}

// Config is what a Reaper needs. Functions may be nil.
type Config struct {
	Queue  Queue
	Runs   Runs
	Self   process.Identity
	RootID uuid.UUID
	// Off means that the reaper is switched off: a first tick then keeps to this data root, and Release is all that is to be called.
	Off       bool
	Interval  time.Duration // between ticks; default 60 s
	DeadTicks int           // in a row; default and least 2
	// Fresh is for how long a run must have ended, by the database's clock, before its handler may be taken for stuck: longer than
	// a worker keeps a new phase to itself. Default 60 s.
	Fresh time.Duration
	// Ceiling is what nothing runs longer than; nil or zero: none. A run whose own timeout and Grace come to more has that.
	Ceiling func(ctx context.Context) time.Duration
	// Grace is what a run may take beyond its own timeout, gates and tests included; default 1 min.
	Grace time.Duration
	// Describe names the tasks of jobs that are about to be reaped.
	Describe func(ctx context.Context, tasks []int64) (map[int64]Subject, error)
	// OnReapTx is called in the transaction of each reap, e.g. to queue an alert. Its error undoes the reap.
	OnReapTx func(ctx context.Context, tx pgx.Tx, r Reaped) error
	// OnMassDeath is called once when too many runs seem dead at once to be believed.
	OnMassDeath func(ctx context.Context, dead, all int)
	// Recover notes the ends of runs that nobody watches, Hosts takes the tasks of dead hosts. Each is called once a tick; nil
	// when it is switched off.
	Recover, Hosts func(ctx context.Context) error
	// NamespaceGone says whether nothing of another pid namespace of this boot is left. Nil: nobody knows.
	NamespaceGone func(ctx context.Context, of process.Identity) (bool, error)
	// Deserted says whether no other process works in the data root, of whatever pid namespace. Nil: nobody knows.
	Deserted func() bool
	// Beat is called when the reaper has got further, Counted with the number of jobs that were taken.
	Beat    func()
	Counted func(n int)
	// OnTick is called by Run before each tick, outside of all guards, for tests that have the daemon die there.
	OnTick func()
	// BootClock is CLOCK_BOOTTIME in nanoseconds; nil: the machine's.
	BootClock func() int64
	Logger    *slog.Logger // nil = silent
}

// Snapshot is how the reaper is.
type Snapshot struct {
	Enabled    bool
	Interval   time.Duration
	DeadTicks  int
	MaxRunning time.Duration // the ceiling of what has no longer one of its own; zero: none, or before the first tick
	LastRun    time.Time     // end of the last tick; zero before the first
	Suspects   int           // running jobs that looked dead or couldn't be judged then
	LastError  string        // code of what went wrong in it; empty when nothing did
	MassDeath  bool          // too many runs seem dead to be believed
}

// Reaper is the daemon. Its methods are safe for concurrent use; ticks come one after the other.
type Reaper struct {
	cfg      Config
	log      *slog.Logger
	suspects suspects
	ages     *ages
	whole    bool // the tick under way has looked at all running jobs

	ticking sync.Mutex

	mu      sync.Mutex
	lastRun time.Time
	codes   map[string]string // by part, of its last error
	opened  bool              // OnMassDeath was told
	ceiling time.Duration
}

const (
	defaultInterval  = time.Minute
	defaultDeadTicks = 2
	defaultFresh     = time.Minute
	defaultGrace     = time.Minute
	// releaseEvery is the longest pause between the first ticks of a reaper that is switched off: others wait for it.
	releaseEvery = 5 * time.Second
)

// New makes a Reaper that has seen nothing yet.
func New(cfg Config) *Reaper {
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Fresh <= 0 {
		cfg.Fresh = defaultFresh
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	cfg.DeadTicks = max(cfg.DeadTicks, defaultDeadTicks)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Beat == nil {
		cfg.Beat = func() {}
	}
	if cfg.OnTick == nil {
		cfg.OnTick = func() {}
	}
	if cfg.BootClock == nil {
		cfg.BootClock = process.BootClock
	}
	return &Reaper{cfg: cfg, log: cfg.Logger, codes: map[string]string{}, ages: newAges(cfg.BootClock)}
}

// The parts of a tick. Each has an error of its own.
const (
	partFirst     = "dead_workers"
	partJobs      = "jobs"
	partEnds      = "ends"
	partRuns      = "runs"
	partWorkers   = "workers"
	partHosts     = "hosts"
	partMassDeath = "mass_death"
)

// Run does the first tick, is ready, and goes on tick by tick until ctx is done.
func (r *Reaper) Run(ctx context.Context, ready func()) error {
	if r.cfg.Off {
		r.Release(ctx, ready)
		<-ctx.Done()
		return nil
	}
	_ = r.firstTick(ctx, r.cfg.Beat) // told, and tried again by the next tick
	ready()
	ticker := time.NewTicker(r.cfg.Interval)
	defer ticker.Stop()
	for {
		r.cfg.OnTick()
		_ = r.Tick(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Release is all that a reaper does that is switched off: a first tick, until one has come to its end without an error, and then
// never again. A worker's first claim waits for ready, which waits for a database that is away but for nothing else: one row
// that somebody has locked keeps nobody from working.
func (r *Reaper) Release(ctx context.Context, ready func()) {
	told := false
	for {
		err := r.firstTick(ctx, r.cfg.Beat)
		if !told && !db.Unreachable(err) {
			told = true
			ready()
		}
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(r.cfg.Interval, releaseEvery)):
		}
	}
}

// FirstTick gives on the jobs of workers whose process is gone for certain, and waits for nothing that ends: a worker's first
// claim comes after it (ORCH-065 FR-1.5). It may be called at any time and by many at once, and is no sign of life of Run.
func (r *Reaper) FirstTick(ctx context.Context) error { return r.firstTick(ctx, func() {}) }

func (r *Reaper) firstTick(ctx context.Context, beat func()) error {
	return r.part(ctx, partFirst, func(ctx context.Context) error { return r.first(ctx, beat) })
}

// Tick looks at everything once. Its error tells what of it couldn't be done; all else was.
func (r *Reaper) Tick(ctx context.Context) error {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	var slow []func() error
	parts := []struct {
		name string
		do   func(context.Context) error
	}{
		{partJobs, func(ctx context.Context) (err error) { slow, err = r.jobs(ctx); return err }},
		{partWorkers, r.workers},
		{partHosts, r.cfg.Hosts}, // which wants its pace
		{partEnds, func(ctx context.Context) error { return r.together(ctx, slow) }},
		{partRuns, r.cfg.Recover},
		{partMassDeath, r.massDeath},
	}
	var failed errorList
	for _, p := range parts {
		if p.do != nil && ctx.Err() == nil {
			failed.add(r.part(ctx, p.name, p.do))
		}
		r.cfg.Beat()
	}
	r.suspects.tick()
	r.ages.tick(r.whole)
	r.mu.Lock()
	r.lastRun = time.Now()
	if r.codes[partJobs] == "" { // what the first tick left is the first thing that a tick does
		delete(r.codes, partFirst)
	}
	r.mu.Unlock()
	return failed.join()
}

// part does one part, and says so once when what it fails with changes.
func (r *Reaper) part(ctx context.Context, name string, do func(context.Context) error) error {
	err := lifespan.Guard(r.log, "reaper: "+name, func() error { return do(ctx) }) //nolint:contextcheck // a guard takes no context
	if ctx.Err() != nil {
		return err
	}
	code := codeOf(err)
	r.mu.Lock()
	changed := r.codes[name] != code
	r.codes[name] = code
	r.mu.Unlock()
	if changed && err != nil {
		r.log.WarnContext(ctx, "part of the reaper's tick not done, tried again", slog.String("part", name),
			slog.String("code", code), slog.Any("error", db.Public(err)))
	}
	return err
}

// Snapshot says how it is.
func (r *Reaper) Snapshot() Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Snapshot{
		Enabled: !r.cfg.Off, Interval: r.cfg.Interval, DeadTicks: r.cfg.DeadTicks, MaxRunning: r.ceiling, LastRun: r.lastRun,
		Suspects: r.suspects.suspected(), MassDeath: r.opened,
	}
	for _, name := range []string{partJobs, partFirst, partEnds, partRuns, partWorkers, partHosts, partMassDeath} {
		if code := r.codes[name]; code != "" {
			s.LastError = code
			break
		}
	}
	return s
}

// massDeath tells once of a look that isn't believed.
func (r *Reaper) massDeath(ctx context.Context) error {
	dead, all, open := r.cfg.Runs.MassDeath()
	r.mu.Lock()
	opens := open && !r.opened
	r.opened = open
	r.mu.Unlock()
	if opens && r.cfg.OnMassDeath != nil {
		r.cfg.OnMassDeath(ctx, dead, all)
	}
	return nil
}

// maxRunning is the ceiling of this tick.
func (r *Reaper) maxRunning(ctx context.Context) time.Duration {
	if r.cfg.Ceiling == nil {
		return 0
	}
	ceiling := r.cfg.Ceiling(ctx)
	r.mu.Lock()
	r.ceiling = ceiling
	r.mu.Unlock()
	return ceiling
}
