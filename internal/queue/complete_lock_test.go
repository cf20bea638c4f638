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
	b.T.Helper()
	tx, err := b.Pool.Begin(b.T.Context())
	b.No(err)
	b.T.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.T.Context())) })
	_, err = tx.Exec(b.T.Context(), `select from jobs where id = $1 for update`, id)
	b.No(err)
	return func() { b.No(tx.Rollback(b.T.Context())) }
}

func (b *bench) untilWaiting() (pid int) {
	b.T.Helper()
	queuetest.Until(b.T, "somebody waits for the lock", func() bool {
		err := b.Pool.QueryRow(b.T.Context(), `select pid from pg_stat_activity
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
	b.Is(errs[0], queue.ErrLeaseLost)
	b.No(errs[1])
	b.No(errs[2])
	b.state(leases[0].Job().ID, queue.StateRunning)
	queuetest.Equal(t, "ended", leases[0].Ended(), false)
	queuetest.Equal(t, "total", b.succeeded(), 2)
	b.No(leases[0].Release(t.Context(), queue.Release{}))
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
	b.No(queuetest.Wait(t, "the locked one", locked))
	b.state(other.Job().ID, queue.StateSucceeded)
}

// What one row makes the database refuse, the others don't suffer from.
func TestBadRowDoesNotSpoilABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(5, queue.Insert{})
	b.Exec(`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`)
	b.Exec(fmt.Sprintf(`create trigger refuse before update on jobs for each row when (new.state = 'succeeded' and new.id = %d)
		execute function refuse()`, leases[2].Job().ID))
	errs := newEnding(b, 0).together(leases...)
	for n, err := range errs {
		queuetest.Equal(t, fmt.Sprintf("refused: %v", err), err != nil, n == 2)
	}
	queuetest.Equal(t, "total", b.succeeded(), 4)
	queuetest.Equal(t, "ended or lost", leases[2].Ended() || leases[2].Lost(), false)
}
