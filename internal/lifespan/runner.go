package lifespan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// runner is one service under supervision.
type runner struct {
	sup     *Supervisor
	service Service
	ready   chan struct{} // closed when the service is ready for the first time
	once    sync.Once     // closes ready
	settled chan struct{} // closed then too, or at the end of its first life: nobody waits for longer
	settle  sync.Once     // closes settled
	done    chan struct{} // closed when nothing of the service runs any more
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	status Status
}

func newRunner(sup *Supervisor, service Service) *runner {
	r := &runner{sup: sup, service: service, ready: make(chan struct{}), settled: make(chan struct{}), done: make(chan struct{})}
	r.status = Status{Name: service.Name, Enabled: !service.Disabled, State: StateStarting, Since: time.Now()}
	if service.Disabled {
		r.status.State = StateDisabled
	}
	return r
}

// started is asked by the goroutine of Supervisor.Run only.
func (r *runner) started() bool { return r.cancel != nil }

// start runs the service until cancel is called. fatal is told the end of an essential service.
func (r *runner) start(ctx context.Context, fatal func(error)) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r.cancel = cancel
	go func() {
		defer close(r.done)
		defer r.enter(StateStopped)
		defer cancel(nil)
		r.loop(ctx, fatal)
	}()
}

func (r *runner) loop(ctx context.Context, fatal func(error)) {
	pause := r.sup.cfg.BackoffMin
	for {
		begin := time.Now()
		err := r.live(ctx)
		if ctx.Err() != nil {
			r.logLastWords(ctx, err)
			return
		}
		if err == nil {
			err = errReturned
		}
		r.noteEnd(r.sup.code(err))
		if r.service.Essential || r.service.MustStart && !r.wasReady() {
			fatal(fmt.Errorf("service %s: %w", r.service.Name, err))
			return
		}
		r.settle.Do(func() { close(r.settled) })
		if time.Since(begin) >= r.sup.cfg.HealthyAfter {
			pause = r.sup.cfg.BackoffMin
		}
		if !r.pause(ctx, err, pause) {
			return
		}
		pause = min(2*pause, r.sup.cfg.BackoffMax)
	}
}

// wasReady says whether the service has been ready in any of its lives.
func (r *runner) wasReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// live is one life of the service.
func (r *runner) live(ctx context.Context) error {
	r.enter(StateStarting)
	var mu sync.Mutex
	over := false
	ready := func() {
		mu.Lock()
		defer mu.Unlock()
		if over { // a call by something this life left behind says nothing about the next one
			return
		}
		over = true
		r.enter(StateReady)
		r.once.Do(func() { close(r.ready) })
		r.settle.Do(func() { close(r.settled) })
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}()
	return r.run(ctx, ready)
}

// run calls the service in a goroutine of its own: what ends that, as runtime.Goexit does, ends a life and no more.
func (r *runner) run(ctx context.Context, ready func()) error {
	ended := make(chan error, 1)
	go func() {
		err := errExited
		defer func() { ended <- err }()
		err = Guard(r.sup.log, r.service.Name, func() error { return r.service.Run(ctx, ready) }) //nolint:contextcheck // Guard logs, and needs no context for that
	}()
	return <-ended
}

// pause waits before the next life; false when the service is to stop.
func (r *runner) pause(ctx context.Context, err error, pause time.Duration) bool {
	r.enter(StateBackoff)
	r.sup.log.ErrorContext(ctx, "service ended, starting it again after a pause", slog.String("service", r.service.Name),
		slog.String("code", r.sup.code(err)), slog.Any("error", err), slog.Duration("pause", pause))
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		r.tellRestart(ctx, r.noteRestart(), r.sup.code(err))
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *runner) tellRestart(ctx context.Context, restarts int, code string) {
	if r.sup.cfg.OnRestart == nil {
		return
	}
	_ = Guard(r.sup.log, "tell of a restart", func() error { //nolint:contextcheck // Guard logs, and needs no context for that
		r.sup.cfg.OnRestart(ctx, r.service.Name, restarts, code)
		return nil
	})
}

// logLastWords reports an error at stop that is more than the echo of the stop itself.
func (r *runner) logLastWords(ctx context.Context, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) {
		return
	}
	r.noteEnd(r.sup.code(err))
	r.sup.log.WarnContext(ctx, "service stopped with an error", slog.String("service", r.service.Name),
		slog.String("code", r.sup.code(err)), slog.Any("error", err))
}
