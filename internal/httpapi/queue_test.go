package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/httpapi"
)

func at(text string) time.Time {
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return moment
}

func fullQueue() api.Queue {
	t1, t2 := at("2026-03-01T10:00:00Z"), at("2026-03-01T10:00:41Z")
	id := func(n byte) uuid.UUID { return uuid.UUID{15: n} }
	return api.Queue{
		GeneratedAt: t2,
		Instance:    api.QueueInstance{ID: id(1), Host: "build-1", Pid: 1, Version: "1.0.0", StartedAt: t1, RootID: new(id(2)), Generation: 7},
		Config:      api.QueueConfig{Status: "ok", LoadedAt: &t1},
		Paused:      []api.Pause{{Scope: api.PauseRepo, Name: "demo", Reason: "release freeze", Actor: "cli", Since: t1}, {Scope: api.PauseAgent, Name: "spare", Reason: "quota", Actor: "orch", Since: t1, Code: new("quota"), Until: &t2}},
		Counts:      api.QueueCounts{Queued: 3, Running: 1, Succeeded: 120, Failed: 1},
		Depth:       []api.QueueDepth{{Kind: "stage", Lane: "agents", Queued: 3, Running: 1, Failed: 1, OldestQueuedAgeS: new(41.2)}},
		Running: []api.QueueRunning{{
			JobID: 9, Kind: "stage", Task: new("demo-65"), Stage: new("development"), Agent: new("coder"), Attempt: 1, MaxAttempts: 3,
			RunID: new(id(3)), Host: new("build-1"), Pid: new(4711), StartedAt: &t1, HeartbeatAgeS: new(3.1), LeaseExpiresAt: &t2,
			Phase: new("following"), Progress: &api.QueueProgress{Done: 3, Total: new(int64(10))},
		}},
		Tasks: api.QueueTasks{Active: 4, Waiting: 1, NeedsYou: 1, LandedTotal: 57},
		Worker: api.QueueWorker{
			Enabled: true, Status: "ok", Lanes: map[string]api.QueueLane{"agents": {Slots: 2, Busy: 1}, "merge": {Slots: 2}},
			Stats: api.QueueWorkerStats{Claimed: 5, Succeeded: 4},
		},
		Reaper: api.QueueReaper{
			Enabled: true, Status: "ok", IntervalS: 60, DeadTicks: 2, MaxRunningS: 3600, LastRunTS: &t2, ReapedTotal: 2,
			LastReaped:          &api.QueueReaped{JobID: 8, Agent: new("coder"), Outcome: "failed", Reason: "process_dead", At: t1},
			LeaseReclaimedTotal: 1,
		},
		Reconcile: api.QueueReconcile{
			Enabled: true, Status: "ok", IntervalS: 60, LastRunTS: &t2, RepairedTotal: 1,
			LastRepaired: &api.QueueRepaired{Task: new("demo-65"), Repair: "job_missing", At: t1},
		},
		Leases: []api.QueueLease{{
			Repo: "demo", Target: "main", Task: new("demo-65"), Branch: new("orch/demo-65"), JobID: 12, Host: new("build-1"), Pid: new(1),
			AcquiredAt: t1, RenewedAt: t2, ExpiresAt: t2, AgeS: 12, Epoch: 5, Holder: "alive", Step: new("testing"), Position: 1,
		}},
		MergeQueue: []api.QueueMerge{{Repo: "demo", Target: "main", Task: "demo-66", Position: 2, Step: "queued", NextLookAt: &t2, Branch: "orch/demo-66", Method: "squash", Base: new("8c2f1e0"), Head: new("1f0e9d8"), Land: new("5a4f3c2"), Group: new("demo-65")}},
		Agents:     []api.QueueAgent{{Name: "coder", Running: 1}, {Name: "spare", PausedUntil: &t2, Reason: new("quota")}},
		Alerts:     api.QueueAlerts{Channel: "telegram", Status: "ok"},
		PostDeploy: []api.QueuePostDeploy{{Repo: "demo", Task: "demo-64", Commit: "8c2f1e0", Status: "watching", Since: t1}},
	}
}

// The shape of GET /queue is a promise to everybody's dashboards: a difference here is a change of the interface.
func TestQueueShape(t *testing.T) {
	t.Parallel()
	empty := api.Queue{GeneratedAt: at("2026-03-01T10:00:00Z")}
	empty.Instance.StartedAt = empty.GeneratedAt
	for file, queue := range map[string]api.Queue{"queue.golden.json": fullQueue(), "queue-empty.golden.json": empty} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.SetQueue(func(context.Context) (api.Queue, error) { return queue, nil })
			got := s.ask(t, http.MethodGet, "/queue", "")
			if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("got %d %s", got.StatusCode, got.Header.Get("Content-Type"))
			}
			golden(t, file, got.body)
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, got, "", "  "); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pretty.Bytes(), want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, pretty.Bytes(), want)
	}
}

func TestQueueKeepsServingWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) {
		c.QueueEvery = time.Nanosecond
		c.ErrorCode = func(error) string { return "database_unreachable" }
	})
	var away atomic.Bool
	away.Store(true)
	s.SetQueue(func(context.Context) (api.Queue, error) {
		if away.Load() {
			return api.Queue{}, errors.New("connect to 10.0.0.7 as orch with secret: refused")
		}
		return fullQueue(), nil
	})
	problem := s.ask(t, http.MethodGet, "/queue", "").problem(t, http.StatusServiceUnavailable, "no_snapshot")
	if strings.Contains(problem.Detail, "10.0.0.7") || !strings.Contains(problem.Detail, "database_unreachable") {
		t.Errorf("detail %q", problem.Detail)
	}
	status := func() api.QueueSnapshot {
		return decode[api.Queue](t, s.ask(t, http.MethodGet, "/queue", ""), http.StatusOK).Snapshot
	}
	away.Store(false)
	eventually(t, "a good snapshot", func() bool { return s.ask(t, http.MethodGet, "/queue", "").StatusCode == http.StatusOK })
	away.Store(true)
	eventually(t, "a stale snapshot", func() bool {
		got := status()
		return got.Status == "stale" && got.ErrorCode != nil && *got.ErrorCode == "database_unreachable"
	})
	got := s.ask(t, http.MethodGet, "/queue", "")
	if queue := decode[api.Queue](t, got, http.StatusOK); !queue.GeneratedAt.Equal(fullQueue().GeneratedAt) || queue.Counts.Succeeded != 120 {
		t.Errorf("not the last good snapshot: %s", got.body)
	}
	if age := got.Header.Get("Age"); age == "" || age == "0" {
		t.Errorf("Age is %q", age)
	}
	away.Store(false)
	eventually(t, "a fresh snapshot", func() bool { return status().Status == "ok" })
	if n := strings.Count(s.logs.String(), "queue snapshot could not be taken"); n != 2 {
		t.Errorf("the outage was logged %d times, want once for each of two", n)
	}
}

func TestQueueIsBuiltOnceForManyPollers(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *httpapi.Config) { c.QueueEvery = time.Hour })
	var builds atomic.Int64
	started, release := make(chan struct{}), make(chan struct{})
	s.SetQueue(func(context.Context) (api.Queue, error) {
		if builds.Add(1) == 1 {
			close(started)
		}
		<-release
		return fullQueue(), nil
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := s.ask(t, http.MethodGet, "/queue", ""); got.StatusCode != http.StatusOK {
				t.Errorf("got %d", got.StatusCode)
			}
		})
	}
	<-started
	close(release)
	wg.Wait()
	for range 100 {
		s.tell(t, http.MethodGet, "/queue", "")
	}
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
}

func TestQueueSurvivesAPanicOfItsSource(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.SetQueue(func(context.Context) (api.Queue, error) { panic("boom") })
	s.ask(t, http.MethodGet, "/queue", "").problem(t, http.StatusInternalServerError, "internal")
	s.ask(t, http.MethodGet, "/healthz", "")
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		checks []api.Check
		ready  bool
		detail string
	}{
		"all well": {[]api.Check{{Name: "database", Status: "ok"}, {Name: "reaper", Status: "off"}}, true, ""},
		"database away": {
			[]api.Check{{Name: "database", Status: "failed", Code: new("database_unreachable")}, {Name: "worker", Status: "failed"}},
			false, "not ready: database (database_unreachable), worker",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c *httpapi.Config) { c.Token = "secret" }) // no token is asked here
			s.SetChecks(test.checks...)
			got := s.ask(t, http.MethodGet, "/readyz", "")
			if test.ready {
				if r := decode[api.Readiness](t, got, http.StatusOK); r.Status != "ready" || len(r.Checks) != 2 {
					t.Errorf("got %+v", r)
				}
				return
			}
			problem := got.problem(t, http.StatusServiceUnavailable, "not_ready")
			if problem.Detail != test.detail || problem.Checks == nil || len(*problem.Checks) != 2 {
				t.Errorf("got %s", got.body)
			}
		})
	}
}
