package queuetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
)

// Bench is a queue with one registered worker, for the tests of what is beside the queue.
type Bench struct {
	T    *testing.T
	Pool *pgxpool.Pool
	Q    *queue.Queue
	W    queue.Worker
}

// NewBench makes a Bench on a pool.
func NewBench(t *testing.T, pool *pgxpool.Pool) *Bench {
	t.Helper()
	b := &Bench{T: t, Pool: pool, Q: queue.New(pool, queue.Config{}), W: Worker(Root(t, pool))}
	b.Register(b.W)
	return b
}

// Register registers a worker until the test ends.
func (b *Bench) Register(w queue.Worker) {
	b.T.Helper()
	b.No(b.Q.RegisterWorker(b.T.Context(), w))
	b.T.Cleanup(func() { _ = b.Q.WorkerStopped(context.WithoutCancel(b.T.Context()), w) })
}

// No fails the test on an error.
func (b *Bench) No(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

// Is fails the test unless the error is the wanted one.
func (b *Bench) Is(err, want error) {
	b.T.Helper()
	if !errors.Is(err, want) {
		b.T.Fatalf("got error %v, want %v", err, want)
	}
}

// Exec runs a statement.
func (b *Bench) Exec(sql string, args ...any) {
	b.T.Helper()
	_, err := b.Pool.Exec(b.T.Context(), sql, args...)
	b.No(err)
}

// Count reads a number.
func (b *Bench) Count(sql string, args ...any) (n int) {
	b.T.Helper()
	b.No(b.Pool.QueryRow(b.T.Context(), sql, args...).Scan(&n))
	return n
}

// Enqueue queues a job, of the kind work in the lane "lane" unless it says otherwise.
func (b *Bench) Enqueue(in queue.Insert) int64 {
	b.T.Helper()
	if in.Kind == "" {
		in.Kind = "work"
	}
	if in.Lane == "" {
		in.Lane = "lane"
	}
	out, err := b.Q.Enqueue(b.T.Context(), in)
	b.No(err)
	return out.ID
}

// Claim claims jobs of the lane "lane", which may be of these repositories.
func (b *Bench) Claim(w queue.Worker, limit int, repos ...string) []*queue.Lease {
	b.T.Helper()
	leases, err := b.Q.Claim(b.T.Context(), queue.ClaimRequest{
		Worker: w, Lane: "lane", Kinds: []string{"work", "other"}, Repos: repos, Limit: limit,
	})
	b.No(err)
	return leases
}

// One claims the only job that is due.
func (b *Bench) One(w queue.Worker) *queue.Lease {
	b.T.Helper()
	leases := b.Claim(w, 10)
	if len(leases) != 1 {
		b.T.Fatalf("claimed %d jobs, want 1", len(leases))
	}
	return leases[0]
}

// Running enqueues a job and claims it.
func (b *Bench) Running(in queue.Insert) *queue.Lease {
	b.T.Helper()
	b.Enqueue(in)
	return b.One(b.W)
}

// Tx runs fn under a lease.
func (b *Bench) Tx(l *queue.Lease, fn func(pgx.Tx) error) error {
	b.T.Helper()
	return l.Tx(b.T.Context(), fn)
}

// Complete ends a job as succeeded.
func (b *Bench) Complete(l *queue.Lease) {
	b.T.Helper()
	b.No(b.Tx(l, func(tx pgx.Tx) error { return l.CompleteTx(b.T.Context(), tx) }))
}

// Release gives a job back.
func (b *Bench) Release(l *queue.Lease, r queue.Release) {
	b.T.Helper()
	b.No(b.Tx(l, func(tx pgx.Tx) error { return l.ReleaseTx(b.T.Context(), tx, r) }))
}

// Get reads a job.
func (b *Bench) Get(id int64) queue.Job {
	b.T.Helper()
	job, err := b.Q.Get(b.T.Context(), id)
	b.No(err)
	return job
}

// Listen returns what waits for the next notification of some channels: without any, that a lane has a job.
func (b *Bench) Listen(channels ...string) (next func() *pgconn.Notification) {
	b.T.Helper()
	conn, err := pgx.ConnectConfig(b.T.Context(), b.Pool.Config().ConnConfig)
	b.No(err)
	b.T.Cleanup(func() { _ = conn.Close(context.WithoutCancel(b.T.Context())) })
	if len(channels) == 0 {
		channels = []string{queue.ChannelJobs}
	}
	for _, channel := range channels {
		_, err = conn.Exec(b.T.Context(), "listen "+channel)
		b.No(err)
	}
	return func() *pgconn.Notification {
		b.T.Helper()
		ctx, cancel := context.WithTimeout(b.T.Context(), patience)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		b.No(err)
		return n
	}
}

// IDs are those of the jobs under these leases.
func IDs(leases []*queue.Lease) []int64 {
	out := make([]int64, 0, len(leases))
	for _, l := range leases {
		out = append(out, l.Job().ID)
	}
	return out
}

// Equal fails the test unless two values are the same.
func Equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// Within fails the test unless a time lies between two.
func Within(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Fatalf("%s: %s isn't between %s and %s", what, got, low, high)
	}
}
