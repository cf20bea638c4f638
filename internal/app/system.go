package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent"
	"orch/internal/agent/keep"
	"orch/internal/agent/ledger"
	"orch/internal/agent/usage"
	"orch/internal/alert/telegram"
	"orch/internal/app/catalog"
	"orch/internal/app/database"
	"orch/internal/app/hosts"
	"orch/internal/app/namespace"
	"orch/internal/app/place"
	"orch/internal/app/roster"
	"orch/internal/app/view"
	"orch/internal/config"
	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/forge/local"
	"orch/internal/gate"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/hostdead"
	"orch/internal/merge"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/pause"
	"orch/internal/queue/prune"
	"orch/internal/queue/schedule"
	"orch/internal/queue/tally"
	"orch/internal/reaper"
	"orch/internal/reconcile"
	"orch/internal/root"
	"orch/internal/stage"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/worker"
)

// lanes of a worker beside the agents' one.
const (
	mergeSlots  = 2
	systemSlots = 4
	// leasesOfSilence is for how many leases no worker of another container may beat before it counts as gone.
	leasesOfSilence = 2
)

// system is everything that works on the database and the data root once both are there.
type system struct {
	pool    *pgxpool.Pool
	root    *root.Root
	self    process.Identity
	started time.Time
	log     *slog.Logger

	catalog *catalog.Catalog
	forge   forge.Forge
	queue   *queue.Queue
	pauses  *pause.Store
	tasks   *task.Store
	runs    *agent.Runs
	gates   *gate.Registry
	merges  *attempt.Store
	leases  *lease.Store
	places  *place.Places
	worker  *worker.Worker
	hosts   *hosts.Hosts
	keeper  *keep.Keeper
	sweeper *place.Sweeper
	others  *namespace.Watch
	alerts  *alerting

	reaps      bool // not only once, at the start
	reaper     *reaper.Reaper
	reconciler *reconcile.Reconciler

	unscheduled string // code of what kept the last schedule from being done
}

// newSystem wires the parts. Nothing is started yet; beat tells that a service goes on.
func newSystem(
	ctx context.Context, opts Options, pool *pgxpool.Pool, data *root.Root, cat *catalog.Catalog, beat func(service string),
) (*system, error) {
	cfg, log := opts.Config, opts.Logger
	self, err := process.Self()
	if err != nil {
		return nil, err
	}
	s := &system{pool: pool, root: data, self: self, started: time.Now(), catalog: cat, log: log, reaps: bool(cfg.Reaper.Enabled)}
	if err := s.wireAlerts(opts); err != nil {
		return nil, err
	}
	program, err := gitcmd.New(ctx, gitcmd.Config{Logger: log, At: opts.At})
	if err != nil {
		return nil, err
	}
	s.forge = local.New(program, local.Config{Logger: log, At: opts.At})
	s.leases = lease.NewStore(pool, lease.Config{
		TTL: cfg.Merge.LockTimeout.Duration(), OnReclaimedTx: s.alerts.LeaseReclaimedTx, Logger: log,
	})
	s.merges = attempt.NewStore(s.leases)
	if s.tasks, err = task.NewStore(pool, task.StoreConfig{
		Catalog: cat, CheckPrompt: prompt.Check, StopLandingTx: s.stopLandingTx, OnBlockedTx: s.alerts.TaskBlockedTx, Logger: log,
	}); err != nil {
		return nil, err
	}
	s.queue = queue.New(pool, queue.Config{LeaseTTL: cfg.Worker.LeaseTTL.Duration(), Logger: log, OnFailed: s.jobFailedTx})
	s.pauses = pause.NewStore(pool)
	s.places = place.New(place.Config{Root: data, Git: program, Forge: s.forge})
	s.hosts = hosts.New(hosts.Config{
		Pool: pool, Tasks: s.tasks, OfferedTx: s.merges.OfferedTx, Self: data.ID(), Logger: log, Watch: hostdead.Config{
			After: cfg.Runs.HostDead.Duration(), Margin: 2*cfg.Worker.KillGrace.Duration() + cfg.Worker.LeaseTTL.Duration(),
			Every: cfg.Reaper.Interval.Duration(),
		},
	})
	s.keeper = keep.New(keep.Config{
		Pool: pool, Root: data.ID(), Dir: data.RunsDir(), Age: cfg.Disk.KeepRuns.Duration(), Size: cfg.Disk.KeepRunsSize.Bytes(), Logger: log,
	})
	if err := s.wireRuns(opts); err != nil {
		return nil, err
	}
	if err := s.wireWorker(ctx, opts, beat); err != nil {
		return nil, err
	}
	if err := s.wireDaemons(ctx, opts, beat); err != nil {
		return nil, err
	}
	s.sweeper = place.NewSweeper(place.SweepConfig{
		Places: s.places, Tasks: s.tasks, Jobs: s.queue, LivingRuns: s.runs.CountLiving,
		Age: cfg.Disk.KeepWorkspaces.Duration(), Size: cfg.Disk.KeepWorkspacesSize.Bytes(), Logger: log,
	})
	return s, nil
}

