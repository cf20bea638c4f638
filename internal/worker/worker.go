package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"orch/internal/queue"
)

const (
	defaultPoll      = 5 * time.Second
	defaultHeartbeat = 15 * time.Second
	defaultStopGrace = 30 * time.Second
	defaultWaitLimit = 24 * time.Hour

	beatsPerTTL = 3
)

// ErrSchemaNewer is what Run returns after it drained because the database is being migrated past this program.
var ErrSchemaNewer = errors.New("the database is about to be, or was, migrated by a newer orch")

// Handler does the work of one kind of job.
type Handler interface {
	// Run works on the job until it is done or ctx is over. What it returns decides how the job ends, see doc.go.
	Run(ctx context.Context, l *queue.Lease) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, l *queue.Lease) error

// Run implements Handler.
func (f HandlerFunc) Run(ctx context.Context, l *queue.Lease) error { return f(ctx, l) }

// Config is what a Worker needs.
type Config struct {
	Queue    *queue.Queue
	Worker   queue.Worker       // who it is: one id per boot
	Lanes    map[string]int     // lane → slots
	Handlers map[string]Handler // by kind
	KindLane map[string]string  // kind → lane
	Repos    func() []string    // repositories whose jobs it takes, asked before each claim and tick; nil = none

	// Zero durations mean the default, negative ones are refused.
	Poll      time.Duration // how often each lane looks without being woken, ± 10 %; default 5 s
	Heartbeat time.Duration // default 15 s; at least three must fit the lease's TTL
	StopGrace time.Duration // how long running jobs may go on after the first stop signal; default 30 s
	WaitLimit time.Duration // a job that has waited for longer is logged, once an hour; default 24 h

	// OnWait is called when such a job is logged, with what it waits for and for how long it has by the database's clock.
	// It may be nil.
	OnWait func(ctx context.Context, job queue.Job, waitingFor string, waited time.Duration)

	Tick   func(ctx context.Context) // called once a poll, lanes busy or not
	Logger *slog.Logger              // nil = silent
}

// Worker runs handlers on claimed jobs. It is safe for concurrent use; Run runs once at a time.
type Worker struct {
	cfg   Config
	log   *slog.Logger
	lanes map[string]*lane
	stats counters
	waits waits

	beatNow    chan struct{}
	hurry      chan struct{}
	hurryOnce  sync.Once
	hurryLimit time.Duration
}

// New makes a Worker, and refuses a configuration that can't work.
func New(cfg Config) (*Worker, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("make worker: %w", err)
	}
	if ttl := cfg.Queue.LeaseTTL(); cfg.Heartbeat*beatsPerTTL > ttl {
		return nil, fmt.Errorf("make worker: %d heartbeats of %s don't fit the lease TTL of %s", beatsPerTTL, cfg.Heartbeat, ttl)
	}
	lanes := make(map[string]*lane, len(cfg.Lanes))
	for name, slots := range cfg.Lanes {
		if slots <= 0 {
			return nil, fmt.Errorf("make worker: lane %q has %d slots", name, slots)
		}
		lanes[name] = &lane{name: name, slots: slots, wake: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
	}
	for kind := range cfg.Handlers {
		l := lanes[cfg.KindLane[kind]]
		if l == nil {
			return nil, fmt.Errorf("make worker: kind %q has no lane", kind)
		}
		l.kinds = append(l.kinds, kind)
		slices.Sort(l.kinds)
	}
	return &Worker{
		cfg: cfg, log: cfg.Logger, lanes: lanes, waits: waits{logged: map[int64]time.Time{}},
		beatNow: make(chan struct{}, 1), hurry: make(chan struct{}), hurryLimit: hurryLimit,
	}, nil
}

// complete fills in what was left out.
func (cfg *Config) complete() error {
	for _, d := range []struct {
		what  string
		value *time.Duration
		usual time.Duration
	}{
		{"poll", &cfg.Poll, defaultPoll},
		{"heartbeat", &cfg.Heartbeat, defaultHeartbeat},
		{"stop grace", &cfg.StopGrace, defaultStopGrace},
		{"wait limit", &cfg.WaitLimit, defaultWaitLimit},
	} {
		switch {
		case *d.value < 0:
			return fmt.Errorf("a %s of %s", d.what, *d.value)
		case *d.value == 0:
			*d.value = d.usual
		}
	}
	if cfg.Queue == nil {
		return errors.New("no queue")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tick == nil {
		cfg.Tick = func(context.Context) {}
	}
	if cfg.Repos == nil {
		cfg.Repos = func() []string { return nil }
	}
	return nil
}

// Run works until ctx is over, then stops gracefully: see doc.go. It returns nil, also when jobs had to be abandoned,
// or ErrSchemaNewer when it stopped by itself.
func (w *Worker) Run(ctx context.Context, ready func()) error {
	ctx, endRun := context.WithCancelCause(ctx)
	defer endRun(nil)
	life := context.WithoutCancel(ctx)
	s := newSession(w, endRun)
	hard, endHard := context.WithCancelCause(life) // ends with the grace
	defer endHard(queue.ErrStopping)
	last, endLast := context.WithCancelCause(life) // ends with the time for releasing what is left then
	defer endLast(errTooLate)
	s.endHard, s.endLast = endHard, endLast

	ready()
	if s.register(ctx) {
		beats := s.start(ctx, hard, last)
		<-ctx.Done()
		s.stop(hard, last, beats)
	}
	if errors.Is(context.Cause(ctx), ErrSchemaNewer) {
		return ErrSchemaNewer
	}
	return nil
}

// HurryUp ends the grace of a stop at once, the one under way or the next: whatever still runs is released, within 2 s.
func (w *Worker) HurryUp() { w.hurryOnce.Do(func() { close(w.hurry) }) }

// Wake makes a lane look for jobs now; "" wakes all. A lane that this worker doesn't have is ignored.
func (w *Worker) Wake(name string) {
	for _, l := range w.lanes {
		if name == "" || name == l.name {
			l.poke()
		}
	}
}

// BeatNow makes the worker beat now: a cancel may be waiting.
func (w *Worker) BeatNow() { poke(w.beatNow) }

// LaneStatus is how busy a lane is.
type LaneStatus struct {
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
}

// Lanes returns how busy each lane is.
func (w *Worker) Lanes() map[string]LaneStatus {
	status := make(map[string]LaneStatus, len(w.lanes))
	for name, l := range w.lanes {
		status[name] = LaneStatus{Slots: l.slots, Busy: l.slots - l.free()}
	}
	return status
}

// poke sets a flag that someone waits for; set twice it is still one.
func poke(flag chan struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}

// jittered spreads an interval by ± 10 %, so that many workers don't ask at once.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // spreads load, guards nothing
}
