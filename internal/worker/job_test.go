package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/worker"
)

func TestWhatAHandlerReturnsDecidesHowItsJobEnds(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	type end struct {
		run     func(ctx context.Context, l *queue.Lease) error
		state   queue.State
		attempt int
		code    string
		phase   string
		stats   worker.Stats
	}
	returns := func(err error) func(context.Context, *queue.Lease) error {
		return func(context.Context, *queue.Lease) error { return err }
	}
	inTx := func(write func(ctx context.Context, l *queue.Lease, tx pgx.Tx) error, after error) func(context.Context, *queue.Lease) error {
		return func(ctx context.Context, l *queue.Lease) error {
			return errors.Join(l.Tx(ctx, func(tx pgx.Tx) error { return write(ctx, l, tx) }), after)
		}
	}
	for name, c := range map[string]end{
		"nil":       {run: returns(nil), state: "succeeded", attempt: 1, stats: worker.Stats{Succeeded: 1}},
		"error":     {run: returns(plain), state: "queued", attempt: 1, code: worker.CodeHandlerError, stats: worker.Stats{Retried: 1}},
		"failure":   {run: returns(queue.RetryAfter(time.Hour, "later", plain)), state: "queued", attempt: 1, code: "later", stats: worker.Stats{Retried: 1}},
		"wrapped":   {run: returns(fmt.Errorf("w: %w", queue.Terminal("no", plain))), state: "failed", attempt: 1, code: "no", stats: worker.Stats{Failed: 1}},
		"snooze":    {run: returns(&queue.SnoozeError{After: time.Hour, WaitingFor: "ci"}), state: "queued", phase: "ci", stats: worker.Stats{Released: 1}},
		"stopping":  {run: returns(fmt.Errorf("w: %w", queue.ErrStopping)), state: "queued", stats: worker.Stats{Released: 1}},
		"cancelled": {run: returns(queue.ErrCancelRequested), state: "cancelled", attempt: 1, stats: worker.Stats{Cancelled: 1}},
		"away":      {run: returns(fmt.Errorf("w: %w", &pgconn.PgError{Code: "57P01"})), state: "queued", phase: "database", stats: worker.Stats{Released: 1}},
		"database":  {run: returns(fmt.Errorf("w: %w", queue.ErrUnavailable)), state: "queued", phase: "database", stats: worker.Stats{Released: 1}},
		"panic":     {run: func(context.Context, *queue.Lease) error { panic("broken") }, state: "queued", attempt: 1, code: worker.CodePanic, stats: worker.Stats{Retried: 1}},
		"goexit":    {run: func(context.Context, *queue.Lease) error { runtime.Goexit(); return nil }, state: "queued", attempt: 1, code: worker.CodePanic, stats: worker.Stats{Retried: 1}},
		"args that don't decode fail this job alone": {
			run:   func(_ context.Context, l *queue.Lease) error { return l.Job().Decode(&struct{ X int }{}) },
			state: "failed", attempt: 1, code: queue.CodeBadArgs, stats: worker.Stats{Failed: 1},
		},
		"own end": {
			run:   inTx(func(ctx context.Context, l *queue.Lease, tx pgx.Tx) error { return l.CompleteTx(ctx, tx) }, plain),
			state: "succeeded", attempt: 1, stats: worker.Stats{Succeeded: 1},
		},
		"own release": {
			run: inTx(func(ctx context.Context, l *queue.Lease, tx pgx.Tx) error {
				return l.ReleaseTx(ctx, tx, queue.Release{After: time.Hour})
			}, nil),
			state: "queued", stats: worker.Stats{Released: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, handlers{"k": fn(c.run)}).start()
			id := b.add(queue.Insert{Kind: "k", Args: map[string]string{"poison": "yes"}})
			c.stats.Claimed = 1
			b.stats(c.stats)
			job := b.until(id, c.state)
			equal(t, "attempt", job.Attempt, c.attempt)
			equal(t, "code", text(job.ErrorCode), c.code)
			equal(t, "phase", text(job.Phase), c.phase)
			// The worker goes on.
			b.add(queue.Insert{Kind: "k"})
			queuetest.Until(t, "next job", func() bool { return b.w.Stats().Claimed == 2 })
		})
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { panic("all is lost") })}).start()
	b.add(queue.Insert{Kind: "k"})
	b.stats(worker.Stats{Claimed: 1, Retried: 1})
	equal(t, "logged", b.log.count("all is lost") >= 1 && b.log.count("job_test.go") >= 1, true)
}

