package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"orch/internal/app/catalog"
	"orch/internal/app/database"
	"orch/internal/app/start"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/httpapi"
	"orch/internal/lifespan"
	"orch/internal/metrics"
	"orch/internal/process"
	"orch/internal/worker"
)

// Stages of the lifespan: what is higher starts later and stops earlier.
const (
	stagePostgres = iota
	stageSystem
	stageAgents
	stageSighting
	stageListener
	stageReclaim
	stageReaper
	stageWorker
	stageReconcile
	stageHTTP
)

// Names of services, as the log and /readyz show them.
const (
	servicePostgres   = "postgres"
	serviceSystem     = "system"
	serviceAgents     = "agents"
	serviceListener   = "listener"
	serviceSighting   = "sighting"
	serviceSweep      = "sweep"
	serviceReclaim    = "lease_reclaim"
	serviceReaper     = "reaper"
	serviceReconcile  = "reconcile"
	serviceMetrics    = "metrics"
	serviceAlertWatch = "alert_watch"
	serviceWorker     = "worker"
	serviceHTTP       = "http"
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
	// At is told of each step of a job, for tests that end the process there; nil = nobody.
	At func(point string)
}

// Started says where a process that is up can be found.
type Started struct {
	Addr   string // of the TCP listener; empty without one
	Socket string // empty for a worker
	Root   string
	// Repositories is how many orch.yaml has.
	Repositories int
}

// server is one orch process while it runs: `orch serve` with everything, `orch worker` without HTTP and PostgreSQL.
type server struct {
	opts     Options
	cfg      *config.Config
	log      *slog.Logger
	join     bool // the data root is another process's to make
	catalog  *catalog.Catalog
	life     *lifespan.Supervisor
	listener atomic.Pointer[db.Listener]
	system   atomic.Pointer[system]
	metrics  atomic.Pointer[metrics.Metrics]
	web      atomic.Pointer[httpapi.Server]
	end      context.CancelCauseFunc // ends the process with an error
}

func newServer(opts Options) *server {
	return &server{opts: opts, cfg: opts.Config, log: opts.Logger}
}

// supervise runs services until ctx is done or one of them ends the process.
func (s *server) supervise(ctx context.Context, services ...lifespan.Service) error {
	if err := process.Protect(); err != nil {
		return err
	}
	ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	s.life = lifespan.New(lifespan.Config{Logger: s.log, Code: db.Code, OnRestart: s.restarted}, services...)
	if err := s.life.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, worker.ErrSchemaNewer) {
		return fmt.Errorf("%w: its jobs have ended or are given back; start the version of orch that migrates this database", cause)
	}
	return nil
}

// ground are the services that every process has.
func (s *server) ground() []lifespan.Service {
	beat := s.cfg.Worker.Heartbeat.Duration()
	return append(s.daemons(), []lifespan.Service{
		{Name: serviceSystem, Stage: stageSystem, Run: s.runSystem, Essential: true, StopTimeout: 10 * time.Second},
		{Name: serviceAgents, Stage: stageAgents, Run: s.runAgents, StopTimeout: s.cfg.Worker.KillGrace.Duration() + 20*time.Second},
		{Name: serviceSighting, Stage: stageSighting, Run: s.runSighting, StopTimeout: 10 * time.Second, Interval: beat},
		{Name: serviceSweep, Stage: stageReaper, Run: s.runSweep, StopTimeout: 10 * time.Second, Interval: s.cfg.Disk.SweepEvery.Duration()},
		{Name: serviceListener, Stage: stageListener, Run: s.runListener, StopTimeout: 5 * time.Second},
	}...)
}

func (s *server) workerService() lifespan.Service {
	return lifespan.Service{
		Name: serviceWorker, Stage: stageWorker, Run: s.runWorker, StopTimeout: s.cfg.Worker.StopGrace.Duration() + 15*time.Second,
		Interval: s.cfg.Worker.Poll.Duration() * 2, // it beats once a poll, after it has looked
	}
}

// runSystem makes pool, schema, data root and everything that stands on them, and keeps them until the stop.
func (s *server) runSystem(ctx context.Context, ready func()) error {
	pool, data, err := start.Open(ctx, start.Config{
		Config: s.cfg, MaxConns: poolSize(s.cfg), Logger: s.log, Join: s.join, FailUnready: s.opts.FailUnready,
	})
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
	if s.catalog == nil { // it lies in the data root, which a worker may have waited for
		if s.catalog, err = catalog.New(s.cfg.Data, s.cfg.Merge, s.log); err != nil {
			return err
		}
	}
	sys, err := newSystem(ctx, s.opts, pool, data, s.catalog, s.beat)
	if err != nil {
		return err
	}
	if s.metrics.Load() == nil && !s.join {
		m, err := s.newMetrics(ctx, sys)
		if err != nil {
			return err
		}
		s.metrics.Store(m)
	}
	made := func() {
		s.system.Store(sys)
		ready()
	}
	if s.cfg.Reaper.Enabled {
		made()
	} else { // what is dead at the start is given back all the same, before the worker claims (ORCH-065 §5)
		sys.reaper.Release(ctx, made)
	}
	<-ctx.Done()
	return nil
}

// poolSize leaves each slot a connection, and some for the API and the daemons.
func poolSize(cfg *config.Config) int32 {
	const others = 8
	return int32(min(int(cfg.Worker.MaxConcurrency)+mergeSlots+systemSlots+others, 60)) //nolint:gosec // at most 60
}

// runAgents ends the agents of tasks that another host has got since it gave this one up, and stops after the worker: with
// KillAgents nothing that it detached stays behind.
func (s *server) runAgents(ctx context.Context, ready func()) error {
	ready()
	err := s.run(ctx, loop{service: serviceAgents, every: s.cfg.Reaper.Interval.Duration(), pass: s.system.Load().runs.EndStrays}, ready)
	if err != nil || !s.opts.KillAgents {
		return err
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Worker.KillGrace.Duration()+15*time.Second)
	defer cancel()
	if err := s.system.Load().runs.InterruptAll(stop); err != nil {
		return fmt.Errorf("end the running agents: %w", err)
	}
	return nil
}

// runListener is ready at once: nothing depends on the listener, and a server may take long not to answer it.
func (s *server) runListener(ctx context.Context, ready func()) error {
	listen, err := database.ListenConfig(s.cfg)
	if err != nil {
		return err
	}
	conn, err := database.ConnConfig(s.cfg)
	if err != nil {
		return err
	}
	l := s.system.Load().listener(listen, conn, s.log)
	s.listener.Store(l)
	ready()
	return l.Run(ctx, func() {})
}

// runWorker runs the worker until the stop. A schema that this program doesn't know ends the process: it must not be
// started again on it.
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
	err := w.Run(ctx, ready)
	if errors.Is(err, worker.ErrSchemaNewer) {
		s.end(err)
		<-ctx.Done()
		return nil
	}
	return err
}

// up tells once that everything runs.
func (s *server) up(ctx context.Context, started Started) {
	if s.opts.Ready != nil {
		started.Root, started.Repositories = s.system.Load().root.Path(), len(s.catalog.Current(ctx).Repos)
		s.opts.Ready(started)
	}
}
