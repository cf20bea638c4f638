package queue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

func TestCensusCountsWhatIsThereAndWhatEverEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.running(queue.Insert{Kind: "other"})
	failed := b.running(queue.Insert{Kind: "other"})
	b.no(b.tx(failed, func(tx pgx.Tx) error { return failed.FailTx(t.Context(), tx, queue.Failure{}) }))
	b.no(b.complete(b.running(queue.Insert{Kind: "other"})))
	b.enqueue(queue.Insert{RunAt: time.Now().Add(-time.Hour)})
	b.enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	b.exec(`delete from jobs where state in ('succeeded', 'failed')`) // pruned: their totals stay
	census, err := b.q.Census(t.Context())
	b.no(err)
	for state, want := range map[queue.State]int64{
		queue.StateQueued: 2, queue.StateRunning: 1, queue.StateSucceeded: 1, queue.StateFailed: 1, queue.StateCancelled: 0,
	} {
		equal(t, string(state), census.Counts[state], want)
	}
	equal(t, "rows", len(census.Depth), 2)
	equal(t, "other", census.Depth[0], queue.Depth{Kind: "other", Lane: "lane", Running: 1})
	within(t, "oldest", *census.Depth[1].OldestQueued, 59*time.Minute, 61*time.Minute)
	equal(t, "queued", census.Depth[1].Queued, 2)
}

// A census is taken each second: it may not grow with the table, and the most of one kind may not hide another.
func TestCensusLooksAtABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const most = `insert into jobs (kind, lane, max_attempts, state, finished_at) `
	b.exec(most + `select 'crowd', 'lane', 3, 'queued', null from generate_series(1, 60000)`)
	b.exec(most + `select 'rest', 'lane', 3, 'queued', null from generate_series(1, 7)`)
	b.exec(most + `select 'crowd', 'lane', 3, 'failed', now() from generate_series(1, 15000)`)
	b.exec(most + `select 'rest', 'system', 3, 'failed', now()`)
	census, err := b.q.Census(t.Context())
	b.no(err)
	equal(t, "rows", len(census.Depth), 3)
	for i := range census.Depth {
		census.Depth[i].OldestQueued = nil
	}
	equal(t, "crowd", census.Depth[0], queue.Depth{Kind: "crowd", Lane: "lane", Queued: 25_000, Failed: 5_000})
	equal(t, "rest", census.Depth[1], queue.Depth{Kind: "rest", Lane: "lane", Queued: 7})
	equal(t, "failed rest", census.Depth[2], queue.Depth{Kind: "rest", Lane: "system", Failed: 1})
	equal(t, "queued", census.Counts[queue.StateQueued], 25_007)
}
