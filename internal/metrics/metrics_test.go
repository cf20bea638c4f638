package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/lifespan"
	"orch/internal/metrics"
)

// full is a snapshot with something everywhere.
func full() api.Queue {
	at := time.Unix(1_700_000_000, 500_000_000)
	q := api.Queue{
		GeneratedAt: time.Now().Add(-time.Minute), Snapshot: api.QueueSnapshot{Status: "ok"}, Config: api.QueueConfig{Status: "error"},
		Counts: api.QueueCounts{Queued: 3, Running: 1, Succeeded: 120, Failed: 7, Cancelled: 2},
		Depth: []api.QueueDepth{
			{Kind: "stage", Lane: "agents", Queued: 3, Running: 1, Failed: 4, OldestQueuedAgeS: new(41.2)},
			{Kind: "merge", Lane: "merge", Failed: 1},
		},
		Paused: []api.Pause{{Scope: api.PauseLane, Name: "agents"}, {Scope: api.PauseAgent, Name: "coder"}, {Scope: api.PauseAgent, Name: "x"}},
		Tasks:  api.QueueTasks{Active: 4, Waiting: 2, NeedsYou: 1, LandedTotal: 57},
		Worker: api.QueueWorker{Lanes: map[string]api.QueueLane{"agents": {Slots: 2, Busy: 1}}, Stats: api.QueueWorkerStats{
			Claimed: 1, Succeeded: 2, Retried: 3, Cancelled: 4, Failed: 5, Lost: 6, Released: 7, Reaped: 8, Errors: 9,
		}},
		Reaper:    api.QueueReaper{ReapedTotal: 2, LeaseReclaimedTotal: 5, LastRunTS: &at},
		Reconcile: api.QueueReconcile{RepairedTotal: 6, LastRunTS: &at},
		Leases:    []api.QueueLease{{Repo: "demo"}},
		MergeQueue: []api.QueueMerge{
			{Repo: "demo"}, {Repo: "demo"}, {Repo: "/somebody/elses"},
		},
		Agents: []api.QueueAgent{{Name: "coder", Running: 2, Reason: new("quota")}, {Name: "reviewer"}},
		Alerts: api.QueueAlerts{Channel: "telegram", Status: "failing", Pending: 3},
	}
	q.Reaper.Suspects = 1
	return q
}

func TestMetricsHaveTheFactsOfTheQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.queue = full()
	e := b.scrape()
	b.has(e, map[string]float64{
		with("orch_build_info", "version", "1.2.3"): 1,
		"orch_snapshot_ok":                          1,
		"orch_config_ok":                            0,
		with("orch_queue_jobs", "kind", "stage", "lane", "agents", "state", "queued"):  3,
		with("orch_queue_jobs", "kind", "stage", "lane", "agents", "state", "running"): 1,
		with("orch_queue_jobs", "kind", "stage", "lane", "agents", "state", "failed"):  4,
		with("orch_queue_jobs", "kind", "merge", "lane", "merge", "state", "queued"):   0,
		with("orch_queue_oldest_seconds", "kind", "stage", "lane", "agents"):           41.2,
		with("orch_jobs_total", "state", "succeeded"):                                  120,
		with("orch_jobs_total", "state", "failed"):                                     7,
		with("orch_jobs_total", "state", "cancelled"):                                  2,
		with("orch_tasks", "state", "active"):                                          4,
		with("orch_tasks", "state", "waiting"):                                         2,
		with("orch_tasks", "state", "needs_you"):                                       1,
		"orch_landed_total":                                                            57,
		with("orch_paused", "scope", "lane"):                                           1,
		with("orch_paused", "scope", "repo"):                                           0,
		with("orch_paused", "scope", "agent"):                                          2,
		with("orch_worker_slots", "lane", "agents"):                                    2,
		with("orch_worker_busy", "lane", "agents"):                                     1,
		with("orch_worker_events_total", "event", "claimed"):                           1,
		with("orch_worker_events_total", "event", "reaped"):                            8,
		with("orch_worker_events_total", "event", "errors"):                            9,
		"orch_reaper_reaped_total":                                                     2,
		"orch_reaper_suspects":                                                         1,
		"orch_reaper_last_run_timestamp_seconds":                                       1_700_000_000.5,
		"orch_reconcile_repaired_total":                                                6,
		"orch_reconcile_last_run_timestamp_seconds":                                    1_700_000_000.5,
		"orch_merge_lease_reclaimed_total":                                             5,
		with("orch_merge_leases", "repo", "demo"):                                      1,
		with("orch_merge_leases", "repo", "site"):                                      0,
		with("orch_merge_queue", "repo", "demo"):                                       2,
		with("orch_merge_queue", "repo", "other"):                                      1,
		"orch_alerts_pending":                                                          3,
		"orch_alerts_failing":                                                          1,
		with("orch_agent_running", "agent", "coder"):                                   2,
		with("orch_agent_paused", "agent", "coder"):                                    1,
		with("orch_agent_paused", "agent", "reviewer"):                                 0,
		"orch_mass_death":                                                              1,
		with("orch_service_up", "service", "worker"):                                   1,
		with("orch_service_up", "service", "reaper"):                                   0,
		with("orch_service_restarts_total", "service", "worker"):                       3,
	})
	if age := e.values["orch_snapshot_age_seconds"]; age < 60 || age > 90 {
		t.Errorf("the snapshot is %v s old", age)
	}
	if _, is := e.values[with("orch_service_up", "service", "reconcile")]; is {
		t.Error("a service that is off is shown as up or down")
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total"} {
		if e.types[name] == "" {
			t.Errorf("no %s", name)
		}
	}
}

func TestFactsOutliveTheDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.err = errors.New("no snapshot yet")
	e := b.scrape()
	b.has(e, map[string]float64{"orch_snapshot_ok": 0, with("orch_service_up", "service", "worker"): 1})
	if _, is := e.values["orch_landed_total"]; is {
		t.Error("facts without a snapshot")
	}
	b.err, b.queue = nil, full()
	b.queue.Snapshot.Status = "stale"
	b.has(b.scrape(), map[string]float64{"orch_snapshot_ok": 0, "orch_landed_total": 57})
}

func TestPanicOfASourceCostsItsFactsOnly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*metrics.Config){
		"queue":    func(c *metrics.Config) { c.Queue = func(context.Context) (api.Queue, error) { panic("queue") } },
		"services": func(c *metrics.Config) { c.Services = func() []lifespan.Status { panic("services") } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, change)
			b.queue = full()
			e := b.scrape()
			want := map[string]float64{with("orch_build_info", "version", "1.2.3"): 1, "orch_snapshot_ok": 0}
			if name == "services" {
				want["orch_snapshot_ok"], want["orch_landed_total"] = 1, 57
			}
			b.has(e, want)
		})
	}
}

// Whatever the database holds: no label takes more than the first fifty values and "other", which has the sum of the rest.
func TestCardinalityIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *metrics.Config) {
		c.Agents = func() (names []string) {
			for i := range 80 {
				names = append(names, fmt.Sprintf("agent%d", i))
			}
			return names
		}
	})
	b.task()
	b.look()
	for i := range 80 {
		b.queue.Depth = append(b.queue.Depth, api.QueueDepth{
			Kind: fmt.Sprintf("kind%d", i), Lane: fmt.Sprintf("lane%d", i), Queued: 1, OldestQueuedAgeS: new(float64(i)),
		})
		b.queue.Agents = append(b.queue.Agents, api.QueueAgent{Name: fmt.Sprintf("agent%d", i), Running: 1})
		b.queue.MergeQueue = append(b.queue.MergeQueue, api.QueueMerge{Repo: fmt.Sprintf("/home/someone/repo%d", i)})
		b.exec(endedJob, fmt.Sprintf("lane%d", i), 1)
		b.exec(endedRun, "agent", fmt.Sprintf("stranger%d", i), fmt.Sprintf("outcome%d", i))
		b.exec(gateAnswer, fmt.Sprintf("gate%d", i), "pass")
	}
	b.until(with("orch_gate_seconds_count", "gate", "other", "outcome", "pass"), 30)
	e := b.scrape()
	b.has(e, map[string]float64{
		with("orch_queue_jobs", "kind", "other", "lane", "other", "state", "queued"): 30,
		with("orch_queue_oldest_seconds", "kind", "other", "lane", "other"):          79,
		with("orch_agent_running", "agent", "other"):                                 30,
		with("orch_merge_queue", "repo", "other"):                                    80,
		with("orch_queue_wait_seconds_count", "lane", "other"):                       30,
		with("orch_run_seconds_count", "agent", "other", "purpose", "agent"):         80,
		with("orch_runs_total", "agent", "other", "outcome", "other"):                30,
	})
	series := map[string]int{}
	for name := range e.values {
		if strings.HasPrefix(name, "orch_") && !strings.Contains(name, "le=") {
			series[strings.SplitN(name, "{", 2)[0]]++
		}
	}
	for name, n := range series {
		if limit := 51 * 3; n > limit {
			t.Errorf("%s has %d series", name, n)
		}
	}
}

func TestEachMetricIsInNamesAndSaysWhatItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.task()
	b.look()
	b.exec(endedJob, "agents", 1)
	b.exec(endedRun, "agent", "coder", "ok")
	b.exec(gateAnswer, "command", "pass")
	b.exec(endedLanding, "finalised")
	b.until(with("orch_landing_seconds_count", "result", "landed"), 1)
	b.queue = full()
	e := b.scrape()
	var shown []string
	for name := range e.types {
		if strings.HasPrefix(name, "orch_") {
			shown = append(shown, name)
		}
		if e.help[name] == "" && !strings.HasPrefix(name, "go_") {
			t.Errorf("%s has no help", name)
		}
	}
	slices.Sort(shown)
	if names := b.m.Names(); !slices.Equal(names, shown) {
		t.Errorf("names are\n%v\nshown are\n%v", names, shown)
	}
	for name, kind := range e.types {
		if strings.HasPrefix(name, "orch_") && (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
}

func TestDocumentationHasEachMetric(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, found := range regexp.MustCompile("(?m)^\\| `(orch_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
		told = append(told, found[1])
	}
	slices.Sort(told)
	if names := newBench(t).m.Names(); !slices.Equal(names, told) {
		t.Errorf("names are\n%v\ndocs/metrics.md has\n%v", names, told)
	}
}

func TestPartsAreNeeded(t *testing.T) {
	t.Parallel()
	if _, err := metrics.New(metrics.Config{}); err == nil {
		t.Error("metrics of nothing")
	}
}
