package queue_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"orch/internal/queue"
)

func TestEnqueueManyWritesWhatEnqueueDoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	at := time.Date(2031, 2, 3, 4, 5, 6, 7000, time.UTC)
	ins := []queue.Insert{
		{Kind: "plain", Lane: "lane"},
		{
			Kind: "full", Lane: "lane", Repo: "repo", Args: map[string]any{"text": "ü\t\"\\", "n": 1.5}, Priority: -7, RunAt: at, MaxAttempts: 9,
			ConcurrencyKey: "key", TaskID: 42, PinnedRoot: b.w.RootID,
		},
	}
	same := slices.Clone(ins)
	for n, in := range ins { // the same with a dedupe key, which is another way in
		in.DedupeKey = fmt.Sprint("many-", n)
		ins = append(ins, in)
		in.DedupeKey = fmt.Sprint("one-", n)
		same = append(same, in)
	}
	queued, err := b.q.EnqueueMany(t.Context(), ins)
	b.no(err)
	equal(t, "queued", queued, 4)
	for _, in := range same {
		_, err := b.q.Enqueue(t.Context(), in)
		b.no(err)
	}
	const essence = `select string_agg((to_jsonb(j) - 'id' - 'created_at' - 'run_at' - 'dedupe_key' || jsonb_build_object(
		'when', case when run_at = created_at then 'now' else run_at::text end, 'deduped', dedupe_key is not null))::text, E'\n' order by id) from `
	var many, one string
	b.no(b.pool.QueryRow(t.Context(), essence+`(select * from jobs order by id limit 4) j`).Scan(&many))
	b.no(b.pool.QueryRow(t.Context(), essence+`(select * from jobs order by id offset 4) j`).Scan(&one))
	equal(t, "rows", many, one)
}

func TestEnqueueManyLeavesOutTwins(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	live := b.enqueue(queue.Insert{DedupeKey: "live"})
	b.no(b.complete(b.one(b.w)))
	b.enqueue(queue.Insert{DedupeKey: "live"})
	heard := listen(t, b)
	job := func(lane, key string) queue.Insert { return queue.Insert{Kind: "work", Lane: lane, DedupeKey: key} }
	queued, err := b.q.EnqueueMany(t.Context(), []queue.Insert{job("lane", "live"), job("other", "new"), job("other", "new"), job("other", ""), job("other", "")})
	b.no(err)
	equal(t, "queued", queued, 3)
	equal(t, "rows", b.count(`select count(*) from jobs where id > $1`, live), 4)
	equal(t, "woken", slices.Sorted(slices.Values([]string{heard(), heard()}))[1], "other")
	queued, err = b.q.EnqueueMany(t.Context(), []queue.Insert{job("lane", "live")})
	b.no(err)
	equal(t, "queued", queued, 0)
	queued, err = b.q.EnqueueMany(t.Context(), nil)
	b.no(err)
	equal(t, "queued", queued, 0)
}

// All or nothing, and said before the database is asked as far as that can be.
func TestEnqueueManyIsOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	good := queue.Insert{Kind: "work", Lane: "lane"}
	for name, bad := range map[string]queue.Insert{
		"no kind": {Lane: "lane"}, "no lane": {Kind: "work"}, "args": {Kind: "work", Lane: "lane", Args: math.Inf(1)},
		"refused by the database": {Kind: "work", Lane: "lane", Args: "\x00"},
		"refused with a key":      {Kind: "work", Lane: "lane", Args: "\x00", DedupeKey: "key"},
		"priority":                {Kind: "work", Lane: "lane", Priority: 1 << 20},
	} {
		if _, err := b.q.EnqueueMany(t.Context(), []queue.Insert{good, bad, good}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	equal(t, "rows", b.count(`select count(*) from jobs`), 0)
}

func TestEnqueueManyWakesEachLaneOnceAtItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	heard := listen(t, b)
	ins := make([]queue.Insert, 25_000) // more than one statement's
	for n := range ins {
		ins[n] = queue.Insert{Kind: "work", Lane: fmt.Sprint("lane-", n%2)}
	}
	queued, err := b.q.EnqueueMany(t.Context(), ins)
	b.no(err)
	equal(t, "queued", int(queued), len(ins))
	equal(t, "rows", b.count(`select count(*) from jobs`), len(ins))
	_, err = b.q.Enqueue(t.Context(), queue.Insert{Kind: "work", Lane: "last"})
	b.no(err)
	first, second, third := heard(), heard(), heard()
	equal(t, "lanes", first != second && first != "last" && second != "last" && third == "last", true)
}

// Two that have keys in common and take them crosswise: both get through, and each key is queued once.
func TestEnqueueManyMeetsItself(t *testing.T) {
	t.Parallel()
	const keys, rounds = 200, 5
	b := newBench(t, queue.Config{})
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
				queued, err := b.q.EnqueueMany(t.Context(), ins)
				mu.Lock()
				defer mu.Unlock()
				total, errs = total+queued, errors.Join(errs, err)
			})
		}
		wg.Wait()
		b.no(errs)
		equal(t, "queued", total, keys)
	}
	equal(t, "rows", b.count(`select count(*) from jobs`), keys*rounds)
}
