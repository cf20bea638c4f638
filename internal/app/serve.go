package app

import (
	"context"
	"time"

	"orch/internal/app/catalog"
	"orch/internal/app/database"
	"orch/internal/app/view"
	"orch/internal/db"
	"orch/internal/httpapi"
	"orch/internal/lifespan"
	"orch/internal/root/layout"
)

// Serve runs orch until ctx is done: the database, the worker, the API. It returns nil after a graceful stop.
func Serve(ctx context.Context, opts Options) error {
	s := newServer(opts)
	if err := layout.Prepare(s.cfg.Data.Root); err != nil {
		return err
	}
	var err error
	if s.catalog, err = catalog.New(s.cfg.Data, s.cfg.Merge, s.log); err != nil {
		return err
	}
	worker := s.workerService()
	worker.Disabled = !bool(s.cfg.Worker.Enabled)
	return s.supervise(ctx, append(append(s.ground(), s.watchers()...),
		lifespan.Service{
			Name: servicePostgres, Stage: stagePostgres, Run: database.Postgres(s.cfg, s.log), StopTimeout: database.StopTimeout,
			Disabled: !s.cfg.Database.Private(), MustStart: true,
		},
		worker,
		lifespan.Service{Name: serviceHTTP, Stage: stageHTTP, Run: s.runHTTP, Essential: true, StopTimeout: 10 * time.Second},
	)...)
}

func (s *server) runHTTP(ctx context.Context, ready func()) error {
	sys := s.system.Load()
	addr := s.cfg.HTTP.Addr
	if s.opts.SocketOnly {
		addr = ""
	}
	shown := sys.sources()
	web, err := httpapi.New(httpapi.Config{
		Addr: addr, SocketPath: sys.root.SocketPath(), Token: s.cfg.HTTP.Token.Reveal(), QueuePublic: bool(s.cfg.HTTP.QueuePublic),
		Tasks: view.Tasks{Sources: shown}, Jobs: view.Jobs{Sources: shown}, Runs: view.Runs{Sources: shown}, Agents: view.Agents{Sources: shown},
		Queue: s.snapshot(sys, shown), Readiness: &readiness{server: s, system: sys}, Metrics: s.metrics.Load().Handler(),
		ErrorCode: db.Code, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.web.Store(web)
	return web.Run(ctx, func() {
		ready()
		s.up(ctx, Started{Addr: web.Addr(), Socket: sys.root.SocketPath()})
	})
}

func (s *server) snapshot(sys *system, sources view.Sources) view.Snapshot {
	shown := view.Snapshot{
		Sources: sources, Root: sys.root, Self: sys.self, Started: sys.started, Version: ProgramVersion(), Worker: sys.worker,
		WorkerEnabled: bool(s.cfg.Worker.Enabled), WorkerState: func() lifespan.State { return s.status(serviceWorker).State },
	}
	s.shownDaemons(sys, &shown)
	return shown
}
