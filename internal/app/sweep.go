package app

import (
	"context"
	"errors"
)

// runSweep bounds what finished work leaves on the disk. One process of a data root does it at a time.
func (s *server) runSweep(ctx context.Context, ready func()) error {
	ready()
	sys := s.system.Load()
	return s.run(ctx, loop{
		service: serviceSweep, every: s.cfg.Disk.SweepEvery.Duration(),
		pass: func(ctx context.Context) error {
			_, err := sys.root.Alone("sweep", func() error {
				_, err := sys.keeper.Sweep(ctx)
				return errors.Join(err, sys.sweeper.Sweep(ctx))
			})
			return err
		},
	}, ready)
}
