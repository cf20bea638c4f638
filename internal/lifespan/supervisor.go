package lifespan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// ErrStopping is the cause of a service's context when it is to stop and nobody gave a better reason.
var ErrStopping = errors.New("stopping")

var (
	errReturned   = errors.New("it returned without being told to stop")
	errExited     = errors.New("its goroutine exited without returning")
	errRanAlready = errors.New("a supervisor runs once")
)

const (
	defaultBackoffMin   = time.Second
	defaultBackoffMax   = time.Minute
	defaultHealthyAfter = 5 * time.Minute
	defaultStopTimeout  = 10 * time.Second

	intervalsOfSilence = 10 // after which a service is stale
)

// Func is a service. It calls ready once it is up (calling it again does no harm) and returns when ctx is done.
type Func func(ctx context.Context, ready func()) error

// Service is a Func and what the supervisor has to know about it.
type Service struct {
	Name        string // unique
	Run         Func
	Stage       int           // lower stages start earlier and stop later
	StopTimeout time.Duration // how long it may take to return; 10 s when zero
	Disabled    bool          // listed in the snapshot, never started
	Interval    time.Duration // it Beats at least so often, and is stale after ten of them in silence; zero: it needn't
	Essential   bool          // its end ends the lifespan
	MustStart   bool          // its end before it was ready for the first time ends the lifespan
}

// Config of a Supervisor. Zero durations mean pauses of 1 s to 1 min, and 5 min of health to forgive.
type Config struct {
	Logger       *slog.Logger
	BackoffMin   time.Duration
	BackoffMax   time.Duration
	HealthyAfter time.Duration
	Code         func(error) string // turns an error into the code that Snapshot shows; nil: always "internal"
	// OnRestart is told that a service ended without being told to and is started again: how often that happened, and the code
	// of its end. It must not block for long: the service waits for it. May be nil.
	OnRestart func(ctx context.Context, service string, restarts int, code string)
}

// Supervisor runs services. Make one with New.
type Supervisor struct {
	cfg     Config
	log     *slog.Logger
	runners []*runner
	ran     atomic.Bool
}

// New makes a supervisor of services. What is wrong with them is reported by Run.
func New(cfg Config, services ...Service) *Supervisor {
	cfg.BackoffMin = positive(cfg.BackoffMin, defaultBackoffMin)
	cfg.BackoffMax = max(positive(cfg.BackoffMax, defaultBackoffMax), cfg.BackoffMin)
	cfg.HealthyAfter = positive(cfg.HealthyAfter, defaultHealthyAfter)
	s := &Supervisor{cfg: cfg, log: orDiscard(cfg.Logger)}
	for _, service := range services {
		s.runners = append(s.runners, newRunner(s, service))
	}
	return s
}

func positive(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

// Run starts the services, waits until ctx is done or an essential service ends, and stops them again. It answers
// nil in the first case and the essential service's error in the second.
func (s *Supervisor) Run(ctx context.Context) error {
	if !s.ran.CompareAndSwap(false, true) {
		return errRanAlready
	}
	if err := s.validate(); err != nil {
		return err
	}
	fatal := make(chan error, len(s.runners))
	started, err := s.start(ctx, fatal)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-fatal:
		}
	}
	s.stop(ctx, started)
	return err
}

func (s *Supervisor) validate() error {
	seen := map[string]bool{}
	for _, r := range s.runners {
		switch name := r.service.Name; {
		case name == "" || r.service.Run == nil && !r.service.Disabled:
			return fmt.Errorf("service %q lacks a name or a function", name)
		case seen[name]:
			return fmt.Errorf("two services are named %q", name)
		default:
			seen[name] = true
		}
	}
	return nil
}

// stages groups what is enabled by stage, in starting order.
func (s *Supervisor) stages() [][]*runner {
	var enabled []*runner
	for _, r := range s.runners {
		if !r.service.Disabled {
			enabled = append(enabled, r)
		}
	}
	slices.SortStableFunc(enabled, func(a, b *runner) int { return cmp.Compare(a.service.Stage, b.service.Stage) })
	var stages [][]*runner
	for i, r := range enabled {
		if i == 0 || r.service.Stage != enabled[i-1].service.Stage {
			stages = append(stages, nil)
		}
		stages[len(stages)-1] = append(stages[len(stages)-1], r)
	}
	return stages
}

// start answers the stages that were started, also when it was interrupted on the way.
func (s *Supervisor) start(ctx context.Context, fatal chan<- error) (started [][]*runner, err error) {
	failed := make(chan error, len(s.runners))
	report := func(err error) { failed <- err; fatal <- err }
	for _, stage := range s.stages() {
		if ctx.Err() != nil {
			return started, nil //nolint:nilerr // a stop is no failure
		}
		started = append(started, stage)
		for _, r := range stage {
			r.start(ctx, report)
		}
		for _, r := range stage {
			select {
			case <-r.settled:
			case <-ctx.Done():
				return started, nil
			case err := <-failed:
				return started, err
			}
		}
	}
	return started, nil
}

// stop ends the stages in reverse. The services of one stage stop together, each with its own deadline.
func (s *Supervisor) stop(ctx context.Context, started [][]*runner) {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(cause, context.Canceled) {
		cause = ErrStopping
	}
	for _, stage := range slices.Backward(started) {
		begin := time.Now()
		for _, r := range stage {
			r.cancel(cause)
		}
		for _, r := range stage {
			s.await(ctx, r, begin)
		}
	}
	for _, r := range s.runners {
		if !r.service.Disabled && !r.started() {
			r.enter(StateStopped)
		}
	}
}

func (s *Supervisor) await(ctx context.Context, r *runner, begin time.Time) {
	limit := positive(r.service.StopTimeout, defaultStopTimeout)
	timer := time.NewTimer(limit - time.Since(begin))
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		s.log.WarnContext(ctx, "service didn't stop in time, leaving it behind",
			slog.String("service", r.service.Name), slog.Duration("stop_timeout", limit))
	}
}
