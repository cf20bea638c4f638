package app

import (
	"context"
	"errors"

	"orch/internal/merge/lease"
	"orch/internal/process"
	"orch/internal/queue"
)

// runReclaim frees the merge leases of dead holders, at the start before anything that may take long and then again and again.
// It is a service of its own so that whoever switches the other daemons off keeps it, and the other way round.
func (s *server) runReclaim(ctx context.Context, ready func()) error {
	return s.run(ctx, loop{
		service: serviceReclaim, every: s.cfg.Reaper.Interval.Duration(),
		pass: s.system.Load().reclaim,
	}, ready)
}

// reclaim frees the merge leases whose holder is gone. The jobs of dead processes are given back before: then that of the dead
// holder is in line again when the first in line is woken, and its open intent goes before all others.
func (s *system) reclaim(ctx context.Context) error {
	dead := s.releaseDead(ctx)
	_, leases := s.leases.Reclaim(ctx, func(h lease.Holder) lease.Verdict { return judge(s.root.ID(), s.self, h) })
	return errors.Join(dead, leases)
}

// releaseDead gives back the jobs of dead processes of this data root.
func (s *system) releaseDead(ctx context.Context) error {
	released, err := s.queue.ReleaseDead(ctx, s.root.ID(), func(w queue.Worker) bool {
		return process.Probe(identityOf(w)) == process.Dead
	})
	s.worker.CountReaped(len(released))
	return err
}
