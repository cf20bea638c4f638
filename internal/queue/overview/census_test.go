package overview_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*queuetest.Bench
	reader *overview.Reader
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := queuetest.NewBench(t, testdb.New(t))
	return &bench{Bench: b, reader: overview.NewReader(b.Pool)}
}

func TestCensusCountsWhatIsThereAndWhatEverEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Running(queue.Insert{Kind: "other"})
	failed := b.Running(queue.Insert{Kind: "other"})
	b.No(b.Tx(failed, func(tx pgx.Tx) error { return failed.FailTx(t.Context(), tx, queue.Failure{}) }))
	b.Complete(b.Running(queue.Insert{Kind: "other"}))
	b.Enqueue(queue.Insert{RunAt: time.Now().Add(-time.Hour)})
	b.Enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	b.Exec(`delete from jobs where state in ('succeeded', 'failed')`) // pruned: their totals stay
	census, err := b.reader.Census(t.Context())
	b.No(err)
	for state, want := range map[queue.State]int64{
		queue.StateQueued: 2, queue.StateRunning: 1, queue.StateSucceeded: 1, queue.StateFailed: 1, queue.StateCancelled: 0,
	} {
		queuetest.Equal(t, string(state), census.Counts[state], want)
	}
	queuetest.Equal(t, "rows", len(census.Depth), 2)
	queuetest.Equal(t, "other", census.Depth[0], overview.Depth{Kind: "other", Lane: "lane", Running: 1})
	queuetest.Within(t, "oldest", *census.Depth[1].OldestQueued, 59*time.Minute, 61*time.Minute)
	queuetest.Equal(t, "queued", census.Depth[1].Queued, 2)
}

// A census is taken each second: it may not grow with the table, and the most of one kind may not hide another.
func TestCensusLooksAtABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const most = `insert into jobs (kind, lane, max_attempts, state, finished_at) `
	b.Exec(most + `select 'crowd', 'lane', 3, 'queued', null from generate_series(1, 60000)`)
	b.Exec(most + `select 'rest', 'lane', 3, 'queued', null from generate_series(1, 7)`)
	b.Exec(most + `select 'crowd', 'lane', 3, 'failed', now() from generate_series(1, 15000)`)
	b.Exec(most + `select 'rest', 'system', 3, 'failed', now()`)
	census, err := b.reader.Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "rows", len(census.Depth), 3)
	for i := range census.Depth {
		census.Depth[i].OldestQueued = nil
	}
	queuetest.Equal(t, "crowd", census.Depth[0], overview.Depth{Kind: "crowd", Lane: "lane", Queued: 25_000, Failed: 5_000})
	queuetest.Equal(t, "rest", census.Depth[1], overview.Depth{Kind: "rest", Lane: "lane", Queued: 7})
	queuetest.Equal(t, "failed rest", census.Depth[2], overview.Depth{Kind: "rest", Lane: "system", Failed: 1})
	queuetest.Equal(t, "queued", census.Counts[queue.StateQueued], 25_007)
}

func TestDepth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Running(queue.Insert{Kind: "other"})
	failed := b.Running(queue.Insert{Kind: "other"})
	b.No(b.Tx(failed, func(tx pgx.Tx) error { return failed.FailTx(t.Context(), tx, queue.Failure{}) }))
	b.Enqueue(queue.Insert{RunAt: time.Now().Add(-time.Hour), ConcurrencyKey: "k"})
	b.Enqueue(queue.Insert{PinnedRoot: uuid.New()})
	b.Enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	b.Exec(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null where id = $1`, b.Enqueue(queue.Insert{}))
	census, err := b.reader.Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "rows", len(census.Depth), 2)
	queuetest.Equal(t, "other", census.Depth[0], overview.Depth{Kind: "other", Lane: "lane", Running: 1, Failed: 1})
	work := census.Depth[1]
	queuetest.Within(t, "oldest", *work.OldestQueued, 59*time.Minute, 61*time.Minute)
	work.OldestQueued = nil
	queuetest.Equal(t, "work", work, overview.Depth{Kind: "work", Lane: "lane", Queued: 3})
}
