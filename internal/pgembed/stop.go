package pgembed

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"
)

// Stop ends the server and frees the directory: a fast shutdown, after 30 s (or once ctx is done) an immediate one, 10 s
// later a kill. Nothing committed is lost in any of them. It may be called again, and after the server ended by itself.
func (s *Server) Stop(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.lock == nil {
		return nil
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	s.lock.release()
	s.lock = nil
	return nil
}

// end is Stop without the directory's lock.
func (s *Server) end(ctx context.Context) error {
	s.stopping.Store(true)
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
		hurry  <-chan struct{}
	}{
		{syscall.SIGINT, 30 * time.Second, ctx.Done()},
		{syscall.SIGQUIT, 10 * time.Second, nil},
		{syscall.SIGKILL, 5 * time.Second, nil},
	}
	for i, step := range steps {
		if i > 0 {
			s.cluster.log.LogAttrs(ctx, slog.LevelWarn, "database doesn't stop", slog.Int("pid", s.pid), slog.String("next_signal", step.signal.String()))
		}
		if s.endWith(step.signal, step.wait, step.hurry) {
			// A killed or crashed postmaster leaves children behind that end by themselves; whoever doesn't is ended.
			return s.cluster.end(context.WithoutCancel(ctx), s.cluster.data, 0)
		}
	}
	return errors.New("stop the database: postgres survived a kill")
}

// endWith sends the signal and says whether the server ended within that time.
func (s *Server) endWith(signal syscall.Signal, limit time.Duration, hurry <-chan struct{}) bool {
	select {
	case <-s.done:
		return true
	default:
	}
	_ = s.process.Signal(signal) // it may just have ended
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.done:
		return true
	case <-timer.C:
	case <-hurry:
	}
	return false
}
