package app

import (
	"context"
	"time"

	"orch/internal/process"
	"orch/internal/process/contact"
)

// runSighting tells the database again and again that this data root is alive, and the shims of its runs that the database
// has heard it. It does so in every process, whatever else is switched off: from then on other hosts count this one's
// death, and shims their orphan grace, the same moment for both.
func (s *server) runSighting(ctx context.Context, ready func()) error {
	every := s.cfg.Worker.Heartbeat.Duration()
	return s.run(ctx, loop{
		service: serviceSighting, every: every,
		pass: func(ctx context.Context) error { return s.sight(ctx, every) },
	}, ready)
}

func (s *server) sight(ctx context.Context, within time.Duration) error {
	sys := s.system.Load()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent := process.BootClock()
	if err := sys.root.Sight(ctx, sys.pool); err != nil {
		return err
	}
	return contact.Write(sys.root.RunsDir(), sent)
}
