package queue_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
)

func TestEnqueueEveryIsOnceForAllProcesses(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var wg sync.WaitGroup
	var queued atomic.Int64
	for range 8 {
		q := queue.New(b.pool, queue.Config{}) // a process of its own
		wg.Go(func() {
			for range 5 {
				ok, err := q.EnqueueEvery(t.Context(), time.Hour, queue.Insert{Kind: "regular", Lane: "lane"})
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
	equal(t, "queued", queued.Load(), 1)
	equal(t, "rows", b.count(`select count(*) from jobs`), 1)
}

func TestEnqueueEveryComesAgainByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	try := func(in queue.Insert) bool {
		t.Helper()
		in.Kind, in.Lane = "regular", "lane"
		ok, err := b.q.EnqueueEvery(t.Context(), time.Hour, in)
		b.no(err)
		return ok
	}
	equal(t, "first", try(queue.Insert{DedupeKey: "twin"}), true)
	equal(t, "at once", try(queue.Insert{}), false)
	b.exec(`update schedules set last_at = last_at - interval '59 minutes'`)
	equal(t, "nearly", try(queue.Insert{}), false)
	b.exec(`update schedules set last_at = last_at - interval '2 minutes'`)
	equal(t, "a live twin", try(queue.Insert{DedupeKey: "twin"}), false)
	equal(t, "has had its turn", try(queue.Insert{}), false)
	b.exec(`update schedules set last_at = last_at - interval '2 hours'`)
	equal(t, "again", try(queue.Insert{}), true)
	// A clock that was ahead, once, doesn't stop it until then.
	b.exec(`update schedules set last_at = clock_timestamp() + interval '1 year'`)
	equal(t, "from the future", try(queue.Insert{}), true)
	equal(t, "at once", try(queue.Insert{}), false)
	ok, err := b.q.EnqueueEvery(t.Context(), time.Hour, queue.Insert{Kind: "another", Lane: "lane"})
	b.no(err)
	equal(t, "another kind", ok, true)
}

func TestEnqueueEveryGivesItsTurnBackWhenUndone(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	in := queue.Insert{Kind: "regular", Lane: "lane"}
	err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		ok, err := queue.EnqueueEveryTx(t.Context(), tx, time.Hour, in)
		b.no(err)
		equal(t, "queued", ok, true)
		return errors.ErrUnsupported
	})
	b.is(err, errors.ErrUnsupported)
	bad := in
	bad.Lane = ""
	if ok, err := b.q.EnqueueEvery(t.Context(), time.Hour, bad); ok || err == nil {
		t.Fatal("accepted")
	}
	ok, err := b.q.EnqueueEvery(t.Context(), time.Hour, in)
	b.no(err)
	equal(t, "queued", ok, true)
}
