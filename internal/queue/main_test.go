package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a queue with one registered worker.
type bench struct {
	t    *testing.T
	pool *pgxpool.Pool
	q    *queue.Queue
	w    queue.Worker
}

func newBench(t *testing.T, cfg queue.Config) *bench {
	t.Helper()
	pool := testdb.New(t)
	b := &bench{t: t, pool: pool, q: queue.New(pool, cfg)}
	b.w = b.worker(queuetest.Root(t, pool))
	return b
}

func (b *bench) worker(root uuid.UUID) queue.Worker {
	b.t.Helper()
	w := queuetest.Worker(root)
	b.no(b.q.RegisterWorker(b.t.Context(), w))
	b.t.Cleanup(func() { _ = b.q.WorkerStopped(context.WithoutCancel(b.t.Context()), w) })
	return w
}

func (b *bench) no(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) is(err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Fatalf("got error %v, want %v", err, want)
	}
}

func (b *bench) enqueue(in queue.Insert) int64 {
	b.t.Helper()
	if in.Kind == "" {
		in.Kind = "work"
	}
	if in.Lane == "" {
		in.Lane = "lane"
	}
	out, err := b.q.Enqueue(b.t.Context(), in)
	b.no(err)
	return out.ID
}

func (b *bench) claim(w queue.Worker, limit int) []*queue.Lease {
	b.t.Helper()
	leases, err := b.q.Claim(b.t.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work", "other"}, Limit: limit})
	b.no(err)
	return leases
}

// one claims the only job that is due.
func (b *bench) one(w queue.Worker) *queue.Lease {
	b.t.Helper()
	leases := b.claim(w, 10)
	if len(leases) != 1 {
		b.t.Fatalf("claimed %d jobs, want 1", len(leases))
	}
	return leases[0]
}

// running enqueues a job and claims it.
func (b *bench) running(in queue.Insert) *queue.Lease {
	b.t.Helper()
	b.enqueue(in)
	return b.one(b.w)
}

func (b *bench) tx(l *queue.Lease, fn func(pgx.Tx) error) error {
	b.t.Helper()
	return l.Tx(b.t.Context(), fn)
}

func (b *bench) complete(l *queue.Lease) error {
	return l.Tx(b.t.Context(), func(tx pgx.Tx) error { return l.CompleteTx(b.t.Context(), tx) })
}

func (b *bench) release(l *queue.Lease, r queue.Release) error {
	return l.Tx(b.t.Context(), func(tx pgx.Tx) error { return l.ReleaseTx(b.t.Context(), tx, r) })
}

func (b *bench) get(id int64) queue.Job {
	b.t.Helper()
	job, err := b.q.Get(b.t.Context(), id)
	b.no(err)
	return job
}

func (b *bench) state(id int64, want queue.State) queue.Job {
	b.t.Helper()
	job := b.get(id)
	if job.State != want {
		b.t.Fatalf("job %d is %s, want %s", id, job.State, want)
	}
	return job
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	b.no(err)
}

func ids(leases []*queue.Lease) []int64 {
	out := make([]int64, 0, len(leases))
	for _, l := range leases {
		out = append(out, l.Job().ID)
	}
	return out
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func within(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Fatalf("%s: %s isn't between %s and %s", what, got, low, high)
	}
}
