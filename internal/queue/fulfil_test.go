package queue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/overview"
)

func TestFulfilEndsOnlyWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	running := b.running(queue.Insert{}).Job().ID
	queued := b.enqueue(queue.Insert{DedupeKey: "k"})
	fulfil := func(id int64) (done bool) {
		t.Helper()
		b.no(db.InTx(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
			done, err = queue.FulfilTx(t.Context(), tx, id)
			return err
		}))
		return done
	}
	equal(t, "one that runs", fulfil(running), false)
	b.state(running, queue.StateRunning)
	equal(t, "one that waits", fulfil(queued), true)
	b.state(queued, queue.StateSucceeded)
	equal(t, "again", fulfil(queued), false)
	equal(t, "none", fulfil(999), false)
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "total", census.Counts[queue.StateSucceeded], 1)
	equal(t, "its key is free", b.enqueue(queue.Insert{DedupeKey: "k"}) > queued, true)
}
