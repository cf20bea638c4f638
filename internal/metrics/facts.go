package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"orch/api"
	"orch/internal/lifespan"
)

const (
	// snapshotWait bounds how long a scrape waits for a snapshot: longer than one may take to be built.
	snapshotWait = 3 * time.Second

	isStale   = "stale"
	isFailing = "failing"
	isBroken  = "error"
)

// fact is a metric whose value is looked up at each scrape.
type fact struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	most bool // where several values have the same labels the largest is shown, not their sum
}

// facts is the collector of what GET /queue and the supervisor say.
type facts struct {
	cfg    Config
	labels *labels
	all    map[string]fact
}

func newFacts(cfg Config, shared *labels) *facts {
	f := &facts{cfg: cfg, labels: shared, all: map[string]fact{}}
	f.gauge("orch_build_info", "1; the label says which version runs.", "version")
	f.gauge("orch_snapshot_ok", "1 while the snapshot behind these facts is up to date, 0 while none can be taken (database away).")
	f.gauge("orch_snapshot_age_seconds", "Seconds since the snapshot behind these facts was taken.")
	f.gauge("orch_config_ok", "1 while orch.yaml can be used, 0 while it has an error and the last good one is in force.")

	f.gauge("orch_queue_jobs", "Jobs that are queued, running or have failed. Counts end at some ten thousand.", "lane", "kind", "state")
	f.most("orch_queue_oldest_seconds", "For how many seconds the oldest queued job has been due; absent while none is.", "lane", "kind")
	f.counter("orch_jobs_total", "Jobs that ended, since the database was made.", "state")
	f.gauge("orch_tasks", "Tasks that are worked on (active), wait, or need a person (needs_you).", "state")
	f.counter("orch_landed_total", "Tasks that landed, since the database was made.")
	f.gauge("orch_paused", "Lanes, repositories and agents that are paused.", "scope")

	f.gauge("orch_worker_slots", "Jobs that this process may do at once.", "lane")
	f.gauge("orch_worker_busy", "Jobs that this process does.", "lane")
	f.counter("orch_worker_events_total", "What the worker of this process did with jobs, since it started.", "event")

	f.counter("orch_reaper_reaped_total", "Jobs taken from who no longer did them, since the database was made.")
	f.gauge("orch_reaper_suspects", "Running jobs that looked dead at the last tick and aren't taken yet.")
	f.most("orch_reaper_last_run_timestamp_seconds", "Unix time of the reaper's last tick; absent before the first, and while it is off.")
	f.counter("orch_reconcile_repaired_total", "Repairs by the reconciler, since the database was made.")
	f.most("orch_reconcile_last_run_timestamp_seconds", "Unix time of the reconciler's last tick; absent before the first, and while it is off.")
	f.counter("orch_merge_lease_reclaimed_total", "Merge leases taken from dead holders, since the database was made.")
	f.gauge("orch_merge_leases", "Rights to land that are held now.", "repo")
	f.gauge("orch_merge_queue", "Tasks that wait to land or are landing; at most 200 are counted.", "repo")

	f.gauge("orch_alerts_pending", "Alerts that aren't sent yet.")
	f.gauge("orch_alerts_failing", "1 while alerts can't be sent, else 0.")
	f.gauge("orch_agent_running", "Runs of an agent that are alive.", "agent")
	f.most("orch_agent_paused", "1 while an agent is paused for all tasks, else 0.", "agent")

	f.gauge("orch_mass_death", "1 while most runs seem dead at once, which isn't believed, else 0.")
	f.most("orch_service_up", "1 while a service of this process is ready, 0 while it starts, is silent or waits to be started again; absent while it is off.", "service")
	f.counter("orch_service_restarts_total", "How often a service of this process ended without being told to, and was started again.", "service")
	return f
}

func (f *facts) gauge(name, help string, labels ...string) {
	f.all[name] = fact{desc: prometheus.NewDesc(name, help, labels, nil), kind: prometheus.GaugeValue}
}

func (f *facts) counter(name, help string, labels ...string) {
	f.all[name] = fact{desc: prometheus.NewDesc(name, help, labels, nil), kind: prometheus.CounterValue}
}

func (f *facts) most(name, help string, labels ...string) {
	f.all[name] = fact{desc: prometheus.NewDesc(name, help, labels, nil), kind: prometheus.GaugeValue, most: true}
}

func (f *facts) names() []string { return slices.Collect(maps.Keys(f.all)) }

// Describe implements prometheus.Collector.
func (f *facts) Describe(descs chan<- *prometheus.Desc) {
	for _, fact := range f.all {
		descs <- fact.desc
	}
}

// Collect implements prometheus.Collector. It runs in a goroutine of the registry, where a panic would end the process.
func (f *facts) Collect(metrics chan<- prometheus.Metric) {
	s := &sample{facts: f, values: map[string]*value{}}
	for _, part := range []func(*sample) error{f.ofProcess, f.ofQueue} {
		err := lifespan.Guard(f.cfg.Logger, "collect metrics", func() error { return part(s) })
		_ = err // a panic is in the log, and orch_snapshot_ok tells that there is no snapshot
	}
	for _, v := range s.values {
		metric, err := prometheus.NewConstMetric(v.desc, v.kind, v.number, v.labels...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(v.desc, err)
		}
		metrics <- metric
	}
}

// sample is what one scrape shows.
type sample struct {
	facts  *facts
	values map[string]*value // by name and labels
}

type value struct {
	fact

	number float64
	labels []string
}

// set shows a number; several under the same labels, as those of "other" are, become one.
func (s *sample) set(name string, number float64, labels ...string) {
	key := name + "\x00" + strings.Join(labels, "\x00")
	v := s.values[key]
	switch {
	case v == nil:
		s.values[key] = &value{fact: s.facts.all[name], number: number, labels: labels}
	case v.most:
		v.number = max(v.number, number)
	default:
		v.number += number
	}
}

