package app

import (
	"context"
	"errors"
)

// ErrWorkerDisabled says that a process was started for nothing.
var ErrWorkerDisabled = errors.New("ORCH_WORKER_ENABLED=false: this worker would never claim a job; set it to true, or stop this process")

// Work runs a worker until ctx is done, on a data root that `orch serve` has bound, and its database. It has no API, and
// starts no PostgreSQL. Until root and database are there it waits, and changes nothing. It returns nil after a graceful
// stop.
func Work(ctx context.Context, opts Options) error {
	s := newServer(opts)
	s.join = true
	if !s.cfg.Worker.Enabled {
		return ErrWorkerDisabled
	}
	worker := s.workerService()
	run := worker.Run
	worker.Run = func(ctx context.Context, ready func()) error {
		return run(ctx, func() {
			ready()
			s.up(ctx, Started{})
		})
	}
	return s.supervise(ctx, append(s.ground(), worker)...)
}
