package worker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

var errStop = errors.New("stop")

// It is beaten until then.
func TestStopLetsTheRunningJobFinishAndClaimsNothingMore(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-l.Stopping()
		<-goOn
		return ctx.Err()
	})}, func(b *bench) { b.cfg.Lanes["lane"] = 1 }).start()
	first := b.add(queue.Insert{Kind: "k"})
	lease := queuetest.Wait(t, "begin", began)
	second := b.add(queue.Insert{Kind: "k"})
	b.stop(errStop)
	queuetest.Wait(t, "first stop signal", lease.Stopping())
	equal(t, "lost", lease.Lost(), false)
	_, err := b.pool.Exec(t.Context(), `update jobs set lease_expires_at = now() where id = $1`, first)
	b.no(err)
	b.w.BeatNow()
	queuetest.Until(t, "beaten during the stop", func() bool { return b.get(first).LeaseExpiresAt.After(time.Now().Add(30 * time.Second)) })
	close(goOn)
	b.finish()
	equal(t, "state", b.get(first).State, queue.StateSucceeded)
	equal(t, "next", b.get(second).State, queue.StateQueued)
	equal(t, "stats", b.w.Stats(), worker.Stats{Claimed: 1, Succeeded: 1})
	var stopped bool
	b.no(b.pool.QueryRow(t.Context(), `select stopped_at is not null from workers where id = $1`, b.cfg.Worker.ID).Scan(&stopped))
	equal(t, "worker's row", stopped, true)
}

func TestHandlerThatLetsGoAtTheFirstSignalIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	began := make(chan *queue.Lease, 1)
	b := newBench(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-l.Stopping()
		return queue.ErrStopping
	})}, func(b *bench) { b.cfg.StopGrace = time.Hour }).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	b.stop(errStop)
	b.finish()
	job := b.get(id)
	equal(t, "state", job.State, queue.StateQueued)
	equal(t, "attempt", job.Attempt, 0)
	equal(t, "due", job.RunAt.Before(time.Now().Add(time.Minute)), true)
}

// Past the grace a job is lost first, then told, then released; Run returns without its handler, whose later writes
// are refused.
func TestJobPastTheDeadlineIsReleasedReclaimedOnceAndItsHandlersWriteRefused(t *testing.T) {
	t.Parallel()
	began, causes, goOn, returned := make(chan *queue.Lease, 1), make(chan error, 1), make(chan struct{}), make(chan error, 1)
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-ctx.Done()
		causes <- context.Cause(ctx)
		equal(t, "lost before it is told", l.Lost(), true)
		<-goOn // it never minds
		ctx = context.WithoutCancel(ctx)
		returned <- l.Tx(ctx, func(tx pgx.Tx) error { return l.CompleteTx(ctx, tx) })
		return nil
	})}, func(b *bench) { b.cfg.StopGrace = 50 * time.Millisecond }).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	b.stop(errStop)
	b.finish()
	equal(t, "cause", queuetest.Wait(t, "cause", causes), queue.ErrStopping)
	job := b.get(id)
	equal(t, "state", job.State, queue.StateQueued)
	equal(t, "attempt", job.Attempt, 0)
	equal(t, "epoch", job.Epoch, 1)

	// Claimed again by another, exactly once.
	other := queuetest.Worker(b.cfg.Worker.RootID)
	req := queue.ClaimRequest{Worker: other, Lane: "lane", Kinds: []string{"k"}, Limit: 10}
	leases, err := b.q.Claim(t.Context(), req)
	b.no(err)
	equal(t, "claimed", len(leases), 1)
	close(goOn)
	if err := queuetest.Wait(t, "write", returned); !errors.Is(err, queue.ErrLeaseLost) && !errors.Is(err, queue.ErrEnded) {
		t.Fatalf("the abandoned handler's write: %v", err)
	}
	equal(t, "state", b.get(id).State, queue.StateRunning)
	equal(t, "stats", b.w.Stats(), worker.Stats{Claimed: 1, Released: 1})
}

// Its end is never recorded, whatever its handler does then. The row stays as it is until somebody finds the worker dead,
// and no attempt is spent.
func TestFailedReleaseStillAbandonsTheRun(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	for name, then := range map[string]func() error{
		"handler returns early":    func() error { return nil },
		"handler returns a loss":   func() error { return queue.ErrLeaseLost },
		"handler fails":            func() error { return errors.New("interrupted") },
		"handler fails for good":   func() error { return queue.Terminal("interrupted", nil) },
		"handler panics":           func() error { panic("interrupted") },
		"handler returns too late": func() error { <-goOn; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, returned := make(chan *queue.Lease, 1), make(chan struct{})
			b, proxy := proxied(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
				began <- l
				<-ctx.Done()
				defer close(returned)
				return then()
			})})
			b.start()
			id := b.add(queue.Insert{Kind: "k"})
			queuetest.Wait(t, "begin", began)
			proxy.Set(queuetest.Refuse, "")
			b.stop(errStop)
			b.w.HurryUp()
			b.finish()
			proxy.Set(queuetest.Pass, "")
			if name == "handler returns too late" {
				close(goOn)
			}
			queuetest.Wait(t, "the handler's end", returned)
			equal(t, "state", b.get(id).State, queue.StateRunning)
			equal(t, "stats", b.w.Stats(), worker.Stats{Claimed: 1, Errors: b.w.Stats().Errors})
			// The next process of this root finds its predecessor dead.
			jobs, err := queuetest.TakeHeld(t.Context(), b.pool, queue.New(b.pool, queue.Config{}), b.cfg.Worker.ID)
			b.no(err)
			equal(t, "released", len(jobs), 1)
			equal(t, "state", b.get(id).State, queue.StateQueued)
			equal(t, "attempt", b.get(id).Attempt, 0)
		})
	}
}

