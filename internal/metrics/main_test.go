package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/api"
	"orch/internal/lifespan"
	"orch/internal/metrics"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is metrics over a real database and a snapshot that the test makes.
type bench struct {
	t     *testing.T
	pool  *pgxpool.Pool
	queue api.Queue
	err   error
	m     *metrics.Metrics
}

func newBench(t *testing.T, change ...func(*metrics.Config)) *bench {
	t.Helper()
	b := &bench{t: t, pool: testdb.New(t)}
	b.queue.Snapshot.Status = "ok"
	cfg := metrics.Config{
		Version: "1.2.3", Queue: func(context.Context) (api.Queue, error) { return b.queue, b.err }, Pool: b.pool,
		Services: func() []lifespan.Status {
			return []lifespan.Status{
				{Name: "worker", State: lifespan.StateReady, Enabled: true, Restarts: 3},
				{Name: "reaper", State: lifespan.StateStale, Enabled: true},
				{Name: "reconcile", State: lifespan.StateDisabled},
			}
		},
		MassDeath: func() bool { return true },
		Agents:    func() []string { return []string{"coder", "reviewer"} },
		Repos:     func() []string { return []string{"demo", "site"} },
	}
	for _, fn := range change {
		fn(&cfg)
	}
	var err error
	if b.m, err = metrics.New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// exposition is what a scrape brought.
type exposition struct {
	values map[string]float64 // by name with labels, as they are written
	types  map[string]string
	help   map[string]string
}

func (b *bench) scrape() exposition {
	b.t.Helper()
	recorder := httptest.NewRecorder()
	b.m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "/metrics", nil))
	if recorder.Code != http.StatusOK {
		b.t.Fatalf("got %d %s", recorder.Code, recorder.Body)
	}
	e := exposition{map[string]float64{}, map[string]string{}, map[string]string{}}
	for line := range strings.Lines(recorder.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if rest, is := strings.CutPrefix(line, "# TYPE "); is {
			name, kind, _ := strings.Cut(rest, " ")
			e.types[name] = kind
		} else if rest, is := strings.CutPrefix(line, "# HELP "); is {
			name, text, _ := strings.Cut(rest, " ")
			e.help[name] = text
		} else {
			at := strings.LastIndex(line, " ")
			number, err := strconv.ParseFloat(line[at+1:], 64)
			if err != nil {
				b.t.Fatalf("line %q: %v", line, err)
			}
			e.values[line[:at]] = number
		}
	}
	return e
}

func (b *bench) has(e exposition, want map[string]float64) {
	b.t.Helper()
	for name, number := range want {
		if got, is := e.values[name]; !is || got != number {
			b.t.Errorf("%s: got %v (%v), want %v", name, got, is, number)
		}
	}
}

func (b *bench) look() {
	b.t.Helper()
	if err := b.m.Look(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// until looks again and again until a metric has a value: what has just ended is settled two seconds later.
func (b *bench) until(name string, want float64) {
	b.t.Helper()
	b.wait(name, func() bool {
		b.look()
		return b.scrape().values[name] >= want
	})
}

func (b *bench) wait(what string, holds func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(b.t.Context()), 4*time.Minute, errors.New("waited in vain: "+what))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.t.Fatal(context.Cause(ctx))
		}
	}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

const (
	endedJob = `insert into jobs (kind, lane, max_attempts, state, created_at, run_at, started_at, finished_at)
		select 'work', $1, 3, 'succeeded', at - interval '1 hour', at - interval '30 seconds', at - interval '10 seconds', at
		from (select clock_timestamp() as at) now, generate_series(1, $2::int)`
	endedRun = `insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host, boot_id,
			pid_namespace, started_at, finished_at, consumed_at, ended, outcome)
		select gen_random_uuid(), (select min(id) from tasks), 1, 1, $1, 'k', 'development', 1, 1, $2, 'finished', (select min(id::text)::uuid from roots),
			'h', 'b', 'ns', at - interval '90 seconds', at, at, 'exited', $3 from (select clock_timestamp() as at) now`
	gateAnswer = `insert into gate_evidence (task_id, stage, round, name, definition, commit_sha, tree, outcome, duration_ms)
		select min(id), 'development', 1, $1, 'd', 'c', 't', $2, 2500 from tasks`
	endedLanding = `insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, step, method, created_at, finished_at)
		select min(tasks.id), 1, 1, 'demo', 'main', 'b', $1, 'fast-forward', now.at - interval '20 minutes', now.at
		from tasks, (select clock_timestamp() as at) now group by now.at`
)

// task makes what runs, gates and landings belong to.
func (b *bench) task() {
	b.t.Helper()
	b.exec(`insert into roots (id, host, path) values ($1, 'h', '/')`, uuid.New())
	b.exec(`insert into repositories (name, location) values ('demo', '/demo')`)
	b.exec(`insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage) values ('demo-1', 'demo', 't', 'cli', 'b', 'main', 'p', 'development')`)
}

func with(name string, labels ...string) string {
	var pairs []string
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	return name + "{" + strings.Join(pairs, ",") + "}"
}
