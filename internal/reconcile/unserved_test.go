package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// waitingTask is a world with one task of the repository app, whose job has been due for two minutes.
func waitingTask(t *testing.T) (*world, task.Task) {
	t.Helper()
	w := newWorld(t)
	created := w.create("app")
	w.exec(`update jobs set run_at = clock_timestamp() - interval '2 minutes'`)
	return w, created
}

func TestTaskThatNobodyServesIsBlocked(t *testing.T) {
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
			w, created := waitingTask(t)
			roots := map[int]uuid.UUID{}
			for _, seen := range tt.workers {
				if _, known := roots[seen.root]; !known {
					roots[seen.root] = queuetest.Root(t, w.pool)
				}
				worker := queuetest.Worker(roots[seen.root])
				if err := w.queue.RegisterWorker(t.Context(), worker); err != nil {
					t.Fatal(err)
				}
				w.exec(`update workers set repos = $2::text::text[], heartbeat_at = `+seen.beat+`, stopped_at = case when $3 then now() end
					where id = $1`, worker.ID, seen.repos, seen.stopped)
			}
			if tt.change != "" {
				w.exec(tt.change)
			}
			w.tick()
			w.tick() // and not twice
			got := w.get(created.ID)
			if blocked := got.State == task.Blocked; blocked != tt.blocked {
				t.Fatalf("blocked: %v, want %v (%s)", blocked, tt.blocked, got.Reason)
			}
			job, err := w.queue.ActiveForTask(t.Context(), created.ID)
			if err != nil || (job == nil) != tt.blocked {
				t.Errorf("job %+v, %v", job, err)
			}
			if tt.blocked && (got.ReasonCode != "repo_unknown" || !strings.Contains(got.Reason, `"app"`) || !strings.Contains(got.Reason, "orch task retry app-1")) {
				t.Errorf("%s: %s", got.ReasonCode, got.Reason)
			}
			if tt.blocked {
				w.repaired("unserved app-1")
			} else {
				w.repaired("")
			}
		})
	}
}

// On a small host every connection may be held by somebody who would want another one.
func TestRepairsNeedNoSecondConnection(t *testing.T) {
	t.Parallel()
	cfg := testdb.New(t).Config()
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	w := worldOn(t, testgit.NewBare(t, map[string]string{"README": "demo\n"}), pool)
	unserved, jobless := w.create("app"), w.create("lib")
	w.exec(`update jobs set run_at = clock_timestamp() - interval '2 minutes'`)
	w.exec(`delete from jobs where task_id = $1`, jobless.ID)
	worker := queuetest.Worker(queuetest.Root(t, w.pool))
	if err := w.queue.RegisterWorker(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	w.exec(`update workers set repos = '{lib}' where id = $1`, worker.ID)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.rec.Tick(ctx); err != nil {
		t.Error(err)
	}
	if got := w.get(unserved.ID); got.State != task.Blocked {
		t.Errorf("task %s is %s", got.Key, got.State)
	}
}
