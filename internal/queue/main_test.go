package queue_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is the queue's, with a configuration of the test's.
type bench struct{ *queuetest.Bench }

func newBench(t *testing.T, cfg queue.Config) *bench {
	t.Helper()
	pool := testdb.New(t)
	return benchOn(t, pool, pool, queuetest.Root(t, pool), cfg)
}

// benchOn makes a bench whose queue reaches the database on a way of its own.
func benchOn(t *testing.T, pool, queues *pgxpool.Pool, root uuid.UUID, cfg queue.Config) *bench {
	t.Helper()
	b := &bench{&queuetest.Bench{T: t, Pool: pool, Q: queue.New(queues, cfg)}}
	b.W = b.worker(root)
	return b
}

func (b *bench) worker(root uuid.UUID) queue.Worker {
	b.T.Helper()
	w := queuetest.Worker(root)
	b.Register(w)
	return w
}

func (b *bench) complete(l *queue.Lease) error {
	return b.Tx(l, func(tx pgx.Tx) error { return l.CompleteTx(b.T.Context(), tx) })
}

func (b *bench) release(l *queue.Lease, r queue.Release) error {
	return b.Tx(l, func(tx pgx.Tx) error { return l.ReleaseTx(b.T.Context(), tx, r) })
}

func (b *bench) state(id int64, want queue.State) queue.Job {
	b.T.Helper()
	job := b.Get(id)
	if job.State != want {
		b.T.Fatalf("job %d is %s, want %s", id, job.State, want)
	}
	return job
}
