package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

// lock holds a job's row in a transaction of somebody else until the returned function is called.
func (b *bench) lock(id int64) (unlock func()) {
	b.t.Helper()
	tx, err := b.pool.Begin(b.t.Context())
	b.no(err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.t.Context())) })
	_, err = tx.Exec(b.t.Context(), `select from jobs where id = $1 for update`, id)
	b.no(err)
	return func() { b.no(tx.Rollback(b.t.Context())) }
}

func (b *bench) untilWaiting() (pid int) {
	b.t.Helper()
	queuetest.Until(b.t, "somebody waits for the lock", func() bool {
		err := b.pool.QueryRow(b.t.Context(), `select pid from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&pid)
		return err == nil
	})
	return pid
}

// Marked lost while its end is being written: it isn't recorded, the others are.
func TestMarkBeforeTheCommitOfABatchWins(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(3, queue.Insert{})
	unlock := b.lock(leases[2].Job().ID)
	told := make(chan []error, 1)
	e := newEnding(b, 0)
	go func() { told <- e.together(leases...) }()
	b.untilWaiting()
	leases[0].MarkLost(queue.ErrStopping)
	unlock()
	errs := queuetest.Wait(t, "ends", told)
	b.is(errs[0], queue.ErrLeaseLost)
	b.no(errs[1])
	b.no(errs[2])
	b.state(leases[0].Job().ID, queue.StateRunning)
	equal(t, "ended", leases[0].Ended(), false)
	equal(t, "total", b.succeeded(), 2)
	b.no(leases[0].Release(t.Context(), queue.Release{}))
}

// A row that somebody keeps locked holds up its own end only.
func TestLockedRowDoesNotKeepABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Minute})
	leases := b.runningMany(4, queue.Insert{})
	other := b.runningMany(1, queue.Insert{Kind: "other"})[0]
	unlock := b.lock(other.Job().ID)
	locked := make(chan error, 1)
	e := newEnding(b, 2)
	go func() { locked <- e.Complete(t.Context(), other) }()
	queuetest.Until(t, "it's pending", func() bool { return queue.Pending(e.Completer) == 1 })
	b.allNo(e.together(leases...))
	b.state(other.Job().ID, queue.StateRunning)
	unlock()
	b.no(queuetest.Wait(t, "the locked one", locked))
	b.state(other.Job().ID, queue.StateSucceeded)
}

// What one row makes the database refuse, the others don't suffer from.
func TestBadRowDoesNotSpoilABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(5, queue.Insert{})
	b.exec(`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`)
	b.exec(fmt.Sprintf(`create trigger refuse before update on jobs for each row when (new.state = 'succeeded' and new.id = %d)
		execute function refuse()`, leases[2].Job().ID))
	errs := newEnding(b, 0).together(leases...)
	for n, err := range errs {
		equal(t, fmt.Sprintf("refused: %v", err), err != nil, n == 2)
	}
	equal(t, "total", b.succeeded(), 4)
	equal(t, "ended or lost", leases[2].Ended() || leases[2].Lost(), false)
}