func (s *sample) setIf(name string, is bool, labels ...string) {
	number := 0.0
	if is {
		number = 1
	}
	s.set(name, number, labels...)
}

func (f *facts) ofProcess(s *sample) error {
	s.set("orch_build_info", 1, f.cfg.Version)
	s.setIf("orch_mass_death", f.cfg.MassDeath != nil && f.cfg.MassDeath())
	for _, status := range f.cfg.Services() {
		service := f.labels.service.value(status.Name)
		s.set("orch_service_restarts_total", float64(status.Restarts), service)
		if status.State != lifespan.StateDisabled {
			s.setIf("orch_service_up", status.State == lifespan.StateReady, service)
		}
	}
	return nil
}

func (f *facts) ofQueue(s *sample) error {
	ok := false
	defer func() { s.setIf("orch_snapshot_ok", ok) }()
	ctx, cancel := context.WithTimeout(context.Background(), snapshotWait)
	defer cancel()
	q, err := f.cfg.Queue(ctx)
	if err != nil {
		return err // it was told where the snapshot is taken
	}
	ok = q.Snapshot.Status != isStale
	s.set("orch_snapshot_age_seconds", max(0, time.Since(q.GeneratedAt).Seconds()))
	s.setIf("orch_config_ok", q.Config.Status != isBroken)
	f.ofJobs(s, q)
	f.ofWorker(s, q.Worker)
	f.ofDaemons(s, q)
	f.ofNames(s, q)
	return nil
}

func (f *facts) ofJobs(s *sample, q api.Queue) {
	for _, d := range q.Depth {
		lane, kind := f.labels.lane.value(d.Lane), f.labels.kind.value(d.Kind)
		s.set("orch_queue_jobs", float64(d.Queued), lane, kind, "queued")
		s.set("orch_queue_jobs", float64(d.Running), lane, kind, "running")
		s.set("orch_queue_jobs", float64(d.Failed), lane, kind, "failed")
		if d.OldestQueuedAgeS != nil {
			s.set("orch_queue_oldest_seconds", *d.OldestQueuedAgeS, lane, kind)
		}
	}
	s.set("orch_jobs_total", float64(q.Counts.Succeeded), "succeeded")
	s.set("orch_jobs_total", float64(q.Counts.Failed), "failed")
	s.set("orch_jobs_total", float64(q.Counts.Cancelled), "cancelled")
	s.set("orch_tasks", float64(q.Tasks.Active), "active")
	s.set("orch_tasks", float64(q.Tasks.Waiting), "waiting")
	s.set("orch_tasks", float64(q.Tasks.NeedsYou), "needs_you")
	s.set("orch_landed_total", float64(q.Tasks.LandedTotal))
	for _, scope := range []api.PauseScope{api.PauseLane, api.PauseRepo, api.PauseAgent} {
		s.set("orch_paused", 0, string(scope))
	}
	for _, p := range q.Paused {
		s.set("orch_paused", 1, string(p.Scope))
	}
}

func (f *facts) ofWorker(s *sample, w api.QueueWorker) {
	for name, lane := range w.Lanes {
		s.set("orch_worker_slots", float64(lane.Slots), f.labels.lane.value(name))
		s.set("orch_worker_busy", float64(lane.Busy), f.labels.lane.value(name))
	}
	for event, n := range map[string]int64{
		"claimed": w.Stats.Claimed, "succeeded": w.Stats.Succeeded, "retried": w.Stats.Retried, "cancelled": w.Stats.Cancelled,
		"failed": w.Stats.Failed, "lost": w.Stats.Lost, "released": w.Stats.Released, "reaped": w.Stats.Reaped, "errors": w.Stats.Errors,
	} {
		s.set("orch_worker_events_total", float64(n), event)
	}
}

func (f *facts) ofDaemons(s *sample, q api.Queue) {
	s.set("orch_reaper_reaped_total", float64(q.Reaper.ReapedTotal))
	s.set("orch_reaper_suspects", float64(q.Reaper.Suspects))
	if at := q.Reaper.LastRunTS; at != nil {
		s.set("orch_reaper_last_run_timestamp_seconds", unix(*at))
	}
	s.set("orch_reconcile_repaired_total", float64(q.Reconcile.RepairedTotal))
	if at := q.Reconcile.LastRunTS; at != nil {
		s.set("orch_reconcile_last_run_timestamp_seconds", unix(*at))
	}
	s.set("orch_merge_lease_reclaimed_total", float64(q.Reaper.LeaseReclaimedTotal))
	s.set("orch_alerts_pending", float64(q.Alerts.Pending))
	s.setIf("orch_alerts_failing", q.Alerts.Status == isFailing)
}

// ofNames shows what has a repository or an agent, those that nothing happens to as well.
func (f *facts) ofNames(s *sample, q api.Queue) {
	for _, repo := range f.cfg.Repos() {
		s.set("orch_merge_leases", 0, f.labels.repo.value(repo))
		s.set("orch_merge_queue", 0, f.labels.repo.value(repo))
	}
	for _, l := range q.Leases {
		s.set("orch_merge_leases", 1, f.labels.repo.value(l.Repo))
	}
	for _, w := range q.MergeQueue {
		s.set("orch_merge_queue", 1, f.labels.repo.value(w.Repo))
	}
	for _, a := range q.Agents {
		agent := f.labels.agent.value(a.Name)
		s.set("orch_agent_running", float64(a.Running), agent)
		s.setIf("orch_agent_paused", a.Reason != nil, agent)
	}
}

func unix(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
