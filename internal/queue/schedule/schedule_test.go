package schedule_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/schedule"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnqueueEveryIsOnceForAllProcesses(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	var wg sync.WaitGroup
	var queued atomic.Int64
	for range 8 { // processes
		wg.Go(func() {
			for range 5 {
				ok, err := schedule.EnqueueEvery(t.Context(), b.Pool, time.Hour, queue.Insert{Kind: "regular", Lane: "lane"})
				if err != nil {
					t.Error(err)
				}
				if ok {
					queued.Add(1)
				}
			}
		})
	}
	wg.Wait()
	queuetest.Equal(t, "queued", queued.Load(), 1)
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs`), 1)
}

func TestEnqueueEveryComesAgainByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	try := func(in queue.Insert) bool {
		t.Helper()
		in.Kind, in.Lane = "regular", "lane"
		ok, err := schedule.EnqueueEvery(t.Context(), b.Pool, time.Hour, in)
		b.No(err)
		return ok
	}
	queuetest.Equal(t, "first", try(queue.Insert{DedupeKey: "twin"}), true)
	queuetest.Equal(t, "at once", try(queue.Insert{}), false)
	b.Exec(`update schedules set last_at = last_at - interval '59 minutes'`)
	queuetest.Equal(t, "nearly", try(queue.Insert{}), false)
	b.Exec(`update schedules set last_at = last_at - interval '2 minutes'`)
	queuetest.Equal(t, "a live twin", try(queue.Insert{DedupeKey: "twin"}), false)
	queuetest.Equal(t, "has had its turn", try(queue.Insert{}), false)
	b.Exec(`update schedules set last_at = last_at - interval '2 hours'`)
	queuetest.Equal(t, "again", try(queue.Insert{}), true)
	// A clock that was ahead, once, doesn't stop it until then.
	b.Exec(`update schedules set last_at = clock_timestamp() + interval '1 year'`)
	queuetest.Equal(t, "from the future", try(queue.Insert{}), true)
	queuetest.Equal(t, "at once", try(queue.Insert{}), false)
	ok, err := schedule.EnqueueEvery(t.Context(), b.Pool, time.Hour, queue.Insert{Kind: "another", Lane: "lane"})
	b.No(err)
	queuetest.Equal(t, "another kind", ok, true)
}

func TestEnqueueEveryGivesItsTurnBackWhenUndone(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	in := queue.Insert{Kind: "regular", Lane: "lane"}
	err := db.InTx(t.Context(), b.Pool, func(tx pgx.Tx) error {
		ok, err := schedule.EnqueueEveryTx(t.Context(), tx, time.Hour, in)
		b.No(err)
		queuetest.Equal(t, "queued", ok, true)
		return errors.ErrUnsupported
	})
	b.Is(err, errors.ErrUnsupported)
	bad := in
	bad.Lane = ""
	if ok, err := schedule.EnqueueEvery(t.Context(), b.Pool, time.Hour, bad); ok || err == nil {
		t.Fatal("accepted")
	}
	ok, err := schedule.EnqueueEvery(t.Context(), b.Pool, time.Hour, in)
	b.No(err)
	queuetest.Equal(t, "queued", ok, true)
}