// After some tries the reaper has to decide.
func TestEndThatAHookRefusesCostsItsJobOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return queue.Terminal("x", nil) })},
		func(b *bench) {
			b.cfg.Queue = queue.New(b.through, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error {
				panic("refused")
			}})
		}).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Until(t, "given up", func() bool { return b.log.count("job's end could not be written") == 1 })
	equal(t, "state", b.get(id).State, queue.StateRunning)
	b.w.BeatNow()
	queuetest.Until(t, "slot is free", func() bool { return b.w.Lanes()["lane"].Busy == 0 })
	equal(t, "not released as an orphan", b.get(id).State, queue.StateRunning)
}

func TestCancelOfARunningJobReachesItsHandlerWithTheBeat(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b := newBench(t, handlers{"k": handler}).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	_, err := b.q.Cancel(t.Context(), id)
	b.no(err)
	b.w.BeatNow()
	b.until(id, queue.StateCancelled)
	b.stats(worker.Stats{Claimed: 1, Cancelled: 1})
}

// A cancel that came while the job was queued with its run meets the handler at its begin.
func TestCancelOfAPinnedJobMeetsTheNextHandler(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b := newBench(t, handlers{"k": handler})
	id := b.add(queue.Insert{Kind: "k"})
	_, err := b.pool.Exec(t.Context(), `update jobs set run_id = gen_random_uuid(), pinned_root = $1`, b.cfg.Worker.RootID)
	b.no(err)
	_, err = b.q.Cancel(t.Context(), id)
	b.no(err)
	b.start()
	queuetest.Wait(t, "begin", began)
	b.until(id, queue.StateCancelled)
}

func TestLossReachesTheHandlerAndWhatItReturnsIsNotRecorded(t *testing.T) {
	t.Parallel()
	began := make(chan *queue.Lease, 1)
	causes := make(chan error, 1)
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	})}).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	_, err := b.pool.Exec(t.Context(), `update jobs set worker_id = gen_random_uuid(), epoch = epoch + 1`)
	b.no(err)
	b.w.BeatNow()
	equal(t, "cause", queuetest.Wait(t, "cause", causes), queue.ErrLeaseLost)
	b.stats(worker.Stats{Claimed: 1, Lost: 1})
	equal(t, "state", b.get(id).State, queue.StateRunning)
}

// Nobody can end it, so somebody has to be told.
func TestHandlerThatRunsOnUnderALostLeaseIsLoggedOnceAndKeepsItsSlot(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b := newBench(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})}).start()
	b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	_, err := b.pool.Exec(t.Context(), `update jobs set worker_id = gen_random_uuid(), epoch = epoch + 1`)
	b.no(err)
	for range 5 {
		before := b.beats()
		b.w.BeatNow()
		queuetest.Until(t, "a beat", func() bool { return b.beats() > before })
	}
	queuetest.Until(t, "logged", func() bool { return b.log.count("its slot stays taken") > 0 })
	equal(t, "logged", b.log.count("its slot stays taken"), 1)
	equal(t, "busy", b.w.Lanes()["lane"].Busy, 1)
	close(goOn)
	b.stats(worker.Stats{Claimed: 1, Lost: 1})
}

// beats is a number that each beat of the worker makes greater.
func (b *bench) beats() (at int64) {
	b.t.Helper()
	b.no(b.pool.QueryRow(b.t.Context(), `select (extract(epoch from heartbeat_at) * 1e6)::bigint from workers where id = $1`, b.cfg.Worker.ID).Scan(&at))
	return at
}

func TestHandlerThatMeetsTheFenceIsALoss(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return l.Tx(ctx, func(tx pgx.Tx) error { return l.CompleteTx(ctx, tx) })
	})}).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	_, err := b.pool.Exec(t.Context(), `update jobs set state = 'queued', worker_id = null, lease_expires_at = null, run_at = now() + interval '1 hour'`)
	b.no(err)
	close(goOn)
	b.stats(worker.Stats{Claimed: 1, Lost: 1})
	equal(t, "state", b.get(id).State, queue.StateQueued)
}
