package view_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/api"
	"orch/internal/app/view"
	"orch/internal/httpapi"
	"orch/internal/httpapi/apitest"
	"orch/internal/lifespan"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/root"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/worker"
)

// secret stands for what nobody is shown who may only look at the queue.
const secret = "hunter2"

// newSnapshot fills every part of the queue that there is so far, with a secret wherever text is kept.
func newSnapshot(t *testing.T) view.Snapshot {
	t.Helper()
	return snapshotOn(t, testdb.New(t))
}

func snapshotOn(t *testing.T, pool *pgxpool.Pool) view.Snapshot {
	t.Helper()
	sources, _ := sourcesOn(t, pool)
	bound, err := root.Bind(t.Context(), filepath.Join(t.TempDir(), "root"), pool, root.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bound.Close(); err != nil {
			t.Error(err)
		}
	})
	handler := worker.HandlerFunc(func(context.Context, *queue.Lease) error { return nil })
	w, err := worker.New(worker.Config{
		Queue: sources.Jobs, Worker: queue.Worker{ID: uuid.New(), RootID: bound.ID()}, Lanes: map[string]int{task.LaneSystem: 4},
		Handlers: map[string]worker.Handler{"plain": handler}, KindLane: map[string]string{"plain": task.LaneSystem},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range []string{"runs " + secret, "waits " + secret} {
		taskWithJob(t, sources, title)
	}
	claim(t, sources, pool, task.LaneAgents, task.KindStage)
	plain := queue.Insert{Kind: "plain", Lane: task.LaneSystem, Args: map[string]string{"password": secret}}
	enqueue(t, sources, plain)
	fail(t, claim(t, sources, pool, task.LaneSystem, "plain"), "error "+secret)
	enqueue(t, sources, plain)
	hold(t, view.Jobs{Sources: sources}, lane("agents"), "budget is spent")
	hold(t, view.Jobs{Sources: sources}, repo("manual"), "freeze")
	return view.Snapshot{
		Sources: sources, Root: bound, Self: process.Identity{Host: "build-1", PID: 1}, Started: time.Now(), Version: "test",
		Worker: w, WorkerEnabled: true, WorkerState: func() lifespan.State { return lifespan.StateReady },
		Reaper: view.Reaper{
			Daemon: daemon(lifespan.Status{State: lifespan.StateReady, Enabled: true}, time.Time{}, ""), DeadTicks: 2,
			MaxRunning: func(context.Context) time.Duration { return time.Hour }, Suspects: func() int { return 3 },
		},
		Reconcile: daemon(lifespan.Status{State: lifespan.StateDisabled}, time.Time{}, ""),
		Alerts: func(context.Context) (api.QueueAlerts, error) {
			return api.QueueAlerts{Channel: "none", Status: "off"}, nil
		},
	}
}

// daemon is one whose last pass ended at some time, and with what.
func daemon(status lifespan.Status, last time.Time, code string) view.Daemon {
	return view.Daemon{
		Interval: time.Minute, Status: func() lifespan.Status { return status }, Looked: func() (time.Time, string) { return last, code },
	}
}

// What the daemons have done is told of all processes together, how they are of this one.
func TestQueue_WhatTheDaemonsDo(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	snapshot := snapshotOn(t, pool)
	show := func(want string) {
		t.Helper()
		q, err := snapshot.Queue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal([]any{q.Reaper, q.Reconcile, q.Alerts})
		if err != nil {
			t.Fatal(err)
		}
		if string(shown) != want {
			t.Errorf("shown  %s\nwanted %s", shown, want)
		}
	}
	show(`[{"dead_ticks":2,"enabled":true,"interval_s":60,"last_error":null,"last_reaped":null,"last_run_ts":null,"lease_reclaimed_total":0,` +
		`"max_running_s":3600,"reaped_total":0,"restarts":0,"status":"ok","suspects":3},` +
		`{"enabled":false,"interval_s":60,"last_error":null,"last_repaired":null,"last_run_ts":null,"repaired_total":0,"restarts":0,"status":"off"},` +
		`{"channel":"none","last_error":null,"pending":0,"status":"off"}]`)
	_, err := pool.Exec(t.Context(), `
		insert into counters values ('reaped_total', 2), ('repaired_total', 4), ('lease_reclaimed_total', 1);
		insert into latest values
			('last_reaped', '2026-03-01T10:00:00Z', '{"job_id": 8, "agent": "coder", "outcome": "failed", "reason": "process_dead"}'),
			('last_repaired', '2026-03-01T10:00:00Z', '{"repair": "job_missing", "task": "demo-65"}')`)
	if err != nil {
		t.Fatal(err)
	}
	looked := time.Date(2026, 3, 1, 10, 0, 41, 0, time.UTC)
	snapshot.Reaper.Daemon = daemon(lifespan.Status{State: lifespan.StateStale, Enabled: true, Restarts: 1, LastError: "panic"}, looked, "")
	snapshot.Reconcile = daemon(lifespan.Status{State: lifespan.StateBackoff, Enabled: true, Restarts: 7, LastError: "panic"}, looked, "57P03")
	show(`[{"dead_ticks":2,"enabled":true,"interval_s":60,"last_error":"panic","last_reaped":{"agent":"coder","at":"2026-03-01T10:00:00Z",` +
		`"job_id":8,"outcome":"failed","reason":"process_dead"},"last_run_ts":"2026-03-01T10:00:41Z","lease_reclaimed_total":1,` +
		`"max_running_s":3600,"reaped_total":2,"restarts":1,"status":"stale","suspects":3},` +
		`{"enabled":true,"interval_s":60,"last_error":"57P03","last_repaired":{"at":"2026-03-01T10:00:00Z","repair":"job_missing","task":"demo-65"},` +
		`"last_run_ts":"2026-03-01T10:00:41Z","repaired_total":4,"restarts":7,"status":"backoff"},` +
		`{"channel":"none","last_error":null,"pending":0,"status":"off"}]`)
}

func TestQueue_WhatIsPausedCountedAndHowDeep(t *testing.T) {
	t.Parallel()
	snapshot := newSnapshot(t)
	q, err := snapshot.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(q.Paused) != 2 || q.Paused[0].Name != "agents" || q.Paused[0].Reason != "budget is spent" || q.Paused[0].Actor != "cli" ||
		q.Paused[0].Since.IsZero() || q.Paused[1].Scope != api.PauseRepo {
		t.Errorf("paused %+v", q.Paused)
	}
	if q.Counts.Queued != 2 || q.Counts.Running != 1 || q.Counts.Failed != 1 {
		t.Errorf("counts %+v", q.Counts)
	}
	depth := map[string]api.QueueDepth{}
	for _, d := range q.Depth {
		depth[d.Lane+" "+d.Kind] = d
	}
	agents, system := depth["agents "+task.KindStage], depth["system plain"]
	if len(q.Depth) != 2 || agents.Queued != 1 || agents.Running != 1 || agents.OldestQueuedAgeS == nil || system.Queued != 1 || system.Failed != 1 {
		t.Errorf("depth %+v", q.Depth)
	}
	if q.Worker.Lanes[task.LaneSystem].Slots != 4 || q.Worker.Status != "ok" {
		t.Errorf("worker %+v", q.Worker)
	}
}

// Of what an agent does the queue shows numbers only: what it calls its tools is its own text.
func TestQueue_ProgressOfAnAgent(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	snapshot := snapshotOn(t, pool)
	total := int64(10)
	for said, want := range map[string]api.QueueProgress{
		`{"tool": "hunter2", "turns": 3, "cost_usd": 0.5, "input_tokens": 7}`: {Done: 3, CostUsd: new(0.5), InputTokens: new(int64(7))},
		`{"tool": "hunter2"}`:      {},
		`{"done": 3, "total": 10}`: {Done: 3, Total: &total},
	} {
		if _, err := pool.Exec(t.Context(), `update jobs set progress = $1 where state = 'running'`, said); err != nil {
			t.Fatal(err)
		}
		q, err := snapshot.Queue(t.Context())
		if err != nil || len(q.Running) != 1 || !reflect.DeepEqual(q.Running[0].Progress, &want) {
			t.Errorf("%s: %+v, %v", said, q.Running, err)
		}
	}
}

// Whoever may poll the queue learns no payload, error text or title from it, and of its depth no names either.
func TestQueue_HoldsNoPayload(t *testing.T) {
	t.Parallel()
	q, err := newSnapshot(t).Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(whole), secret) {
		t.Errorf("it shows: %s", whole)
	}
	figures, err := json.Marshal([]any{q.Depth, q.Counts, q.Worker})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"auto", "manual"} {
		if strings.Contains(string(figures), name) {
			t.Errorf("depth and counts show %s: %s", name, figures)
		}
	}
}

