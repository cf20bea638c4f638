package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"orch/internal/db"
)

// runSweep bounds what finished work leaves on the disk. One process of a data root does it at a time.
func (s *server) runSweep(ctx context.Context, ready func()) error {
	ready()
	ticker := time.NewTicker(s.cfg.Disk.SweepEvery.Duration())
	defer ticker.Stop()
	for last := ""; ; {
		sys := s.system.Load()
		_, err := sys.root.Alone("sweep", func() error {
			_, err := sys.keeper.Sweep(ctx)
			return errors.Join(err, sys.sweeper.Sweep(ctx))
		})
		if code := db.Code(err); code != last && ctx.Err() == nil { // what stays so is one line
			last = code
			if err != nil {
				s.log.WarnContext(ctx, "sweep incomplete, tried again", slog.String("code", code), slog.Any("error", db.Public(err)))
			}
		}
		s.life.Beat(serviceSweep)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
