package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/app/catalog"
	"orch/internal/app/database"
	"orch/internal/app/view"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/httpapi"
	"orch/internal/lifespan"
	"orch/internal/pgembed"
	"orch/internal/process"
	"orch/internal/root"
)

// Stages of the lifespan: what is higher starts later and stops earlier.
const (
	stagePostgres = iota
	stageSystem
	stageAgents
	stageListener
	stageRecovery
	stageWorker
	stageHTTP
)

// Names of services, as the log and /readyz show them.
const (
	servicePostgres = "postgres"
	serviceSystem   = "system"
	serviceAgents   = "agents"
	serviceListener = "listener"
	serviceRecovery = "recovery"
	serviceWorker   = "worker"
	serviceHTTP     = "http"
)

// Options of one orch process.
type Options struct {
	Config     *config.Config
	Logger     *slog.Logger
	KillAgents bool            // end running agents at the stop, instead of leaving them to their shims
	SocketOnly bool            // no TCP listener
	HurryUp    <-chan struct{} // closed at the second stop signal: the grace is over
	Ready      func(Started)   // called once everything is up
	// FailUnready ends the start with an error where a server would wait: for a database that can't be reached.
	FailUnready bool
}

// Started says where a process that is up can be found.
type Started struct {
	Addr   string // of the TCP listener; empty without one
	Socket string
	Root   string
	// Repositories is how many orch.yaml has.
	Repositories int
}

// server is one orch process while it runs.
type server struct {
	opts     Options
	cfg      *config.Config
	log      *slog.Logger
	catalog  *catalog.Catalog
	life     *lifespan.Supervisor
	listener atomic.Pointer[db.Listener]
	system   atomic.Pointer[system]
}

// Serve runs orch until ctx is done: the database, the worker, the API. It returns nil after a graceful stop.
func Serve(ctx context.Context, opts Options) error {
	s := &server{opts: opts, cfg: opts.Config, log: opts.Logger}
	if err := process.Protect(); err != nil {
		return err
	}
	if err := root.Prepare(s.cfg.Data.Root); err != nil {
		return err
	}
	var err error
	if s.catalog, err = catalog.New(s.cfg.Data, s.cfg.Merge, s.log); err != nil {
		return err
	}
	grace := s.cfg.Worker.StopGrace.Duration()
	s.life = lifespan.New(lifespan.Config{Logger: s.log, Code: db.Code},
		lifespan.Service{
			Name: servicePostgres, Stage: stagePostgres, Run: database.Postgres(s.cfg, s.log), StopTimeout: database.StopTimeout,
			Disabled: !s.cfg.Database.Private(), MustStart: true,
		},
		lifespan.Service{Name: serviceSystem, Stage: stageSystem, Run: s.runSystem, Essential: true, StopTimeout: 10 * time.Second},
		lifespan.Service{Name: serviceAgents, Stage: stageAgents, Run: s.runAgents, StopTimeout: s.cfg.Worker.KillGrace.Duration() + 20*time.Second},
		lifespan.Service{Name: serviceListener, Stage: stageListener, Run: s.runListener, StopTimeout: 5 * time.Second},
		lifespan.Service{Name: serviceRecovery, Stage: stageRecovery, Run: s.runRecovery, StopTimeout: 10 * time.Second},
		lifespan.Service{
			Name: serviceWorker, Stage: stageWorker, Run: s.runWorker, StopTimeout: grace + 15*time.Second,
			Disabled: !bool(s.cfg.Worker.Enabled),
		},
		lifespan.Service{Name: serviceHTTP, Stage: stageHTTP, Run: s.runHTTP, Essential: true, StopTimeout: 10 * time.Second},
	)
	return s.life.Run(ctx)
}

