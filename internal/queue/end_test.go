package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
)

func TestRetrySpendsTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{BackoffBase: time.Minute})
	lease := b.Running(queue.Insert{MaxAttempts: 2})
	id := lease.Job().ID
	var state queue.State
	b.No(b.Tx(lease, func(tx pgx.Tx) (err error) {
		state, err = lease.RetryTx(t.Context(), tx, queue.Failure{Code: "red", Err: errors.New("bad\x00 text")})
		return err
	}))
	queuetest.Equal(t, "state", state, queue.StateQueued)
	queuetest.Equal(t, "outcome", lease.Outcome(), queue.OutcomeRetried)
	job := b.state(id, queue.StateQueued)
	queuetest.Equal(t, "attempt", job.Attempt, 1)
	queuetest.Equal(t, "code", *job.ErrorCode, "red")
	queuetest.Equal(t, "text", *job.Error, "bad\uFFFD text")
	queuetest.Within(t, "back-off", time.Until(job.RunAt), 40*time.Second, 80*time.Second)
	queuetest.Equal(t, "nobody's", job.WorkerID == nil && job.PID == nil && job.RootID == nil && job.LeaseExpiresAt == nil, true)

	b.Exec(`update jobs set run_at = now()`)
	lease = b.One(b.W)
	queuetest.Equal(t, "second attempt", lease.Job().Attempt, 2)
	b.No(b.Tx(lease, func(tx pgx.Tx) (err error) {
		state, err = lease.RetryTx(t.Context(), tx, queue.Failure{Code: "red", Message: "again"})
		return err
	}))
	queuetest.Equal(t, "state", state, queue.StateFailed)
	queuetest.Equal(t, "text", *b.state(id, queue.StateFailed).Error, "again")
}

func TestRetryAtTheNamedTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	failure, ok := errors.AsType[*queue.Failure](queue.RetryAfter(time.Hour, "limit", errors.New("come back later")))
	queuetest.Equal(t, "type", ok, true)
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		_, err := lease.RetryTx(t.Context(), tx, *failure)
		return err
	}))
	queuetest.Within(t, "wait", time.Until(b.state(lease.Job().ID, queue.StateQueued).RunAt), 59*time.Minute, 61*time.Minute)
}

func TestTerminalFailureNeedsNoMoreAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{MaxAttempts: 9})
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		state, err := lease.RetryTx(t.Context(), tx, queue.Failure{Code: "no", Terminal: true, Message: strings.Repeat("x", 1<<20)})
		queuetest.Equal(t, "state", state, queue.StateFailed)
		return err
	}))
	job := b.state(lease.Job().ID, queue.StateFailed)
	queuetest.Equal(t, "bounded", len(*job.Error) < 9000, true)
	queuetest.Equal(t, "finished", job.FinishedAt != nil, true)
}

// OnFailed is told of every transition to failed, in its transaction, and of no other.
func TestOnFailed(t *testing.T) {
	t.Parallel()
	var told []string
	var refuse error
	b := newBench(t, queue.Config{OnFailed: func(ctx context.Context, tx pgx.Tx, job queue.Job, code, message string) error {
		told = append(told, string(job.State)+" "+code+" "+message)
		if refuse != nil {
			return refuse
		}
		return tally.AddCounterTx(ctx, tx, "failures", 1)
	}})
	end := func(fn func(*queue.Lease, pgx.Tx) error) error {
		lease := b.Running(queue.Insert{MaxAttempts: 1})
		return b.Tx(lease, func(tx pgx.Tx) error { return fn(lease, tx) })
	}
	b.No(end(func(l *queue.Lease, tx pgx.Tx) error {
		return l.FailTx(t.Context(), tx, queue.Failure{Code: "a", Message: "m"})
	}))
	b.No(end(func(l *queue.Lease, tx pgx.Tx) error {
		_, err := l.RetryTx(t.Context(), tx, queue.Failure{Code: "b"})
		return err
	}))
	b.No(end(func(l *queue.Lease, tx pgx.Tx) error { return l.CancelledTx(t.Context(), tx) }))
	b.No(end(func(l *queue.Lease, tx pgx.Tx) error { return l.CompleteTx(t.Context(), tx) }))
	_, err := b.Q.Cancel(t.Context(), b.Enqueue(queue.Insert{}))
	b.No(err)
	queuetest.Equal(t, "told", strings.Join(told, ", "), "failed a m, failed b ")
	counters, err := tally.NewStore(b.Pool).Counters(t.Context())
	b.No(err)
	queuetest.Equal(t, "counted in the same transactions", counters["failures"], 2)

	refuse = errors.New("refused")
	lease := b.Running(queue.Insert{})
	fail := func(tx pgx.Tx) error { return lease.FailTx(t.Context(), tx, queue.Failure{Code: "c"}) }
	b.Is(b.Tx(lease, fail), refuse)
	b.state(lease.Job().ID, queue.StateRunning)
	refuse = nil
	b.No(b.Tx(lease, fail))
	b.state(lease.Job().ID, queue.StateFailed)
}

func TestReleaseGivesTheAttemptBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	id := lease.Job().ID
	b.No(b.release(lease, queue.Release{}))
	queuetest.Equal(t, "outcome", lease.Outcome(), queue.OutcomeReleased)
	job := b.state(id, queue.StateQueued)
	queuetest.Equal(t, "attempt", job.Attempt, 0)
	queuetest.Equal(t, "epoch", job.Epoch, 1)
	queuetest.Equal(t, "recoveries", job.Recoveries, 0)
	queuetest.Equal(t, "waits", job.WaitingSince == nil && job.Phase == nil, true)

	lease = b.One(b.W)
	b.No(b.release(lease, queue.Release{After: time.Hour, WaitingFor: "quota", Recovery: true}))
	job = b.state(id, queue.StateQueued)
	queuetest.Equal(t, "attempt", job.Attempt, 0)
	queuetest.Equal(t, "epoch", job.Epoch, 2)
	queuetest.Equal(t, "recoveries", job.Recoveries, 1)
	queuetest.Equal(t, "waits for", *job.Phase, "quota")
	queuetest.Within(t, "until", time.Until(job.RunAt), 59*time.Minute, 61*time.Minute)
	since := *job.WaitingSince

	// It keeps waiting: since when stays.
	b.Exec(`update jobs set run_at = now()`)
	lease = b.One(b.W)
	queuetest.Equal(t, "phase of the new grant", lease.Job().Phase == nil, true)
	b.No(b.release(lease, queue.Release{WaitingFor: "quota"}))
	queuetest.Equal(t, "since", b.Get(id).WaitingSince.Equal(since), true)
	lease = b.One(b.W)
	b.No(b.release(lease, queue.Release{}))
	queuetest.Equal(t, "since, after a stop", b.Get(id).WaitingSince.Equal(since), true)
	lease = b.One(b.W)
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		_, err := lease.RetryTx(t.Context(), tx, queue.Failure{})
		return err
	}))
	queuetest.Equal(t, "an attempt was spent", b.Get(id).WaitingSince == nil, true)
}

func TestTotalsAreWrittenWithTheTransition(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for range 20 {
		b.No(b.complete(b.Running(queue.Insert{})))
	}
	lease := b.Running(queue.Insert{})
	b.Is(b.Tx(lease, func(tx pgx.Tx) error { b.No(lease.CompleteTx(t.Context(), tx)); return errors.ErrUnsupported }), errors.ErrUnsupported)
	b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.FailTx(t.Context(), tx, queue.Failure{}) }))
	_, err := b.Q.Cancel(t.Context(), b.Enqueue(queue.Insert{}))
	b.No(err)
	b.Enqueue(queue.Insert{Kind: "unhandled"})
	b.Running(queue.Insert{})
	census, err := overview.NewReader(b.Pool).Census(t.Context())
	b.No(err)
	for state, want := range map[queue.State]int64{
		queue.StateQueued: 1, queue.StateRunning: 1, queue.StateSucceeded: 20, queue.StateFailed: 1, queue.StateCancelled: 1,
	} {
		queuetest.Equal(t, string(state), census.Counts[state], want)
	}
	var shards int
	b.No(b.Pool.QueryRow(t.Context(), `select count(*) from job_totals where state = 'succeeded'`).Scan(&shards))
	queuetest.Equal(t, "shards", shards, 16)
	b.Exec(`truncate jobs`) // a prune
	census, err = overview.NewReader(b.Pool).Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "totals outlive the rows", census.Counts[queue.StateSucceeded], 20)
}

