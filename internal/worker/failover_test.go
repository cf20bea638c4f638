package worker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

// busy is a worker that does real work in leases' transactions, on a database that is about to be disturbed.
type busy struct {
	*bench
	began chan struct{} // one for each job that began
	goOn  chan struct{} // closed when jobs may finish
}

const busySlots = 32 // that are filled, of one more

// newBusy makes one. Each job writes when it begins and waits. Then a third of them just returns, a third writes once more
// before, and a third ends in the transaction of that write.
func newBusy(t *testing.T, direct, pool *pgxpool.Pool) *busy {
	t.Helper()
	watch(t, direct)
	b := &busy{began: make(chan struct{}, 1000), goOn: make(chan struct{})}
	b.bench = benchOn(t, direct, pool, handlers{"k": fn(b.work)}, func(b *bench) {
		b.q = queue.New(pool, queue.Config{LeaseTTL: 15 * time.Second, QueryTimeout: 5 * time.Second, BackoffBase: time.Millisecond})
		b.cfg.Queue, b.cfg.Lanes["lane"] = b.q, busySlots+1
		b.cfg.Poll, b.cfg.Heartbeat = 100*time.Millisecond, 200*time.Millisecond
	})
	return b
}

func (b *busy) work(ctx context.Context, l *queue.Lease) error {
	if err := noted(ctx, l, "begin"); err != nil {
		return err
	}
	b.began <- struct{}{}
	select {
	case <-b.goOn:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch l.Job().ID % 3 {
	case 0:
		return nil
	case 1:
		return noted(ctx, l, "last")
	}
	return l.Tx(ctx, func(tx pgx.Tx) error {
		return errors.Join(note(ctx, tx, l, "end"), l.CompleteTx(ctx, tx))
	})
}

func (b *busy) queue(jobs int) {
	b.t.Helper()
	for range jobs {
		b.add(queue.Insert{Kind: "k", MaxAttempts: 100})
	}
}

// full waits until all slots have begun.
func (b *busy) full() {
	b.t.Helper()
	for range busySlots {
		queuetest.Wait(b.t, "begin", b.began)
	}
}

// ended waits until all jobs have, and asks the witness.
func (b *busy) ended() {
	b.t.Helper()
	b.idle()
	judge(b.t, b.pool)
	census, err := overview.NewReader(b.pool).Census(b.t.Context())
	b.no(err)
	equal(b.t, "failed", census.Counts[queue.StateFailed], 0)
	// The worker is still there.
	b.until(b.add(queue.Insert{Kind: "k"}), queue.StateSucceeded)
	b.t.Log(tally(b.t, b.pool))
}

func (b *busy) idle() {
	b.t.Helper()
	queuetest.Until(b.t, "all jobs ended", func() bool {
		census, err := overview.NewReader(b.pool).Census(b.t.Context())
		return err == nil && census.Counts[queue.StateQueued]+census.Counts[queue.StateRunning] == 0
	})
}

func TestRestartOfPostgreSQLUnderLoadLosesNothingAndDoesNothingTwice(t *testing.T) {
	t.Parallel()
	for how, again := range map[string]func(*server){"restart": (*server).restart, "crash": (*server).crash} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b := newBusy(t, s.pool, s.open(busySlots+4))
			b.queue(3 * busySlots)
			b.start()
			b.full()
			again(s) // in the middle of 32 jobs
			s.answers("again")
			close(b.goOn)
			b.ended()
		})
	}
}

// The server goes while the jobs finish: their ends are written when it is back.
func TestJobsThatFinishWhilePostgreSQLIsDownAreRecordedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := newBusy(t, s.pool, s.open(busySlots+4))
	b.queue(busySlots)
	b.start()
	b.full()
	s.no(s.pg.Stop(t.Context()))
	close(b.goOn)
	queuetest.Until(t, "tries in vain", func() bool { return b.w.Stats().Errors >= busySlots })
	s.start()
	s.answers("again")
	b.ended()
	var again int // begun anew, although it only had to be recorded
	s.no(s.pool.QueryRow(t.Context(), `select count(*) from jobs where id % 3 = 0 and epoch > 1`).Scan(&again))
	equal(t, "done again", again, 0)
}

