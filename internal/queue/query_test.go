package queue_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestGetOfAJobThatThereIsNot(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	_, err := b.Q.Get(t.Context(), 999)
	b.Is(err, queue.ErrNotFound)
}

// The lookup sees the successor of the job that it waited for.
func TestActiveForTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	find := func() (job *queue.Job) {
		b.No(db.InTx(t.Context(), b.Pool, func(tx pgx.Tx) (err error) {
			job, err = queue.ActiveForTaskTx(t.Context(), tx, 7)
			return err
		}))
		return job
	}
	queuetest.Equal(t, "none", find() == nil, true)
	in := queue.Insert{Kind: "work", Lane: "lane", DedupeKey: queue.TaskKey(7), TaskID: 7}
	lease := b.Running(in)
	queuetest.Equal(t, "running", find().ID, lease.Job().ID)

	locked, found := make(chan int64, 1), make(chan *queue.Job, 1)
	var next queue.Inserted
	var wg sync.WaitGroup
	b.No(b.Tx(lease, func(tx pgx.Tx) (err error) {
		wg.Go(func() { locked <- 1; found <- find() })
		<-locked
		queuetest.Until(t, "the lookup waits for the lock", func() (waits bool) {
			b.No(b.Pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits))
			return waits
		})
		b.No(lease.CompleteTx(t.Context(), tx))
		next, err = queue.EnqueueTx(t.Context(), tx, in)
		return err
	}))
	wg.Wait()
	queuetest.Equal(t, "successor", (<-found).ID, next.ID)
}
