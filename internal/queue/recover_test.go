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
	l := b.running(queue.Insert{ConcurrencyKey: "k"})
	b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	b.exec(`update jobs set recoveries = 5 where id = $1`, l.Job().ID)
	next := b.listen(queue.ChannelJobs)
	jobs, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	b.no(err)
	equal(t, "state", jobs[0].State, queue.StateFailed)
	equal(t, "woken lane", next().Payload, "lane")
}

// Somebody wanted the job cancelled, and gets that, however the last attempt ended.
func TestCancelledJobDoesNotEndAsFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	dead, last := b.running(queue.Insert{}), b.running(queue.Insert{MaxAttempts: 1})
	b.exec(`update jobs set recoveries = 5 where id = $1`, dead.Job().ID)
	for _, l := range []*queue.Lease{dead, last} {
		_, err := b.q.Cancel(t.Context(), l.Job().ID)
		b.no(err)
	}
	b.no(b.tx(last, func(tx pgx.Tx) error {
		state, err := last.RetryTx(t.Context(), tx, queue.Failure{Code: "broken"})
		equal(t, "retried", state, queue.StateCancelled)
		return err
	}))
	_, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	b.no(err)
	b.state(dead.Job().ID, queue.StateCancelled)
	b.state(last.Job().ID, queue.StateCancelled)
}

// A row that somebody has locked doesn't keep others from being recovered: it is for the next call.
func TestLockedRowKeepsNoOtherFromRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Hour})
	locked, other := b.running(queue.Insert{}), b.running(queue.Insert{})
	unlock := b.lock(locked.Job().ID)
	jobs, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	equal(t, "error", db.Code(err), db.CodeLock)
	equal(t, "recovered", len(jobs), 1)
	b.state(other.Job().ID, queue.StateQueued)
	unlock()
	_, err = queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	b.no(err)
	b.state(locked.Job().ID, queue.StateQueued)
}

// A claim looks at 400 keys of others before it leaves the rest to the next.
func TestClaimLooksAtManyKeysOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.running(queue.Insert{ConcurrencyKey: "busy"})
	b.exec(`insert into jobs (kind, lane, max_attempts, concurrency_key) select 'unhandled', 'lane', 3, 'k' || n from generate_series(1, 300) n`)
	b.exec(`insert into jobs (kind, lane, max_attempts, concurrency_key, run_at) select 'work', 'lane', 3, 'busy', now() - interval '1 hour' from generate_series(1, 600) n`)
	id := b.enqueue(queue.Insert{ConcurrencyKey: "z free"})
	leases, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "lane", Kinds: []string{"work"}, Limit: 5})
	b.no(err)
	equal(t, "claimed", len(leases), 1)
	equal(t, "the free one", leases[0].Job().ID, id)
}

// A row that somebody keeps locked is no reason to claim again and again; one that another claimer was faster at is.
func TestLockedRowIsNotClaimedAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	unlock := b.lock(b.enqueue(queue.Insert{}))
	defer unlock()
	equal(t, "claimed", len(b.claim(b.w, 5)), 0)
	equal(t, "again after", b.q.LookAgain(b.w.ID, "lane"), 0)
	b.enqueue(queue.Insert{})
	equal(t, "claimed", len(b.claim(b.w, 5)), 1)
	equal(t, "again soon", b.q.LookAgain(b.w.ID, "lane") > 0, true)
}