func TestSecondSignalEndsTheGrace(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b := newBench(t, handlers{"k": handler}, func(b *bench) { b.cfg.StopGrace = time.Hour }).start()
	b.w.HurryWithin(time.Minute)
	id := b.add(queue.Insert{Kind: "k"})
	lease := queuetest.Wait(t, "begin", began)
	b.stop(errStop)
	queuetest.Wait(t, "first stop signal", lease.Stopping())
	b.w.HurryUp()
	b.w.HurryUp()
	b.finish()
	equal(t, "state", b.get(id).State, queue.StateQueued)
}

func TestJobWhoseClaimReturnsAfterTheStopIsReleasedWithoutStarting(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b := newBench(t, handlers{"k": handler}).start()
	queuetest.Until(t, "started", func() bool { return b.log.count("worker started") == 1 })
	tx, err := b.pool.Begin(t.Context())
	b.no(err)
	_, err = tx.Exec(t.Context(), `lock table jobs in access exclusive mode`)
	b.no(err)
	var id int64
	b.no(tx.QueryRow(t.Context(), `insert into jobs (kind, lane, max_attempts) values ('k', 'lane', 1) returning id`).Scan(&id))
	b.w.Wake("")
	queuetest.Until(t, "the claim waits", func() (waits bool) {
		b.no(tx.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits))
		return waits
	})
	b.stop(errStop)
	queuetest.Until(t, "stopping", func() bool { return b.log.count("worker stopping") == 1 })
	b.no(tx.Commit(t.Context()))
	b.finish()
	job := b.get(id)
	equal(t, "state", job.State, queue.StateQueued)
	equal(t, "attempt", job.Attempt, 0)
	equal(t, "began", len(began), 0)
	equal(t, "claimed means released", b.w.Stats().Claimed, b.w.Stats().Released)
}

// A job that begins is told of the stop: were one begun beside the stop's list of those that have, it would never be, and
// the stop would wait for it for an hour.
func TestBeginIsAtomicWithTheStop(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	hs := handlers{"k": fn(func(_ context.Context, l *queue.Lease) error { <-l.Stopping(); return queue.ErrStopping })}
	b := benchOn(t, pool, pool, hs)
	for range 20 {
		b.add(queue.Insert{Kind: "k", MaxAttempts: 1})
	}
	for range 25 {
		once := benchOn(t, pool, pool, hs, func(b *bench) { b.cfg.Lanes["lane"], b.cfg.StopGrace = 20, time.Hour }).start()
		moment := rand.Int64N(6)
		queuetest.Until(t, "some are claimed", func() bool { return once.w.Stats().Claimed >= moment })
		once.stop(errStop)
		once.finish()
		stats := once.w.Stats()
		equal(t, "given back", stats.Released, stats.Claimed)
	}
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "queued", census.Counts[queue.StateQueued], 20)
}

// Workers that start and stop while jobs come: each job runs, none twice at a time, none is left behind.
func TestWorkersThatStartAndStopLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	var mu sync.Mutex
	running, runs := map[int64]bool{}, map[int64]int{}
	handler := fn(func(ctx context.Context, l *queue.Lease) error {
		id := l.Job().ID
		mu.Lock()
		twice := running[id]
		running[id] = true
		mu.Unlock()
		if twice {
			t.Errorf("job %d runs twice", id)
		}
		err := l.Check(ctx)
		mu.Lock()
		running[id] = false
		runs[id]++
		mu.Unlock()
		return err
	})
	const jobs = 60
	b := benchOn(t, pool, pool, handlers{"k": handler})
	for n := range jobs {
		b.add(queue.Insert{Kind: "k", MaxAttempts: 1})
		if n%3 > 0 {
			continue
		}
		once := benchOn(t, pool, pool, handlers{"k": handler}).start()
		once.w.Wake("")
		once.stop(errStop)
		once.finish()
	}
	last := benchOn(t, pool, pool, handlers{"k": handler}).start()
	queuetest.Until(t, "all done", func() bool {
		last.w.Wake("")
		census, err := overview.NewReader(b.pool).Census(t.Context())
		b.no(err)
		return census.Counts[queue.StateSucceeded] == jobs
	})
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "left", census.Counts[queue.StateQueued]+census.Counts[queue.StateRunning]+census.Counts[queue.StateFailed], 0)
}
