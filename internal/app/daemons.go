package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/app/alerts"
	"orch/internal/app/catalog"
	"orch/internal/app/view"
	"orch/internal/config"
	"orch/internal/config/orchyaml"
	"orch/internal/git"
	"orch/internal/lifespan"
	"orch/internal/merge/lease"
	"orch/internal/merge/resting"
	"orch/internal/metrics"
	"orch/internal/process"
	"orch/internal/queue/look"
	"orch/internal/reaper"
	"orch/internal/reconcile"
)

const (
	alertWatchEvery = 30 * time.Second
	metricsEvery    = 5 * time.Second
	// fetchedFor is how long the reconciler takes what it fetched of a repository for its state.
	fetchedFor = 30 * time.Second
)

// wireDaemons makes what looks after the work: the reaper and the reconciler. beat tells that a service goes on.
func (s *system) wireDaemons(ctx context.Context, opts Options, beat func(service string)) error {
	cfg, log := opts.Config, opts.Logger
	if _, err := catalog.Ceiling(cfg, s.catalog.Current(ctx)); err != nil {
		return err
	}
	s.reaper = reaper.New(reaper.Config{
		Queue: alerts.ReapedQueue{Queue: s.queue, Store: look.NewStore(s.pool)}, Runs: s.runs, Self: s.self, RootID: s.root.ID(), Off: !bool(cfg.Reaper.Enabled),
		Interval: cfg.Reaper.Interval.Duration(), DeadTicks: int(cfg.Reaper.DeadTicks),
		Fresh:   2 * cfg.Worker.Heartbeat.Duration(), // a beat may just have been under way
		Ceiling: (&ceiling{cfg: cfg, catalog: s.catalog, log: log}).now, Grace: 2*cfg.Worker.KillGrace.Duration() + time.Minute,
		Describe: s.describe, OnReapTx: s.alerts.JobReapedTx, OnMassDeath: s.alerts.MassDeath,
		Recover: s.runs.Recover, Hosts: s.hosts.Pass, NamespaceGone: s.others.Gone, Deserted: s.root.Deserted,
		OnTick: func() {
			if opts.At != nil {
				opts.At("reaper:ticked") // once a tick, where a beat comes with each part
			}
		},
		Beat: func() { beat(serviceReaper) }, Counted: s.worker.CountReaped, Logger: log,
	})
	s.reconciler = reconcile.New(reconcile.Config{
		Pool: s.pool, Tasks: s.tasks, Root: s.root.ID(), Interval: cfg.Reconcile.Interval.Duration(), LeaseTTL: cfg.Worker.LeaseTTL.Duration(),
		Landings: resting.New(resting.Config{
			Pool: s.pool, Store: s.merges, Tasks: landingTasks{s.tasks, log}, Mirrors: s.places.Mirrors(), Catalog: landingCatalog{s.catalog, s.tasks},
			Forge: s.forge, Committer: git.Committer(), Fresh: fetchedFor, Logger: log,
		}),
		Beat: func() { beat(serviceReconcile) }, Logger: log,
	})
	return nil
}

// ceiling is how long a job may run by orch.yaml as it is now.
type ceiling struct {
	cfg     *config.Config
	catalog *catalog.Catalog
	log     *slog.Logger
	told    bool
}

// now is called by one reaper only. An orch.yaml that was edited so that what was configured is too little is told once, and what
// it needs is used.
func (c *ceiling) now(ctx context.Context) time.Duration {
	most, err := catalog.Ceiling(c.cfg, c.catalog.Current(ctx))
	if err != nil && !c.told {
		c.log.ErrorContext(ctx, "what orch.yaml allows since it was edited is longer than a job may run: the longer time holds", slog.Any("error", err))
	}
	c.told = err != nil
	return most
}

// daemons are the services that every process has and that look after the work.
func (s *server) daemons() []lifespan.Service {
	reapEvery := s.cfg.Reaper.Interval.Duration()
	return []lifespan.Service{
		{
			Name: serviceReclaim, Stage: stageReclaim, Run: s.runReclaim, StopTimeout: 10 * time.Second, Interval: reapEvery,
			Disabled: !bool(s.cfg.Merge.ReclaimEnabled),
		},
		{
			Name: serviceReaper, Stage: stageReaper, Run: s.runReaper, StopTimeout: 10 * time.Second, Interval: reapEvery,
			Disabled: !bool(s.cfg.Reaper.Enabled),
		},
	}
}

// watchers are those that one process of a data root has, the one that serves.
func (s *server) watchers() []lifespan.Service {
	return []lifespan.Service{
		{
			Name: serviceReconcile, Stage: stageReconcile, Run: s.runReconcile, StopTimeout: 10 * time.Second,
			Interval: s.cfg.Reconcile.Interval.Duration(), Disabled: !bool(s.cfg.Reconcile.Enabled),
		},
		{Name: serviceMetrics, Stage: stageReconcile, Run: s.runMetrics, StopTimeout: 10 * time.Second, Interval: metricsEvery},
		{Name: serviceAlertWatch, Stage: stageReconcile, Run: s.runAlertWatch, StopTimeout: 10 * time.Second, Interval: alertWatchEvery},
	}
}

