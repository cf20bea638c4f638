package app

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

// waitingTask is a system with one task of the repository app, whose job has been due for two minutes.
func waitingTask(t *testing.T) (*system, *pgxpool.Pool, task.Task) {
	t.Helper()
	pool := testdb.New(t)
	pipeline := flow.Short("default", "coder", "true")
	tasks, err := task.NewStore(pool, task.StoreConfig{Pipelines: task.Pipelines{pipeline}})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{pool: pool, queue: queue.New(pool, queue.Config{}), tasks: tasks, log: slog.New(slog.DiscardHandler)}
	created, err := tasks.Create(t.Context(), task.Add{Repo: "app", Location: "/srv/app", Title: "T", Source: "cli", Pipeline: "default", BaseBranch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	change(t, pool, `update jobs set repo = 'app', run_at = clock_timestamp() - interval '2 minutes'`)
	return s, pool, created
}

func change(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestBlockUnserved(t *testing.T) {
	t.Parallel()
	const (
		now    = "clock_timestamp()"
		lately = "clock_timestamp() - interval '5 minutes'"
		before = "clock_timestamp() - interval '20 minutes'"
	)
	type seen struct {
		root    int
		repos   string // as an array of PostgreSQL
		beat    string
		stopped bool
	}
	for name, tt := range map[string]struct {
		workers []seen
		change  string
		blocked bool
	}{
		"no worker at all says nothing":              {},
		"a worker of another root serves it":         {workers: []seen{{1, "{lib}", now, false}, {2, "{app,lib}", now, false}}},
		"no worker serves it":                        {workers: []seen{{1, "{lib}", now, false}, {2, "{}", now, false}}, blocked: true},
		"who served it was stopped, to be upgraded":  {workers: []seen{{1, "{lib}", now, false}, {2, "{app}", lately, true}}},
		"who served it died, its host may come back": {workers: []seen{{1, "{lib}", now, false}, {2, "{app}", lately, false}}},
		"who served it is gone for long":             {workers: []seen{{1, "{lib}", now, false}, {2, "{app}", before, false}}, blocked: true},
		"it was taken out of the configuration":      {workers: []seen{{1, "{lib}", now, false}, {1, "{app}", lately, true}}, blocked: true},
		"only the gone served it, and none is left":  {workers: []seen{{1, "{app}", lately, true}}},
		"work on it has begun somewhere": {
			workers: []seen{{1, "{lib}", now, false}}, change: `update jobs set pinned_root = gen_random_uuid()`,
		},
		"it lands, and its own root was given up": {
			workers: []seen{{1, "{lib}", now, false}}, change: `update jobs set kind = 'merge', lane = 'merge'`, blocked: true,
		},
		"it lands, and its own root may come back": {
			workers: []seen{{1, "{lib}", now, false}}, change: `with j as (update jobs set kind = 'merge', lane = 'merge'),
				r as (insert into roots (id, host, path) values ('6d1bb3a9-2bd7-4b8e-9a3d-111111111111', 'there', '/there') returning id)
				update tasks set root_id = r.id from r`,
		},
		"it lands, and its own root has forgotten the repository": {
			workers: []seen{{1, "{lib}", now, false}}, change: `with j as (update jobs set kind = 'merge', lane = 'merge')
				update tasks set root_id = w.root_id from workers w`, blocked: true,
		},
		"it has just become due": {
			workers: []seen{{1, "{lib}", now, false}}, change: `update jobs set run_at = clock_timestamp() - interval '30 seconds'`,
		},
		"it belongs to no repository": {workers: []seen{{1, "{lib}", now, false}}, change: `update jobs set repo = ''`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool, created := waitingTask(t)
			roots := map[int]uuid.UUID{}
			for _, w := range tt.workers {
				if _, known := roots[w.root]; !known {
					roots[w.root] = queuetest.Root(t, pool)
				}
				worker := queuetest.Worker(roots[w.root])
				if err := s.queue.RegisterWorker(t.Context(), worker); err != nil {
					t.Fatal(err)
				}
				change(t, pool, `update workers set repos = $2::text::text[], heartbeat_at = `+w.beat+`, stopped_at = case when $3 then now() end
					where id = $1`, worker.ID, w.repos, w.stopped)
			}
			if tt.change != "" {
				change(t, pool, tt.change)
			}
			for range 2 { // and not twice
				if err := s.blockUnserved(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.tasks.Get(t.Context(), created.Key)
			if err != nil {
				t.Fatal(err)
			}
			if blocked := got.State == task.Blocked; blocked != tt.blocked {
				t.Fatalf("blocked: %v, want %v (%s)", blocked, tt.blocked, got.Reason)
			}
			job, err := s.queue.ActiveForTask(t.Context(), created.ID)
			if err != nil || (job == nil) != tt.blocked {
				t.Errorf("job %+v, %v", job, err)
			}
			if tt.blocked && (got.ReasonCode != codeRepoUnknown || !strings.Contains(got.Reason, `"app"`) || !strings.Contains(got.Reason, "orch task retry app-1")) {
				t.Errorf("%s: %s", got.ReasonCode, got.Reason)
			}
		})
	}
}