// runSystem makes pool, schema, data root and everything that stands on them, and keeps them until the stop.
func (s *server) runSystem(ctx context.Context, ready func()) error {
	pool, data, err := s.openData(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer pool.Close()
	defer func() {
		if err := data.Close(); err != nil {
			s.log.WarnContext(ctx, "data root not closed", slog.Any("error", err))
		}
	}()
	sys, err := newSystem(ctx, s.cfg, pool, data, s.catalog, s.log)
	if err != nil {
		return err
	}
	s.system.Store(sys)
	ready()
	<-ctx.Done()
	return nil
}

// openData waits for the database, brings its schema up to date and binds the data root. What waiting can't mend ends
// the start.
func (s *server) openData(ctx context.Context) (*pgxpool.Pool, *root.Root, error) {
	var waiting string
	for {
		pool, data, err := s.tryData(ctx)
		if err == nil {
			return pool, data, nil
		}
		reason := waitReason(err)
		if reason == "" || s.opts.FailUnready {
			return nil, nil, err
		}
		if reason != waiting {
			waiting = reason
			s.log.WarnContext(ctx, "waiting for the database", slog.String("reason", reason))
		}
		timer := time.NewTimer(s.cfg.Worker.Poll.Duration())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// waitReason names what goes away by waiting; empty: nothing does.
func waitReason(err error) string {
	var pending *db.PendingError
	switch {
	case errors.Is(err, db.ErrNotMigrated):
		return "not_migrated"
	case errors.As(err, &pending):
		return "pending_migration"
	case db.Unreachable(err), errors.Is(err, pgembed.ErrNotRunning): // the private one may be on its way back
		return "database_unreachable"
	default:
		return ""
	}
}

func (s *server) tryData(ctx context.Context) (*pgxpool.Pool, *root.Root, error) {
	conn, err := database.ConnConfig(s.cfg)
	if err != nil {
		return nil, nil, err
	}
	if err := database.EnsureSchema(ctx, conn, bool(s.cfg.Database.AutoMigrate), s.log); err != nil {
		return nil, nil, err
	}
	pool, err := db.Open(ctx, db.Config{
		Conn: conn, MaxConns: poolSize(s.cfg), ApplicationName: "orch", StatementTimeout: 30 * time.Second,
		ConnectTimeout: 10 * time.Second, Logger: s.log,
	})
	if err != nil {
		return nil, nil, err
	}
	self, err := process.Self()
	if err == nil {
		var data *root.Root
		if data, err = root.Bind(ctx, s.cfg.Data.Root, pool, root.Config{Testing: bool(s.cfg.Data.Testing), Host: self.Host}); err == nil {
			return pool, data, nil
		}
	}
	pool.Close()
	return nil, nil, err
}

// poolSize leaves each slot a connection, and some for the API and the daemons.
func poolSize(cfg *config.Config) int32 {
	const others = 8
	return int32(min(int(cfg.Worker.MaxConcurrency)+mergeSlots+systemSlots+others, 60)) //nolint:gosec // at most 60
}

// runAgents stops after the worker: with KillAgents nothing that it detached stays behind.
func (s *server) runAgents(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	if !s.opts.KillAgents {
		return nil
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Worker.KillGrace.Duration()+15*time.Second)
	defer cancel()
	if err := s.system.Load().runs.InterruptAll(stop); err != nil {
		return fmt.Errorf("end the running agents: %w", err)
	}
	return nil
}

func (s *server) runListener(ctx context.Context, ready func()) error {
	conn, err := database.ListenConfig(s.cfg)
	if err != nil {
		return err
	}
	l := s.system.Load().listener(conn, s.log)
	s.listener.Store(l)
	return l.Run(ctx, ready)
}

func (s *server) runRecovery(ctx context.Context, ready func()) error {
	return s.system.Load().recovery(ctx, s.cfg.Worker.LeaseTTL.Duration(), s.log, ready, func() { s.life.Beat(serviceRecovery) })
}

func (s *server) runWorker(ctx context.Context, ready func()) error {
	w := s.system.Load().worker
	if s.opts.HurryUp != nil {
		done := make(chan struct{})
		defer close(done)
		go func() {
			select {
			case <-s.opts.HurryUp:
				w.HurryUp()
			case <-done:
			}
		}()
	}
	return w.Run(ctx, ready)
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
		Tasks: view.Tasks{Sources: shown}, Jobs: view.Jobs{Sources: shown}, Runs: view.Runs{Sources: shown},
		Queue: s.snapshot(sys, shown), Readiness: &readiness{server: s, system: sys},
		ErrorCode: db.Code, Logger: s.log,
	})
	if err != nil {
		return err
	}
	return web.Run(ctx, func() {
		ready()
		if s.opts.Ready != nil {
			s.opts.Ready(Started{Addr: web.Addr(), Socket: sys.root.SocketPath(), Root: sys.root.Path(), Repositories: len(s.catalog.Current(ctx).Repos)})
		}
	})
}

func (s *server) snapshot(sys *system, shown view.Sources) view.Snapshot {
	return view.Snapshot{
		Sources: shown, Root: sys.root, Self: sys.self, Started: sys.started, Version: ProgramVersion(), Worker: sys.worker,
		WorkerEnabled: bool(s.cfg.Worker.Enabled), WorkerState: func() lifespan.State { return s.state(serviceWorker) },
	}
}