func (s *system) wireRuns(opts Options) error {
	cfg, log := opts.Config, opts.Logger
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	space := &room{dirs: []string{s.root.RunsDir(), s.root.WorkspacesDir()}, least: cfg.Disk.MinFree.Bytes(), log: log}
	s.others = namespace.New(namespace.Config{Pool: s.pool, Others: s.root.Others, Silence: leasesOfSilence * cfg.Worker.LeaseTTL.Duration()})
	orphan, dead := cfg.Runs.OrphanGrace.Duration(), cfg.Runs.HostDead.Duration()
	s.runs, err = agent.New(agent.Config{
		Pool: s.pool, Dir: s.root.RunsDir(), RootID: s.root.ID(), Self: s.self, Shim: []string{program, "shim"},
		HomesDir: s.root.HomesDir(), Secrets: secretsOf(cfg), KillGrace: cfg.Worker.KillGrace.Duration(),
		StartWithin: min(15*time.Second, cfg.Worker.LeaseTTL.Duration()/2), ListenEvery: cfg.Worker.Heartbeat.Duration() / 3,
		LookEvery:   cfg.Reaper.Interval.Duration() / 2, // looks of handlers in between count as one with the reaper's
		OrphanGrace: orphan, OrphanPatience: max(dead-orphan-2*cfg.Worker.KillGrace.Duration(), 0), LogCap: cfg.Runs.LogCap.Bytes(),
		PortBase: int(cfg.Runs.PortBase), PortsPerRun: int(cfg.Runs.PortsPerRun),
		Room: space.check, NamespaceGone: s.others.Gone, At: opts.At, Logger: log,
	})
	if err != nil {
		return err
	}
	s.gates = gate.New(gate.Config{
		Pool: s.pool, Runner: commands{s.runs, s.places, s.tasks}, Logger: log, ConsumeTx: ledger.ConsumeTx,
	})
	return nil
}

// secretsOf are the values that orch itself was given and keeps nowhere.
func secretsOf(cfg *config.Config) []process.Secret {
	var secrets []process.Secret
	for _, revealed := range cfg.Secrets() {
		secrets = append(secrets, process.Secret{Name: revealed.Variable, Value: revealed.Value})
	}
	return secrets
}

