package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
)

func completeOn(ctx context.Context, l *queue.Lease) error {
	return l.Tx(ctx, func(tx pgx.Tx) error { return l.CompleteTx(ctx, tx) })
}

// writes are all that a lease can do to its row, by name.
func writes(ctx context.Context, l *queue.Lease) map[string]func() error {
	in := func(fn func(pgx.Tx) error) func() error {
		return func() error { return l.Tx(ctx, fn) }
	}
	return map[string]func() error{
		"tx":       in(func(pgx.Tx) error { return nil }),
		"complete": in(func(tx pgx.Tx) error { return l.CompleteTx(ctx, tx) }),
		"retry": in(func(tx pgx.Tx) error {
			_, err := l.RetryTx(ctx, tx, queue.Failure{Code: "x"})
			return err
		}),
		"fail":      in(func(tx pgx.Tx) error { return l.FailTx(ctx, tx, queue.Failure{Code: "x"}) }),
		"release":   in(func(tx pgx.Tx) error { return l.ReleaseTx(ctx, tx, queue.Release{}) }),
		"cancelled": in(func(tx pgx.Tx) error { return l.CancelledTx(ctx, tx) }),
		"pin":       in(func(tx pgx.Tx) error { return l.PinTx(ctx, tx, uuid.New()) }),
		"unpin":     in(func(tx pgx.Tx) error { return l.UnpinTx(ctx, tx) }),
		"process":   in(func(tx pgx.Tx) error { return l.ProcessTx(ctx, tx, 1, 1) }),
		"pin root":  in(func(tx pgx.Tx) error { return l.PinRootTx(ctx, tx, uuid.New()) }),
		"free root": in(func(tx pgx.Tx) error { return l.FreeRootTx(ctx, tx) }),
		"progress":  in(func(tx pgx.Tx) error { return l.ProgressTx(ctx, tx, "late") }),
		"child job": in(func(tx pgx.Tx) error {
			_, err := queue.EnqueueTx(ctx, tx, queue.Insert{Kind: "child", Lane: "lane"})
			return err
		}),
		"counter": in(func(tx pgx.Tx) error { return tally.AddCounterTx(ctx, tx, "late", 1) }),
		"end in a batch": func() error {
			return queue.NewCompleter(queue.Of(l), l.Worker(), func() int { return 0 }).Complete(ctx, l)
		},
		"check":      func() error { return l.Check(ctx) },
		"release it": func() error { return l.Release(ctx, queue.Release{}) },
	}
}

