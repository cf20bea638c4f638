package worker_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/testdb"
)

// 20,000 keys of another kind stand in the lane, and a crowd waits for a busy key: the poll, an hour away, isn't needed
// to reach the one job whose key is free.
func TestFreeKeyBehindManyKeysIsReachedWithoutAPoll(t *testing.T) {
	t.Parallel()
	_, busy := block()
	b := newBench(t, handlers{"busy": busy, "work": fn(func(context.Context, *queue.Lease) error { return nil })})
	b.start()
	b.listen()
	b.until(b.add(queue.Insert{Kind: "busy", ConcurrencyKey: "busy"}), queue.StateRunning)
	for _, sql := range []string{
		`insert into jobs (kind, lane, max_attempts, concurrency_key) select 'unhandled', 'lane', 3, 'k' || n from generate_series(1, 20000) n`,
		`insert into jobs (kind, lane, max_attempts, concurrency_key, run_at) select 'work', 'lane', 3, 'busy', now() - interval '1 hour' from generate_series(1, 600) n`,
	} {
		_, err := b.pool.Exec(t.Context(), sql)
		b.no(err)
	}
	b.until(b.add(queue.Insert{Kind: "work", ConcurrencyKey: "z free"}), queue.StateSucceeded)
	b.w.HurryUp()
}

// While claims go by marks, since a reader's snapshot keeps dead rows in their way, a notified job of a new level is found
// by the next look at everything, which an idle lane takes too.
func TestNotifiedJobIsFoundWithoutAPollWhileClaimsGoByMarks(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"work": fn(func(context.Context, *queue.Lease) error { return nil })})
	_, err := b.pool.Exec(t.Context(), `insert into jobs (kind, lane, max_attempts, run_at)
		select 'work', 'lane', 3, now() - interval '1 hour' from generate_series(1, 50000)`)
	b.no(err)
	reader, err := pgx.ConnectConfig(t.Context(), testdb.ConnConfig(b.pool))
	b.no(err)
	defer func() { _ = reader.Close(context.WithoutCancel(t.Context())) }()
	_, err = reader.Exec(t.Context(), `begin isolation level repeatable read; select count(*) from jobs`)
	b.no(err)
	_, err = b.pool.Exec(t.Context(), `update jobs set state = 'succeeded', finished_at = now() where state = 'queued'`)
	b.no(err)
	b.start()
	b.listen()
	b.until(b.add(queue.Insert{Kind: "work"}), queue.StateSucceeded)
	b.until(b.add(queue.Insert{Kind: "work", Priority: 5}), queue.StateSucceeded)
}

// A handler has a network and deadlines of its own: when they fail, the attempt is spent.
func TestNetworkOfAHandlerIsNotTheDatabases(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context) error{
		"connection refused": func(ctx context.Context) error {
			_, err := (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:1")
			return fmt.Errorf("ask the forge: %w", err)
		},
		"own deadline": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Nanosecond)
			defer cancel()
			<-ctx.Done()
			return fmt.Errorf("ask the forge: %w", ctx.Err())
		},
		"end of an answer": func(context.Context) error { return fmt.Errorf("decode the answer: %w", io.EOF) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, handlers{"work": fn(func(ctx context.Context, _ *queue.Lease) error { return fail(ctx) })},
				func(b *bench) {
					b.q = queue.New(b.pool, queue.Config{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
					b.cfg.Queue, b.cfg.Poll = b.q, 50*time.Millisecond
				}).start()
			id := b.add(queue.Insert{Kind: "work", MaxAttempts: 3})
			b.until(id, queue.StateFailed)
			equal(t, "attempt", b.get(id).Attempt, 3)
		})
	}
}