func TestServerThatTurnsReadOnlyIsLeftAndFoundAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := newBusy(t, s.pool, s.open(busySlots+4))
	b.queue(busySlots)
	b.start()
	b.full()
	s.exec(`alter system set default_transaction_read_only = on`, `select pg_reload_conf()`,
		`insert into jobs (kind, lane, max_attempts) values ('k', 'lane', 100)`) // for the free slot
	close(b.goOn)
	for _, call := range []string{"claim", "beat", "end"} {
		queuetest.Until(t, call+" refused", func() bool { return b.log.count("call="+call+" error_code=database_read_only") >= 1 })
	}
	s.exec(`alter system reset default_transaction_read_only`, `select pg_reload_conf()`)
	s.answers("writes again")
	b.ended()
}

// Handlers that hold every connection of the pool stop neither the beats nor each other for good.
func TestPoolThatHandlersExhaustStopsNoBeat(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	small := smallPool(t, pool, 2)
	watch(t, pool)
	held, goOn := make(chan *queue.Lease, 2), make(chan struct{})
	b := benchOn(t, pool, small, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		conn, err := small.Acquire(ctx)
		if err != nil {
			return err
		}
		held <- l
		<-goOn
		conn.Release()
		return noted(ctx, l, "last")
	})}).start()
	first, second := b.add(queue.Insert{Kind: "k"}), b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "first", held)
	queuetest.Wait(t, "second", held)
	equal(t, "free connections", small.Stat().MaxConns()-small.Stat().AcquiredConns(), 0)
	_, err := pool.Exec(t.Context(), `update jobs set lease_expires_at = clock_timestamp()`)
	b.no(err)
	b.w.BeatNow()
	queuetest.Until(t, "beaten", func() bool {
		return b.get(first).LeaseExpiresAt.After(*b.get(first).StartedAt) && b.get(second).LeaseExpiresAt.After(*b.get(second).StartedAt)
	})
	close(goOn)
	b.until(first, queue.StateSucceeded)
	b.until(second, queue.StateSucceeded)
	judge(t, pool)
}

func smallPool(t *testing.T, pool *pgxpool.Pool, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig("sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig, cfg.MaxConns = testdb.ConnConfig(pool), conns
	small, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	return small
}

func TestConnectionsThatAreEndedAtRandomLoseNothingAndDoNothingTwice(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	victim := testdb.ConnConfig(pool)
	victim.RuntimeParams["application_name"] = "victim"
	b := newBusy(t, pool, queuetest.Pool(t, victim))
	close(b.goOn)
	b.start()
	for range 40 {
		b.queue(rand.IntN(10))
		_, err := pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name = 'victim' and random() < 0.5`)
		b.no(err)
	}
	b.ended()
	equal(t, "disturbed", b.w.Stats().Errors > 0, true)
}

// Whatever one handler does, the others and the worker go on.
func TestHandlersThatBreakHarmNobodyElse(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	watch(t, pool)
	never := make(chan struct{})
	b := benchOn(t, pool, pool, handlers{
		"good":   fn(func(ctx context.Context, l *queue.Lease) error { return noted(ctx, l, "last") }),
		"panic":  fn(func(context.Context, *queue.Lease) error { panic("broken") }),
		"goexit": fn(func(context.Context, *queue.Lease) error { runtime.Goexit(); return nil }),
		"in tx": fn(func(ctx context.Context, l *queue.Lease) error {
			return l.Tx(ctx, func(tx pgx.Tx) error { _ = note(ctx, tx, l, "last"); panic("broken in a transaction") })
		}),
		"exit in tx": fn(func(ctx context.Context, l *queue.Lease) error {
			return l.Tx(ctx, func(tx pgx.Tx) error { _ = note(ctx, tx, l, "last"); runtime.Goexit(); return nil })
		}),
		"never returns": fn(func(context.Context, *queue.Lease) error { <-never; return nil }),
	}, func(b *bench) { b.cfg.Lanes["lane"] = 4; b.cfg.StopGrace = 50 * time.Millisecond }).start()
	stuck := b.add(queue.Insert{Kind: "never returns"})
	for range 10 {
		for _, kind := range []string{"good", "panic", "goexit", "in tx", "exit in tx"} {
			b.add(queue.Insert{Kind: kind, MaxAttempts: 1})
		}
	}
	b.stats(worker.Stats{Claimed: 51, Succeeded: 10, Failed: 40})
	var rows int
	b.no(pool.QueryRow(t.Context(), `select count(*) from work`).Scan(&rows))
	equal(t, "writes kept", rows, 10)
	b.stop(errStop)
	b.finish() // without the one that never returns
	close(never)
	job := b.get(stuck)
	equal(t, "state", job.State, queue.StateQueued)
	equal(t, "attempt", job.Attempt, 0)
}
