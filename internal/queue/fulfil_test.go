package queue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
)

func TestFulfilEndsOnlyWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	running := b.Running(queue.Insert{}).Job().ID
	queued := b.Enqueue(queue.Insert{DedupeKey: "k"})
	fulfil := func(id int64) (done bool) {
		t.Helper()
		b.No(db.InTx(t.Context(), b.Pool, func(tx pgx.Tx) (err error) {
			done, err = queue.FulfilTx(t.Context(), tx, id)
			return err
		}))
		return done
	}
	queuetest.Equal(t, "one that runs", fulfil(running), false)
	b.state(running, queue.StateRunning)
	queuetest.Equal(t, "one that waits", fulfil(queued), true)
	b.state(queued, queue.StateSucceeded)
	queuetest.Equal(t, "again", fulfil(queued), false)
	queuetest.Equal(t, "none", fulfil(999), false)
	census, err := overview.NewReader(b.Pool).Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "total", census.Counts[queue.StateSucceeded], 1)
	queuetest.Equal(t, "its key is free", b.Enqueue(queue.Insert{DedupeKey: "k"}) > queued, true)
}
