package app

import (
	"context"
	"log/slog"
	"time"

	"orch/internal/db"
)

// loop is a daemon that does one thing again and again, first at once.
type loop struct {
	service string
	every   time.Duration
	pass    func(context.Context) error
}

// run runs it until the stop. A pass that fails is an outcome: it is one line in the log until it fails otherwise or succeeds.
func (s *server) run(ctx context.Context, l loop, ready func()) error {
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for last := ""; ; {
		s.tick(l.service)
		err := l.pass(ctx)
		if code := db.Code(err); code != last && ctx.Err() == nil {
			last = code
			if err != nil {
				s.log.WarnContext(ctx, "pass incomplete, tried again", slog.String("service", l.service), slog.String("code", code), slog.Any("error", db.Public(err)))
			}
		}
		ready()
		s.life.Beat(l.service)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// tick tells tests that a daemon begins a pass.
func (s *server) tick(service string) {
	if s.opts.At != nil {
		s.opts.At("tick:" + service)
	}
}

// beat notes that a daemon goes on, which tests hear of too.
func (s *server) beat(service string) {
	s.life.Beat(service)
	s.tick(service)
}