// Each write of an old epoch is refused, though worker and job are the same.
func TestStaleEpochWritesNothing(t *testing.T) {
	t.Parallel()
	for name := range writes(t.Context(), nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			old := b.Running(queue.Insert{})
			b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null`) // somebody else's doing
			fresh := b.One(b.W)
			queuetest.Equal(t, "epoch", fresh.Job().Epoch, 2)
			before := b.Get(old.Job().ID)
			b.Is(writes(t.Context(), old)[name](), queue.ErrLeaseLost)
			after := b.Get(old.Job().ID)
			queuetest.Equal(t, "row", dump(t, after), dump(t, before))
			queuetest.Equal(t, "marked", old.Lost() || name == "release it", true)
			queuetest.Equal(t, "child jobs and counters", b.Count(`select (select count(*) from jobs where kind = 'child') + (select count(*) from counters)`), 0)
			b.No(b.complete(fresh))
		})
	}
}

func dump(t *testing.T, job queue.Job) string {
	t.Helper()
	raw, err := json.Marshal(job) //nolint:musttag // only to compare two of them
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Marked lost, a lease refuses without asking: there is no database here that it could ask.
func TestMarkedLostRefusesByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	lease.MarkLost(nil)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no database may be asked"))
	for name, write := range writes(over, lease) {
		if name == "release it" {
			continue
		}
		if err := write(); !errors.Is(err, queue.ErrLeaseLost) || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.state(lease.Job().ID, queue.StateRunning)
	// But it can be got rid of.
	b.No(lease.Release(t.Context(), queue.Release{}))
	queuetest.Equal(t, "attempt", b.state(lease.Job().ID, queue.StateQueued).Attempt, 0)
}

func TestTxIsFencedAtItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	err := b.Tx(lease, func(tx pgx.Tx) error {
		if err := tally.AddCounterTx(t.Context(), tx, "n", 1); err != nil {
			return err
		}
		lease.MarkLost(queue.ErrStopping) // the grace is over while the transaction is open
		return lease.CompleteTx(t.Context(), tx)
	})
	b.Is(err, queue.ErrLeaseLost)
	b.state(lease.Job().ID, queue.StateRunning)
	counters, err := tally.NewStore(b.Pool).Counters(t.Context())
	b.No(err)
	queuetest.Equal(t, "counted", counters["n"], 0)
	queuetest.Equal(t, "ended", lease.Ended(), false)
}

func TestTxRenewsAndKeepsOthersOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	id := lease.Job().ID
	b.Exec(`update jobs set lease_expires_at = now() - interval '1 hour' where id = $1`, id)
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		var ignored int64
		err := b.Pool.QueryRow(t.Context(), `select id from jobs where id = $1 for update skip locked`, id).Scan(&ignored)
		b.Is(err, pgx.ErrNoRows)
		var idle string
		b.No(tx.QueryRow(t.Context(), `show idle_in_transaction_session_timeout`).Scan(&idle))
		queuetest.Equal(t, "idle limit", idle, "15s")
		return nil
	}))
	queuetest.Within(t, "renewed", time.Until(*b.Get(id).LeaseExpiresAt), 30*time.Second, 90*time.Second)
	var idle string
	b.No(b.Pool.QueryRow(t.Context(), `show idle_in_transaction_session_timeout`).Scan(&idle))
	queuetest.Equal(t, "idle limit outside", idle, "0")
}

func TestTxIsUndone(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	broken := errors.New("broken")
	end := func(tx pgx.Tx) error { return lease.CompleteTx(t.Context(), tx) }
	b.Is(b.Tx(lease, func(tx pgx.Tx) error { b.No(end(tx)); return broken }), broken)
	queuetest.Equal(t, "ended", lease.Ended(), false)
	func() {
		defer func() { queuetest.Equal(t, "panic", recover(), any("broken")) }()
		_ = b.Tx(lease, func(tx pgx.Tx) error { b.No(end(tx)); panic("broken") })
	}()
	queuetest.Equal(t, "ended", lease.Ended(), false)
	b.No(b.Tx(lease, end))
	queuetest.Equal(t, "ended", lease.Ended(), true)
	queuetest.Equal(t, "outcome", lease.Outcome(), queue.OutcomeSucceeded)
	b.state(lease.Job().ID, queue.StateSucceeded)
	b.Is(b.Tx(lease, end), queue.ErrEnded)
}

func TestEndNeedsItsOwnTxAndHappensOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease, other := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Is(db.InTx(t.Context(), b.Pool, func(tx pgx.Tx) error { return lease.CompleteTx(t.Context(), tx) }), queue.ErrNotFenced)
	b.Is(b.Tx(other, func(tx pgx.Tx) error { return lease.CompleteTx(t.Context(), tx) }), queue.ErrNotFenced)
	b.Is(b.Tx(other, func(tx pgx.Tx) error { return lease.PinTx(t.Context(), tx, uuid.New()) }), queue.ErrNotFenced)
	b.Is(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.CompleteTx(t.Context(), tx))
		return lease.FailTx(t.Context(), tx, queue.Failure{})
	}), queue.ErrEnded)
	b.Is(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.CompleteTx(t.Context(), tx))
		return lease.PinTx(t.Context(), tx, uuid.New())
	}), queue.ErrEnded)
	b.state(lease.Job().ID, queue.StateRunning)
}

func TestPinAndProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	run := uuid.New()
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.PinTx(t.Context(), tx, run))
		return lease.ProcessTx(t.Context(), tx, 4711, 99)
	}))
	for _, job := range []queue.Job{b.Get(lease.Job().ID), lease.Job()} {
		queuetest.Equal(t, "run", *job.RunID, run)
		queuetest.Equal(t, "root", *job.PinnedRoot, b.W.RootID)
		queuetest.Equal(t, "pid", *job.PID, 4711)
		queuetest.Equal(t, "started", *job.PIDStartedAt, 99)
	}
	b.Is(b.Tx(lease, func(tx pgx.Tx) error { b.No(lease.UnpinTx(t.Context(), tx)); return errors.ErrUnsupported }), errors.ErrUnsupported)
	queuetest.Equal(t, "still pinned", *lease.Job().RunID, run)
	b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.UnpinTx(t.Context(), tx) }))
	for _, job := range []queue.Job{b.Get(lease.Job().ID), lease.Job()} {
		queuetest.Equal(t, "run", job.RunID == nil, true)
		queuetest.Equal(t, "root, where the run's work is", *job.PinnedRoot, b.W.RootID)
	}
	queuetest.Equal(t, "the worker's pid again", *b.Get(lease.Job().ID).PID, b.W.PID)
}

func TestCausesOfAHandlersContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for name, c := range map[string]struct {
		do   func(*queue.Lease)
		want error
	}{
		"lost":     {func(l *queue.Lease) { l.MarkLost(nil) }, queue.ErrLeaseLost},
		"stopping": {func(l *queue.Lease) { l.MarkLost(queue.ErrStopping) }, queue.ErrStopping},
		"cancel":   {func(l *queue.Lease) { l.RequestCancel() }, queue.ErrCancelRequested},
		"first":    {func(l *queue.Lease) { l.RequestCancel(); l.MarkLost(nil) }, queue.ErrCancelRequested},
	} {
		early, late := b.Running(queue.Insert{}), b.Running(queue.Insert{})
		ctx, cancel := early.Context(t.Context())
		c.do(early)
		queuetest.Equal(t, name, context.Cause(ctx), c.want)
		cancel(nil)
		c.do(late)
		ctx, cancel = late.Context(t.Context())
		queuetest.Equal(t, name+" before there was one", context.Cause(ctx), c.want)
		cancel(nil)
	}
	lease := b.Running(queue.Insert{})
	lease.BeginStop()
	lease.BeginStop()
	<-lease.Stopping()
	queuetest.Equal(t, "a stop ends nothing yet", lease.Lost(), false)
}