func (s *system) wireWorker(ctx context.Context, opts Options, beat func(service string)) error {
	cfg, log := opts.Config, opts.Logger
	agents := roster.New(roster.Config{
		Runs: s.runs, Catalog: s.catalog, Pauses: s.pauses, Tasks: s.tasks, Usage: usage.NewStore(s.pool), Alone: s.places.Alone,
		OnPauseTx: s.alerts.AgentPausedTx, Logger: log,
	})
	stages := stage.NewHandler(stage.Config{
		Store: s.tasks, Agents: agents, Gates: stageGates{s.gates}, Workspaces: s.places,
		ConsumeTx: ledger.ConsumeTx, PauseTx: agents.PauseTx, At: opts.At,
		EndRuns:    func(ctx context.Context, _ *queue.Lease, taskID int64) error { return s.runs.EndTask(ctx, taskID) },
		LivingRuns: s.runs.CountLiving, Logger: log,
	})
	landing, err := merge.NewHandler(merge.Config{
		Store: s.merges, Tasks: landingTasks{s.tasks, log}, Mirrors: s.places.Mirrors(), Catalog: landingCatalog{s.catalog, s.tasks},
		Tester: landingTester{s.catalog, s.tasks, s.gates}, Forge: s.forge, Committer: git.Committer(), Owner: s.root.InstanceID().String(), Logger: log,
		Paused: s.pauses.RepoPaused, EndRuns: s.runs.EndTask, At: opts.At,
	})
	if err != nil {
		return err
	}
	retire := stage.NewRetireHandler(stage.RetireConfig{
		Store: s.tasks, Queue: s.queue, Remains: s.places, Publisher: s.places, EndRuns: s.runs.EndTask,
		ConsumeAllTx: ledger.ConsumeAllTx, Logger: log,
	})
	schema, err := database.Newest()
	if err != nil {
		return err
	}
	handlers := map[string]worker.Handler{
		task.KindStage: stages, task.KindMerge: landing, task.KindRetire: s.places.Retiring(retire),
		prune.Kind: prune.New(prune.Config{
			Queue: s.queue, After: cfg.Worker.PruneAfter.Duration(), Failed: []string{telegram.Kind}, Logger: log,
		}),
	}
	lanes := map[string]string{
		task.KindStage: task.LaneAgents, task.KindMerge: task.LaneMerge, task.KindRetire: task.LaneSystem, prune.Kind: task.LaneSystem,
	}
	if s.alerts.sender != nil { // who has no channel leaves alerts to those that do
		handlers[telegram.Kind] = telegram.NewHandler(telegram.HandlerConfig{Sender: s.alerts.sender, Logger: log})
		lanes[telegram.Kind] = task.LaneSystem
	}
	s.worker, err = worker.New(worker.Config{
		Queue: s.queue,
		Worker: queue.Worker{
			ID: uuid.New(), RootID: s.root.ID(), Host: s.self.Host, BootID: s.self.BootID, PIDNamespace: s.self.PIDNamespace,
			PID: s.self.PID, PIDStartedAt: s.self.StartedAt, Version: ProgramVersion(),
			Lanes: []string{task.LaneAgents, task.LaneMerge, task.LaneSystem}, Schema: schema,
		},
		Repos: func() []string { return s.catalog.Current(ctx).RepoNames() },
		Lanes: map[string]int{
			task.LaneAgents: int(cfg.Worker.MaxConcurrency), task.LaneMerge: mergeSlots, task.LaneSystem: systemSlots,
		},
		Handlers: handlers, KindLane: lanes, OnWait: s.alerts.JobWaits,
		Tick: func(ctx context.Context) { beat(serviceWorker); s.schedule(ctx, cfg.Worker.PruneEvery.Duration()) },
		Poll: cfg.Worker.Poll.Duration(), Heartbeat: cfg.Worker.Heartbeat.Duration(),
		StopGrace: cfg.Worker.StopGrace.Duration(), Logger: log,
	})
	return err
}

// schedule queues what is to be done from time to time. It is called once a poll by every worker, one call after the other;
// the database says whether it is time. An outage is one line in the log.
func (s *system) schedule(ctx context.Context, pruneEvery time.Duration) {
	_, err := schedule.EnqueueEvery(ctx, s.pool, pruneEvery, prune.Insert())
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.worker.CountError()
	}
	if code := db.Code(err); code != s.unscheduled {
		s.unscheduled = code
		if err != nil {
			s.log.WarnContext(ctx, "prune not queued, tried again", slog.String("code", code))
		}
	}
}

// stopLandingTx implements task.StoreConfig.StopLandingTx: up to the intent a landing gives way.
func (s *system) stopLandingTx(ctx context.Context, tx pgx.Tx, taskID int64) (bool, error) {
	started, err := s.merges.LandingStartedTx(ctx, tx, taskID)
	if err != nil || started {
		return false, err
	}
	return true, s.merges.AbandonTx(ctx, tx, taskID, "cancelled")
}

// listener wakes the worker. It hears what sessions that go the way of sender notify.
func (s *system) listener(conn, sender *pgx.ConnConfig, log *slog.Logger) *db.Listener {
	connect := func(conn *pgx.ConnConfig) func(context.Context) (*pgx.Conn, error) {
		return func(ctx context.Context) (*pgx.Conn, error) { return database.Connect(ctx, conn) }
	}
	return db.NewListener(db.ListenerConfig{
		Connect:  connect(conn),
		Sender:   connect(sender),
		Channels: []string{queue.ChannelJobs, queue.ChannelControl},
		OnNotify: func(channel, payload string) {
			switch channel {
			case queue.ChannelJobs:
				s.worker.Wake(payload)
			case queue.ChannelControl:
				s.worker.BeatNow()
			}
		},
		OnConnect: func() { s.worker.Wake("") },
		Logger:    log,
	})
}

// sources are what the API looks at.
func (s *system) sources() view.Sources {
	return view.Sources{
		Catalog: s.catalog, Forge: s.forge, Jobs: s.queue, Overview: overview.NewReader(s.pool), Pauses: s.pauses, Tally: tally.NewStore(s.pool),
		Tasks: s.tasks, Runs: s.runs, Usage: usage.NewStore(s.pool), Leases: s.leases, Places: s.places, Root: s.root.ID(),
		Sighting: func(ctx context.Context, id uuid.UUID) (root.Sighted, bool, error) {
			return root.Sighting(ctx, s.pool, id)
		},
	}
}
