package queue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

// A job of which workers died again and again frees its key when it fails, and who waits for the key is told.
func TestKeyOfACrashLoopIsFreedAloud(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	l := b.Running(queue.Insert{ConcurrencyKey: "k"})
	b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	b.Exec(`update jobs set recoveries = 5 where id = $1`, l.Job().ID)
	next := b.Listen()
	jobs, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	queuetest.Equal(t, "state", jobs[0].State, queue.StateFailed)
	queuetest.Equal(t, "woken lane", next().Payload, "lane")
}

// Somebody wanted the job cancelled, and gets that, however the last attempt ended.
func TestCancelledJobDoesNotEndAsFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	dead, last := b.Running(queue.Insert{}), b.Running(queue.Insert{MaxAttempts: 1})
	b.Exec(`update jobs set recoveries = 5 where id = $1`, dead.Job().ID)
	for _, l := range []*queue.Lease{dead, last} {
		_, err := b.Q.Cancel(t.Context(), l.Job().ID)
		b.No(err)
	}
	b.No(b.Tx(last, func(tx pgx.Tx) error {
		state, err := last.RetryTx(t.Context(), tx, queue.Failure{Code: "broken"})
		queuetest.Equal(t, "retried", state, queue.StateCancelled)
		return err
	}))
	_, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	b.state(dead.Job().ID, queue.StateCancelled)
	b.state(last.Job().ID, queue.StateCancelled)
}

// A row that somebody has locked doesn't keep others from being recovered: it is for the next call.
func TestLockedRowKeepsNoOtherFromRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Hour})
	locked, other := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	unlock := b.lock(locked.Job().ID)
	jobs, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	queuetest.Equal(t, "error", db.Code(err), db.CodeLock)
	queuetest.Equal(t, "recovered", len(jobs), 1)
	b.state(other.Job().ID, queue.StateQueued)
	unlock()
	_, err = queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	b.state(locked.Job().ID, queue.StateQueued)
}

// A claim looks at 400 keys of others before it leaves the rest to the next.
func TestClaimLooksAtManyKeysOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.Running(queue.Insert{ConcurrencyKey: "busy"})
	b.Exec(`insert into jobs (kind, lane, max_attempts, concurrency_key) select 'unhandled', 'lane', 3, 'k' || n from generate_series(1, 300) n`)
	b.Exec(`insert into jobs (kind, lane, max_attempts, concurrency_key, run_at) select 'work', 'lane', 3, 'busy', now() - interval '1 hour' from generate_series(1, 600) n`)
	id := b.Enqueue(queue.Insert{ConcurrencyKey: "z free"})
	leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Limit: 5})
	b.No(err)
	queuetest.Equal(t, "claimed", len(leases), 1)
	queuetest.Equal(t, "the free one", leases[0].Job().ID, id)
}

// A row that somebody keeps locked is no reason to claim again and again; one that another claimer was faster at is.
func TestLockedRowIsNotClaimedAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	unlock := b.lock(b.Enqueue(queue.Insert{}))
	defer unlock()
	queuetest.Equal(t, "claimed", len(b.Claim(b.W, 5)), 0)
	queuetest.Equal(t, "again after", b.Q.LookAgain(b.W.ID, "lane"), 0)
	b.Enqueue(queue.Insert{})
	queuetest.Equal(t, "claimed", len(b.Claim(b.W, 5)), 1)
	queuetest.Equal(t, "again soon", b.Q.LookAgain(b.W.ID, "lane") > 0, true)
}
