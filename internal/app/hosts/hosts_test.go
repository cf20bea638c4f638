package hosts_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/app/hosts"
	"orch/internal/hostdead"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	after = time.Hour
	every = 20 * time.Minute
)

// world is a database with two data roots: this one, and one that has a task with a running agent.
type world struct {
	t       *testing.T
	pool    *pgxpool.Pool
	hosts   *hosts.Hosts
	now     time.Duration
	other   uuid.UUID
	task    int64
	landing bool
	landed  int64 // tasks up to this one may have landed
	offered bool
	log     strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: testdb.New(t), other: uuid.New()}
	store, err := task.NewStore(w.pool, task.StoreConfig{
		Pipelines:     task.Pipelines{flow.Short("default", "coder", "true")},
		StopLandingTx: func(_ context.Context, _ pgx.Tx, id int64) (bool, error) { return !w.landing && id > w.landed, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	self := uuid.New()
	w.exec(`insert into roots (id, host, path, seen_at) values ($1, 'here', '/here', now()), ($2, 'there', '/there', now() - interval '3 days')`, self, w.other)
	added, err := store.Create(t.Context(), task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "Do it", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.task = added.ID
	w.exec(`update tasks set root_id = $1`, w.other)
	w.exec(`update jobs set pinned_root = $1`, w.other)
	grace := 60
	w.run(&grace)
	w.hosts = hosts.New(hosts.Config{
		Pool: w.pool, Tasks: store, Self: self,
		OfferedTx: func(context.Context, pgx.Tx, int64) (bool, error) { return w.offered, nil },
		Now:       func() time.Duration { return w.now },
		Watch:     hostdead.Config{After: after, Margin: time.Minute, Every: every},
		Logger:    slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	return w
}

// run begins one in the other root.
func (w *world) run(grace *int) {
	w.t.Helper()
	w.exec(`insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host, boot_id, pid_namespace, orphan_grace_s)
		select gen_random_uuid(), id, 1, 1, 'agent', 'stage:' || gen_random_uuid(), stage, 1, 1, 'coder', 'running', $1, 'there', 'boot', 'ns', $2 from tasks`, w.other, grace)
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) is(what, sql, want string) {
	w.t.Helper()
	var got string
	if err := w.pool.QueryRow(w.t.Context(), sql).Scan(&got); err != nil || got != want {
		w.t.Errorf("%s: %q, %v, want %q", what, got, err, want)
	}
}

func (w *world) bound(want bool) {
	w.t.Helper()
	w.is("tied to the other root", `select (root_id is not null)::text from tasks`, strconv.FormatBool(want))
}

// watched lets passes find the other root silent for that long. By the database's clock it has been so for days.
func (w *world) watched(d time.Duration) {
	w.t.Helper()
	for end := w.now + d; w.now < end; {
		w.now += every
		if err := w.hosts.Pass(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestTasksOfADeadHostAreTakenWithTheirRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched(after)
	w.bound(true)
	w.watched(every)
	w.bound(false)
	w.is("its run", `select ended || ' ' || outcome || ' ' || (consumed_at is not null) from runs`, "host_dead orphaned true")
	w.is("its jobs", `select string_agg(state::text || coalesce(' ' || error_code, ''), ', ' order by id) from jobs`, "cancelled host_dead, queued")
	if said := w.log.String(); strings.Count(said, "given up") != 1 || !strings.Contains(said, w.other.String()) {
		t.Errorf("log:\n%s", said)
	}
	w.watched(every)
	w.is("its jobs later", `select count(*)::text from jobs`, "2")
}

func TestNothingIsTakenFromAHostThatGivesASignOfLife(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]string{
		"the root":   `update roots set seen_at = clock_timestamp() where host = 'there'`,
		"its worker": `insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes) select gen_random_uuid(), id, 'there', 'boot', 'ns', 1, 1, 'v1', '{agents}' from roots where host = 'there'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.watched(after)
			w.exec(sign)
			w.watched(after + every)
			w.bound(true)
		})
	}
}

func TestRunsThatNothingEndsByItselfKeepTheirTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(nil)
	w.watched(10 * after)
	w.bound(true)
}

func TestALongGraceIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	grace := int((3 * after).Seconds())
	w.run(&grace)
	w.watched(3 * after)
	w.bound(true)
	w.watched(2 * every)
	w.bound(false)
}

func TestALandingStaysWithItsHostAndIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.landing = true
	w.watched(2 * after)
	w.bound(true)
	if said := w.log.String(); strings.Count(said, "stays with its dead host") != 1 {
		t.Errorf("log:\n%s", said)
	}
}

// However many stay with their host, the tasks behind them are taken.
func TestLandingsThatStayKeepNoTaskBehindThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`insert into tasks overriding system value
		select (jsonb_populate_record(t, jsonb_build_object('id', 1000 + n, 'key', 'demo-' || 1000 + n))).* from tasks t, generate_series(1, 150) n`)
	w.exec(`insert into jobs overriding system value
		select (jsonb_populate_record(j, jsonb_build_object('id', 1000 + n, 'task_id', 1000 + n, 'dedupe_key', 'task:' || 1000 + n))).* from jobs j, generate_series(1, 150) n`)
	w.landed = 1148
	w.watched(after + every)
	w.is("taken", `select string_agg(id::text, ' ' order by id) from tasks where root_id is null`, "1149 1150")
	w.landed = 1
	w.watched(every)
	w.is("taken in one pass", `select count(*)::text from tasks where root_id is null`, "102")
	w.watched(every)
	w.is("taken in the end", `select string_agg(id::text, ' ') from tasks where root_id is not null`, "1")
}

func TestALandingWhoseWorkIsOfferedIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.landing, w.offered = true, true
	w.exec(`update tasks set stage = 'deploy'`)
	w.exec(`update jobs set kind = 'merge', lane = 'merge', args = jsonb_set(args, '{stage}', '"deploy"')`)
	w.watched(after + every)
	w.bound(false)
	w.is("its jobs", `select string_agg(kind || ' ' || state::text || coalesce(' ' || error_code, ''), ', ' order by id) from jobs`,
		"merge cancelled host_dead, merge queued")
	w.is("its place", `select stage || ' ' || round from tasks`, "deploy 1")
}

func TestAfterAnOutageOfTheDatabaseTheCountBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched(after)
	w.now += every
	away, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.hosts.Pass(away); err == nil {
		t.Fatal("the pass went through")
	}
	w.watched(after)
	w.bound(true)
	w.watched(every)
	w.bound(false)
}

// Nobody else can clean up there: the job would wait for ever, and with it whatever looks at how old the queue is.
func TestCleanUpForADeadHostIsLeftToItsReturn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ change, runs string }{
		"an ended task":  {`update tasks set state = 'cancelled', finished_at = now()`, "orphaned true"},
		"a blocked task": {`update tasks set state = 'blocked', reason_code = 'stuck'`, " false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.exec(tt.change)
			w.exec(`update jobs set kind = 'retire', lane = 'system', dedupe_key = 'retire:' || task_id`)
			w.watched(after)
			w.is("its clean-up while the host may come back", `select state::text from jobs`, "queued")
			w.watched(2 * every)
			w.is("its clean-up", `select state || ' ' || error_code from jobs`, "cancelled host_dead")
			w.is("its run", `select coalesce(outcome, '') || ' ' || (consumed_at is not null) from runs`, tt.runs)
			w.is("its history", `select string_agg(kind || coalesce(' ' || (data->>'code'), ''), ', ' order by id) from task_events`, "created, retire_failed host_dead")
			w.bound(true)
		})
	}
}