func (s *server) runReaper(ctx context.Context, ready func()) error {
	return s.system.Load().reaper.Run(ctx, ready)
}

func (s *server) runReconcile(ctx context.Context, ready func()) error {
	return s.system.Load().reconciler.Run(ctx, ready)
}

func (s *server) runMetrics(ctx context.Context, ready func()) error {
	return s.metrics.Load().Run(ctx, ready)
}

// newMetrics reads facts off what the API shows, so that a dashboard and GET /queue never disagree.
func (s *server) newMetrics(ctx context.Context, sys *system) (*metrics.Metrics, error) {
	ctx = context.WithoutCancel(ctx) // only whoever scrapes asks
	return metrics.New(metrics.Config{
		Version: ProgramVersion(), Services: s.life.Snapshot, Pool: sys.pool, Interval: metricsEvery, Logger: s.log,
		Queue: func(ctx context.Context) (api.Queue, error) {
			web := s.web.Load()
			if web == nil {
				return api.Queue{}, errNoAPI
			}
			return web.Snapshot(ctx)
		},
		MassDeath: func() bool { _, _, open := sys.runs.MassDeath(); return open },
		Agents:    func() []string { return agentNames(sys.catalog.Current(ctx)) },
		Repos:     func() []string { return sys.catalog.Current(ctx).RepoNames() },
		Beat:      func() { s.beat(serviceMetrics) },
	})
}

var errNoAPI = errors.New("the API isn't up yet")

func agentNames(file *orchyaml.File) []string {
	var names []string
	for _, a := range file.Agents {
		names = append(names, a.Name)
	}
	return names
}

// judge says whether the holder of a merge lease lives. A holder of another boot is dead when it was of this data root, which one
// machine uses at a time. Of another root that would be judged by the host's name alone, which clones of a machine share:
// nobody knows, and the time to live decides.
func judge(own uuid.UUID, self process.Identity, h lease.Holder) lease.Verdict {
	if h.BootID != self.BootID && h.RootID != own {
		return lease.Unknown
	}
	switch process.Probe(process.Identity{
		Host: h.Host, BootID: h.BootID, PIDNamespace: h.PIDNamespace, PID: h.PID, StartedAt: h.PIDStartedAt,
	}) {
	case process.Alive:
		return lease.Alive
	case process.Dead:
		return lease.Dead
	default:
		return lease.Unknown
	}
}

// runReclaim frees the merge leases of dead holders, at the start before anything that may take long and then again and again.
// It is a service of its own so that whoever switches the other daemons off keeps it, and the other way round.
func (s *server) runReclaim(ctx context.Context, ready func()) error {
	return s.run(ctx, loop{
		service: serviceReclaim, every: s.cfg.Reaper.Interval.Duration(), pass: s.system.Load().reclaim,
	}, ready)
}

// reclaim frees the merge leases whose holder is gone. The jobs of dead processes are given back before: then that of the dead
// holder is in line again when the first in line is woken, and its open intent goes before all others.
func (s *system) reclaim(ctx context.Context) error {
	var dead error
	if s.reaps {
		dead = s.reaper.FirstTick(ctx)
	}
	_, leases := s.leases.Reclaim(ctx, func(h lease.Holder) lease.Verdict { return judge(s.root.ID(), s.self, h) })
	return errors.Join(dead, leases)
}

// shownDaemons puts the daemons into the words of GET /queue.
func (s *server) shownDaemons(sys *system, shown *view.Snapshot) {
	shown.Reaper = view.Reaper{
		Daemon: view.Daemon{
			Interval: s.cfg.Reaper.Interval.Duration(), Status: func() lifespan.Status { return s.status(serviceReaper) },
			Looked: func() (time.Time, string) {
				seen := sys.reaper.Snapshot()
				if seen.LastError == "" && seen.MassDeath {
					return seen.LastRun, "mass_death"
				}
				return seen.LastRun, seen.LastError
			},
		},
		DeadTicks: int(s.cfg.Reaper.DeadTicks),
		MaxRunning: func(ctx context.Context) time.Duration {
			most, _ := catalog.Ceiling(s.cfg, sys.catalog.Current(ctx)) // what it answers beside an error holds
			return most
		},
		Suspects: func() int { return sys.reaper.Snapshot().Suspects },
	}
	shown.Reconcile = view.Daemon{
		Interval: s.cfg.Reconcile.Interval.Duration(), Status: func() lifespan.Status { return s.status(serviceReconcile) },
		Looked: func() (time.Time, string) {
			seen := sys.reconciler.Snapshot()
			return seen.LastRun, seen.LastError
		},
	}
	shown.Alerts = sys.alerts.shown
}