// What is read from the database keeps the OpenAPI document too.
func TestAnswersKeepTheContract(t *testing.T) {
	t.Parallel()
	snapshot := newSnapshot(t)
	cfg := httpapi.Config{
		Addr: "127.0.0.1:0", Tasks: view.Tasks{Sources: snapshot.Sources}, Jobs: view.Jobs{Sources: snapshot.Sources},
		Runs: view.Runs{Sources: snapshot.Sources}, Agents: view.Agents{Sources: snapshot.Sources}, Queue: snapshot, Readiness: &apitest.Backend{},
	}
	server, _ := apitest.Start(t, cfg)
	contract, err := apitest.LoadContract("../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []struct {
		request, body string
		status        int
	}{
		{"GET /queue", "", 200},
		{"GET /tasks", "", 200},
		{"GET /tasks/auto-1", "", 200},
		{"GET /tasks/auto-2", "", 200},
		{"GET /tasks/auto-1/events", "", 200},
		{"GET /jobs", "", 200},
		{"GET /jobs/1", "", 200},
		{"POST /tasks", `{"repo":"auto","title":"one more"}`, 201},
		{"POST /pause", `{"lane":"merge","reason":"x"}`, 200},
		{"POST /pause", `{"lane":"nope","reason":"x"}`, 422},
		{"POST /pause", `{"agent":"coder","reason":"x"}`, 200},
		{"POST /pause", `{"agent":"nobody","reason":"x"}`, 422},
		{"GET /agents", "", 200},
		{"POST /resume", `{"lane":"merge"}`, 200},
		{"POST /resume", `{"agent":"coder"}`, 200},
		{"POST /jobs/1/retry", "", 409},
		{"POST /jobs/3/retry", "", 200},
		{"POST /jobs/3/cancel", "", 200},
		{"POST /tasks/auto-2/cancel", "", 200},
		{"POST /tasks/auto-2/retry", "{}", 409},
	} {
		method, path, _ := strings.Cut(asked.request, " ")
		checkAnswer(t, contract, asked.status, method, "http://"+server.Addr()+path, asked.body)
	}
}

func checkAnswer(t *testing.T, contract *apitest.Contract, status int, method, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != status {
		t.Errorf("%s %s: %d %s, want %d", method, url, response.StatusCode, read, status)
	}
	contract.Check(t, response, read)
}
