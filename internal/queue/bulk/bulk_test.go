package bulk_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"orch/internal/queue"
	"orch/internal/queue/bulk"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnqueueManyWritesWhatEnqueueDoes(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	at := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
	ins := []queue.Insert{
		{Kind: "plain", Lane: "lane"},
		{
			Kind: "full", Lane: "lane", Repo: "repo", Args: map[string]any{"text": "ü\t\"\\", "n": 1.5}, Priority: -7, RunAt: at, MaxAttempts: 9,
			ConcurrencyKey: "key", TaskID: 42, PinnedRoot: b.W.RootID,
		},
	}
	same := slices.Clone(ins)
	for n, in := range ins { // the same with a dedupe key, which is another way in
		in.DedupeKey = fmt.Sprint("many-", n)
		ins = append(ins, in)
		in.DedupeKey = fmt.Sprint("one-", n)
		same = append(same, in)
	}
	queued, err := bulk.EnqueueMany(t.Context(), b.Pool, ins)
	b.No(err)
	queuetest.Equal(t, "queued", queued, 4)
	for _, in := range same {
		_, err := b.Q.Enqueue(t.Context(), in)
		b.No(err)
	}
	const essence = `select string_agg((to_jsonb(j) - 'id' - 'created_at' - 'run_at' - 'dedupe_key' || jsonb_build_object(
		'when', case when run_at = created_at then 'now' else run_at::text end, 'deduped', dedupe_key is not null))::text, E'\n' order by id) from `
	var many, one string
	b.No(b.Pool.QueryRow(t.Context(), essence+`(select * from jobs order by id limit 4) j`).Scan(&many))
	b.No(b.Pool.QueryRow(t.Context(), essence+`(select * from jobs order by id offset 4) j`).Scan(&one))
	queuetest.Equal(t, "rows", many, one)
}

func TestEnqueueManyLeavesOutTwins(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	live := b.Enqueue(queue.Insert{DedupeKey: "live"})
	b.Complete(b.One(b.W))
	b.Enqueue(queue.Insert{DedupeKey: "live"})
	next := b.Listen()
	heard := func() string { return next().Payload }
	job := func(lane, key string) queue.Insert { return queue.Insert{Kind: "work", Lane: lane, DedupeKey: key} }
	queued, err := bulk.EnqueueMany(t.Context(), b.Pool, []queue.Insert{job("lane", "live"), job("other", "new"), job("other", "new"), job("other", ""), job("other", "")})
	b.No(err)
	queuetest.Equal(t, "queued", queued, 3)
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs where id > $1`, live), 4)
	queuetest.Equal(t, "woken", slices.Sorted(slices.Values([]string{heard(), heard()}))[1], "other")
	queued, err = bulk.EnqueueMany(t.Context(), b.Pool, []queue.Insert{job("lane", "live")})
	b.No(err)
	queuetest.Equal(t, "queued", queued, 0)
	queued, err = bulk.EnqueueMany(t.Context(), b.Pool, nil)
	b.No(err)
	queuetest.Equal(t, "queued", queued, 0)
}

// All or nothing, and said before the database is asked as far as that can be.
func TestEnqueueManyIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	good := queue.Insert{Kind: "work", Lane: "lane"}
	for name, bad := range map[string]queue.Insert{
		"no kind": {Lane: "lane"}, "no lane": {Kind: "work"}, "args": {Kind: "work", Lane: "lane", Args: math.Inf(1)},
		"refused by the database": {Kind: "work", Lane: "lane", Args: "\x00"},
		"refused with a key":      {Kind: "work", Lane: "lane", Args: "\x00", DedupeKey: "key"},
		"priority":                {Kind: "work", Lane: "lane", Priority: 1 << 20},
	} {
		if _, err := bulk.EnqueueMany(t.Context(), b.Pool, []queue.Insert{good, bad, good}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs`), 0)
}

func TestEnqueueManyWakesEachLaneOnceAtItsCommit(t *testing.T) {
	t.Parallel()
	b := queuetest.NewBench(t, testdb.New(t))
	next := b.Listen()
	heard := func() string { return next().Payload }
	ins := make([]queue.Insert, 25_000) // more than one statement's
	for n := range ins {
		ins[n] = queue.Insert{Kind: "work", Lane: fmt.Sprint("lane-", n%2)}
	}
	queued, err := bulk.EnqueueMany(t.Context(), b.Pool, ins)
	b.No(err)
	queuetest.Equal(t, "queued", int(queued), len(ins))
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs`), len(ins))
	_, err = b.Q.Enqueue(t.Context(), queue.Insert{Kind: "work", Lane: "last"})
	b.No(err)
	first, second, third := heard(), heard(), heard()
	queuetest.Equal(t, "lanes", first != second && first != "last" && second != "last" && third == "last", true)
}

// Two that have keys in common and take them crosswise: both get through, and each key is queued once.
func TestEnqueueManyMeetsItself(t *testing.T) {
	t.Parallel()
	const keys, rounds = 200, 5
	b := queuetest.NewBench(t, testdb.New(t))
	for round := range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var errs error
		var total int64
		for _, crosswise := range []bool{false, true} {
			wg.Go(func() {
				ins := make([]queue.Insert, 0, keys)
				for n := range keys {
					ins = append(ins, queue.Insert{Kind: "work", Lane: "lane", DedupeKey: fmt.Sprint(round, "-", n)})
				}
				if crosswise {
					slices.Reverse(ins)
				}
				queued, err := bulk.EnqueueMany(t.Context(), b.Pool, ins)
				mu.Lock()
				defer mu.Unlock()
				total, errs = total+queued, errors.Join(errs, err)
			})
		}
		wg.Wait()
		b.No(errs)
		queuetest.Equal(t, "queued", total, keys)
	}
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs`), keys*rounds)
}

// BenchmarkEnqueueMany queues a hundred thousand jobs.
func BenchmarkEnqueueMany(b *testing.B) {
	const many = 100_000
	pool := testdb.New(b)
	ins := make([]queue.Insert, many)
	for n := range ins {
		ins[n] = queue.Insert{Kind: "work", Lane: "lane", Args: map[string]int{"n": n}}
	}
	for b.Loop() {
		if n, err := bulk.EnqueueMany(b.Context(), pool, ins); n != many || err != nil {
			b.Fatal(n, err)
		}
		b.StopTimer()
		if _, err := pool.Exec(b.Context(), `truncate jobs`); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(many*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