func TestBackoffIsExponentialJitteredAndCapped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(rt, "base"))
		limit := time.Duration(rapid.Int64Range(int64(base), int64(100*time.Hour)).Draw(rt, "max"))
		attempt := rapid.IntRange(0, 100).Draw(rt, "attempt")
		got := queue.Backoff(queue.New(nil, queue.Config{BackoffBase: base, BackoffMax: limit}), attempt)
		want := float64(base)
		for range attempt - 1 {
			want = min(2*want, float64(limit))
		}
		if float64(got) < 0.74*want-2 || float64(got) > 1.26*want+2 || got > limit {
			rt.Fatalf("attempt %d of base %s, max %s: %s", attempt, base, limit, got)
		}
	})
}

func TestFailureTexts(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	err := queue.Terminal("code", cause)
	queuetest.Equal(t, "text", err.Error(), "code: why")
	queuetest.Equal(t, "is", errors.Is(err, cause), true)
	queuetest.Equal(t, "bare", (&queue.Failure{Code: "code"}).Error(), "code")
	queuetest.Equal(t, "message wins", (&queue.Failure{Code: "code", Message: "m", Err: cause}).Error(), "code: m")
	queuetest.Equal(t, "snooze", (&queue.SnoozeError{WaitingFor: "ci"}).Error(), "waiting for ci")
}

// A cancel that was asked for outlives the holder; a job that a run pins isn't cancelled before the run is gone.
func TestCancelRequestOutlivesTheHolder(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	ways := map[string]func(*queue.Lease, pgx.Tx) error{
		"release": func(l *queue.Lease, tx pgx.Tx) error { return l.ReleaseTx(t.Context(), tx, queue.Release{}) },
		"retry": func(l *queue.Lease, tx pgx.Tx) error {
			state, err := l.RetryTx(t.Context(), tx, queue.Failure{})
			queuetest.Equal(t, "not queued", state != queue.StateQueued || l.Job().RunID != nil, true)
			return err
		},
	}
	for name, way := range ways {
		lease := b.Running(queue.Insert{})
		job, err := b.Q.Cancel(t.Context(), lease.Job().ID)
		b.No(err)
		queuetest.Equal(t, name+": still running", job.State, queue.StateRunning)
		queuetest.Equal(t, name+": asked", job.CancelRequestedAt != nil, true)
		b.No(b.Tx(lease, func(tx pgx.Tx) error { return way(lease, tx) }))
		b.state(job.ID, queue.StateCancelled)
		queuetest.Equal(t, name+": outcome", lease.Outcome(), queue.OutcomeCancelled)

		lease = b.Running(queue.Insert{})
		b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.PinTx(t.Context(), tx, uuid.New()) }))
		_, err = b.Q.Cancel(t.Context(), lease.Job().ID)
		b.No(err)
		b.No(b.Tx(lease, func(tx pgx.Tx) error { return way(lease, tx) }))
		b.state(lease.Job().ID, queue.StateQueued)
		job, err = b.Q.Cancel(t.Context(), lease.Job().ID) // asking again makes it due
		b.No(err)
		queuetest.Equal(t, name+": pinned", job.State, queue.StateQueued)
		lease = b.One(b.W)
		queuetest.Equal(t, name+": handed on", lease.Job().CancelRequestedAt != nil, true)
		b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.CancelledTx(t.Context(), tx) }))
		b.state(job.ID, queue.StateCancelled)
	}
}
