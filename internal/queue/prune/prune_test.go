package prune_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/prune"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t    *testing.T
	pool *pgxpool.Pool
	q    *queue.Queue
	w    queue.Worker
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pool := testdb.New(t)
	b := &bench{t: t, pool: pool, q: queue.New(pool, queue.Config{})}
	b.w = queuetest.Worker(queuetest.Root(t, pool))
	b.no(b.q.RegisterWorker(t.Context(), b.w))
	t.Cleanup(func() { _ = b.q.WorkerStopped(context.WithoutCancel(t.Context()), b.w) })
	return b
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	b.no(err)
}

func (b *bench) text(sql string) (s string) {
	b.t.Helper()
	b.no(b.pool.QueryRow(b.t.Context(), sql).Scan(&s))
	return s
}

// running queues a prune and claims it.
func (b *bench) running() *queue.Lease {
	b.t.Helper()
	_, err := b.q.Enqueue(b.t.Context(), prune.Insert())
	b.no(err)
	leases, err := b.q.Claim(b.t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "system", Kinds: []string{prune.Kind}, Limit: 2})
	b.no(err)
	if len(leases) != 1 {
		b.t.Fatalf("claimed %d", len(leases))
	}
	return leases[0]
}

// finished makes jobs that ended that long ago.
func (b *bench) finished(state, ago string, n int) {
	b.t.Helper()
	b.exec(`insert into jobs (kind, lane, max_attempts, state, finished_at, error)
		select $1, 'old', 1, $2::job_state, now() - $3::interval - n * interval '1 ms', 'why' from generate_series(1, $4::int) n`,
		state+" "+ago, state, ago, n)
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

const kinds = `select coalesce(string_agg(kind || ' ' || n, ', ' order by kind), '') from (select kind, count(*) as n from jobs where lane = 'old' group by kind) k`

// steps records the progress after each batch.
func (b *bench) steps() func() string {
	b.t.Helper()
	b.exec(`create table steps (n bigint generated always as identity, progress jsonb);
		create function note() returns trigger language plpgsql as $$ begin insert into steps (progress) values (new.progress); return new; end $$;
		create trigger note after update of progress on jobs for each row execute function note()`)
	return func() string {
		b.t.Helper()
		return b.text(`select coalesce(string_agg(progress->>'deleted', ' ' order by n), '') from steps`)
	}
}

func TestPruneDeletesOnlyOldSucceededAndCancelledJobs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	steps := b.steps()
	for _, state := range []string{"succeeded", "cancelled", "failed"} {
		b.finished(state, "8 days", 25)
		b.finished(state, "6 days", 3)
	}
	b.exec(`insert into jobs (kind, lane, max_attempts, run_at, created_at) values ('queued', 'old', 1, now() - interval '1 year', now() - interval '1 year')`)
	b.exec(`insert into jobs (kind, lane, max_attempts, state, worker_id, epoch, lease_expires_at, started_at)
		values ('running', 'old', 1, 'running', gen_random_uuid(), 1, now(), now() - interval '1 year')`)
	b.exec(`insert into job_totals values ('succeeded 8 days', 'succeeded', 0, 25)`)
	lease := b.running()
	var log strings.Builder
	h := prune.New(prune.Config{Queue: b.q, Batch: 10, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b.no(h.Run(t.Context(), lease))
	equal(t, "left", b.text(kinds), "cancelled 6 days 3, failed 6 days 3, failed 8 days 25, queued 1, running 1, succeeded 6 days 3")
	equal(t, "progress after every batch", steps(), "10 20 30 40 50 50")
	equal(t, "log", strings.Contains(log.String(), "deleted=50"), true)
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "total", census.Counts[queue.StateSucceeded], 25)
}

// Shorter than one batch, and with nothing to delete, it still says so.
func TestPruneReportsWhenTheFirstBatchIsTheLast(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	steps := b.steps()
	b.finished("succeeded", "8 days", 3)
	lease := b.running()
	h := prune.New(prune.Config{Queue: b.q})
	b.no(h.Run(t.Context(), lease))
	equal(t, "progress", steps(), "3")
	b.no(h.Run(t.Context(), lease))
	equal(t, "progress", steps(), "3 0")
	job, err := b.q.Get(t.Context(), lease.Job().ID)
	b.no(err)
	equal(t, "in the row", string(job.Progress), `{"deleted": 0}`)
	_, err = b.q.Beat(t.Context(), b.w, []*queue.Lease{lease})
	b.no(err)
	equal(t, "a beat carries the same", steps(), "3 0 0")
}

func TestPruneAfterIsItsSetting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.finished("succeeded", "2 minutes", 1)
	b.finished("succeeded", "0 minutes", 1)
	b.no(prune.New(prune.Config{Queue: b.q, After: time.Minute}).Run(t.Context(), b.running()))
	equal(t, "left", b.text(kinds), "succeeded 0 minutes 1")
}

// The lease is somebody else's after the first batch: that one is kept, and nothing more is deleted.
func TestPruneIsFencedBatchByBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.finished("succeeded", "8 days", 5)
	lease := b.running()
	b.exec(fmt.Sprintf(`create function steal() returns trigger language plpgsql as $$ begin new.epoch = new.epoch + 1; return new; end $$;
		create trigger steal before update of progress on jobs for each row when (new.id = %d) execute function steal()`, lease.Job().ID))
	err := prune.New(prune.Config{Queue: b.q, Batch: 2}).Run(t.Context(), lease)
	equal(t, "lost", errors.Is(err, queue.ErrLeaseLost), true)
	equal(t, "left", b.text(kinds), "succeeded 8 days 3")
}

func TestPruneStopsBetweenBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.finished("succeeded", "8 days", 5)
	h := prune.New(prune.Config{Queue: b.q, Batch: 2})
	lease := b.running()
	lease.BeginStop()
	equal(t, "stopping", errors.Is(h.Run(t.Context(), lease), queue.ErrStopping), true)
	equal(t, "left", b.text(kinds), "succeeded 8 days 3")
	b.no(lease.Release(t.Context(), queue.Release{}))

	lease = b.running()
	ctx, cancel := lease.Context(t.Context())
	defer cancel(nil)
	lease.RequestCancel()
	equal(t, "cancelled", errors.Is(h.Run(ctx, lease), queue.ErrCancelRequested), true)
}

// A job that somebody queues again at this moment stays.
func TestPruneLeavesAloneWhatIsLocked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.finished("cancelled", "8 days", 3)
	tx, err := b.pool.Begin(t.Context())
	b.no(err)
	var id int64
	b.no(tx.QueryRow(t.Context(), `select id from jobs where lane = 'old' order by finished_at limit 1 for update`).Scan(&id))
	b.no(prune.New(prune.Config{Queue: b.q}).Run(t.Context(), b.running()))
	_, err = queue.RequeueTx(t.Context(), tx, id)
	b.no(err)
	b.no(tx.Commit(t.Context()))
	equal(t, "left", b.text(kinds), "cancelled 8 days 1")
}

// Of the workers that stopped or fell silent long ago only those are kept that hold something, and the newest of each root.
func TestPruneForgetsWorkersThatAreLongGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	lonely := queuetest.Root(t, b.pool)
	for _, w := range []struct{ version, heartbeat, stopped string }{
		{"stopped", "9 days", "8 days"}, {"stopped later", "9 days", "6 days"}, {"silent", "8 days", ""}, {"quiet", "6 days", ""}, {"holds a job", "8 days", ""},
	} {
		b.exec(`insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes, heartbeat_at, stopped_at)
			values (gen_random_uuid(), $1, 'test', 'boot', 'ns', 1, 1, $2, '{}', now() - $3::interval, now() - nullif($4, '')::interval)`,
			b.w.RootID, w.version, w.heartbeat, w.stopped)
	}
	b.exec(`insert into jobs (kind, lane, max_attempts, state, worker_id, epoch, lease_expires_at, started_at)
		select 'running', 'old', 1, 'running', id, 1, now(), now() from workers where version = 'holds a job'`)
	for _, at := range []string{"20 days", "10 days"} {
		b.exec(`insert into workers (id, root_id, host, boot_id, pid_namespace, pid, pid_started_at, version, lanes, heartbeat_at)
			values (gen_random_uuid(), $1, 'test', 'boot', 'ns', 1, 1, 'root that is away for ' || $2, '{}', now() - $2::interval)`, lonely, at)
	}
	lease := b.running()
	b.no(prune.New(prune.Config{Queue: b.q, Batch: 1}).Run(t.Context(), lease))
	equal(t, "left", b.text(`select string_agg(version, ', ' order by version) from workers`),
		"holds a job, quiet, root that is away for 10 days, stopped later, test")

	// One that comes back after that is known again with its next beat.
	b.exec(`delete from workers where id = $1`, b.w.ID)
	_, err := b.q.Beat(t.Context(), b.w, []*queue.Lease{lease})
	b.no(err)
	equal(t, "again", b.text(`select string_agg(version || ' ' || (stopped_at is null), ', ') from workers where version = 'test'`), "test true")
}

func TestAnyNumberOfWorkersRunOnePrune(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, err := b.q.Enqueue(t.Context(), prune.Insert())
	b.no(err)
	again, err := b.q.Enqueue(t.Context(), prune.Insert())
	b.no(err)
	equal(t, "one is live", again.Duplicate && again.ID == first.ID, true)
	lease := b.running()
	again, err = b.q.Enqueue(t.Context(), prune.Insert())
	b.no(err)
	equal(t, "also while it runs", again.Duplicate && again.ID == lease.Job().ID, true)
	_, err = b.q.Enqueue(t.Context(), queue.Insert{Kind: prune.Kind, Lane: "system", ConcurrencyKey: prune.Insert().ConcurrencyKey})
	b.no(err)
	more, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "system", Kinds: []string{prune.Kind}, Limit: 2})
	b.no(err)
	equal(t, "singleton", len(more), 0)
}

// Of some kinds, such as alerts, a failed job of long ago is nothing that a person goes back to: its failure was told.
func TestPruneDeletesFailedJobsOfKindsThatNobodyMisses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	insert := func(kind, lane, ago string, n int) {
		b.exec(`insert into jobs (kind, lane, max_attempts, state, finished_at)
			select $1, $2, 1, 'failed', now() - $3::interval from generate_series(1, $4::int)`, kind, lane, ago, n)
	}
	insert("alert.telegram", "system", "8 days", 25)
	insert("alert.telegram", "system", "6 days", 3)
	insert("retire", "system", "8 days", 2)
	insert("stage", "agents", "8 days", 1)
	var log strings.Builder
	h := prune.New(prune.Config{Queue: b.q, Batch: 10, Failed: []string{"alert.telegram"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b.no(h.Run(t.Context(), b.running()))
	equal(t, "left", b.text(`select string_agg(kind || ' ' || n, ', ' order by kind) from (select kind, count(*) as n from jobs where state = 'failed' group by kind) k`),
		"alert.telegram 3, retire 2, stage 1")
	equal(t, "told once", strings.Count(log.String(), "failed jobs pruned"), 1)
	equal(t, "how many", strings.Contains(log.String(), "deleted=25"), true)
}
