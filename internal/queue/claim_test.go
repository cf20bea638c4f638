package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestClaimGrantsOneEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{LeaseTTL: time.Minute})
	id := b.enqueue(queue.Insert{})
	lease := b.one(b.w)
	for what, job := range map[string]queue.Job{"lease": lease.Job(), "row": b.state(id, queue.StateRunning)} {
		equal(t, what+": epoch", job.Epoch, 1)
		equal(t, what+": attempt", job.Attempt, 1)
		equal(t, what+": worker", *job.WorkerID, b.w.ID)
		equal(t, what+": root", *job.RootID, b.w.RootID)
		equal(t, what+": pid", *job.PID, b.w.PID)
		equal(t, what+": boot", *job.BootID, b.w.BootID)
		within(t, what+": lease", job.LeaseExpiresAt.Sub(*job.HeartbeatAt), 59*time.Second, 61*time.Second)
	}
	equal(t, "claimed again", len(b.claim(b.worker(b.w.RootID), 10)), 0)
}

func TestClaimOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := time.Now().Add(-time.Hour)
	low := b.enqueue(queue.Insert{Priority: -1, RunAt: old})
	second := b.enqueue(queue.Insert{RunAt: old.Add(time.Minute)})
	first := b.enqueue(queue.Insert{RunAt: old, ConcurrencyKey: "k"})
	high := b.enqueue(queue.Insert{Kind: "other", Priority: 5})
	here := b.enqueue(queue.Insert{Priority: -9, PinnedRoot: b.w.RootID})
	b.enqueue(queue.Insert{Priority: 9, RunAt: time.Now().Add(time.Hour)})
	b.enqueue(queue.Insert{Priority: 9, PinnedRoot: queuetest.Root(t, b.pool)})
	b.enqueue(queue.Insert{Priority: 9, Kind: "unhandled"})
	b.enqueue(queue.Insert{Priority: 9, Lane: "elsewhere"})
	// What is pinned here may have a run that goes on: it is first.
	got := append(ids(b.claim(b.w, 2)), ids(b.claim(b.w, 10))...)
	if want := []int64{here, high, first, second, low}; !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
}

func TestClaimTakesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for range 30 {
		b.enqueue(queue.Insert{})
	}
	equal(t, "limit 0", len(b.claim(b.w, 0)), 0)
	equal(t, "limit 7", len(b.claim(b.w, 7)), 7)
	equal(t, "the rest", len(b.claim(b.w, 100)), 23)
}

func TestClaimHonoursRunAtByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	id := b.enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	equal(t, "not due", len(b.claim(b.w, 1)), 0)
	b.exec(`update jobs set run_at = now() where id = $1`, id)
	equal(t, "due", b.one(b.w).Job().ID, id)
}

func TestClaimOfAPinnedJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	other := b.worker(queuetest.Root(t, b.pool))
	free := b.enqueue(queue.Insert{PinnedRoot: other.RootID})
	keyed := b.enqueue(queue.Insert{PinnedRoot: other.RootID, ConcurrencyKey: "k"})
	equal(t, "claimed by another root", len(b.claim(b.w, 10)), 0)
	got := ids(b.claim(other, 10))
	slices.Sort(got)
	equal(t, "claimed by its root", slices.Equal(got, []int64{free, keyed}), true)
}

func TestClaimOfOneConcurrencyKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var want []int64
	for range 3 {
		want = append(want, b.enqueue(queue.Insert{ConcurrencyKey: "k"}))
	}
	b.enqueue(queue.Insert{ConcurrencyKey: "later", RunAt: time.Now().Add(time.Hour)})
	free := b.enqueue(queue.Insert{ConcurrencyKey: "free"})
	var got []int64
	for n := range want {
		leases := b.claim(b.w, 10)
		if n == 0 {
			equal(t, "claimed of two keys", len(leases), 2)
			equal(t, "other key", leases[1].Job().ID, free)
		} else {
			equal(t, "claimed of one key", len(leases), 1)
		}
		got = append(got, leases[0].Job().ID)
		equal(t, "while it runs", len(b.claim(b.worker(b.w.RootID), 10)), 0)
		b.no(b.complete(leases[0]))
	}
	equal(t, "in order", slices.Equal(got, want), true)
}

// A claim looks at a window of keys; those behind it have their turn too.
func TestClaimReachesEveryKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const keys = 700
	b.exec(`insert into jobs (kind, lane, max_attempts, concurrency_key, pinned_root)
		select 'work', 'lane', 3, 'k' || lpad(n::text, 4, '0'), case when n < $1 then gen_random_uuid() end
		from generate_series(1, $1) n`, keys)
	var got []*queue.Lease
	for range 10 {
		got = append(got, b.claim(b.w, 1)...)
	}
	equal(t, "claimed", len(got), 1)
	equal(t, "key", *got[0].Job().ConcurrencyKey, fmt.Sprintf("k%04d", keys))
}

func TestTwoWorkersOnOneRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for range 20 {
		id := b.enqueue(queue.Insert{})
		var wg sync.WaitGroup
		won := make(chan *queue.Lease, 8)
		for range cap(won) {
			w := queuetest.Worker(b.w.RootID)
			wg.Go(func() {
				leases, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 1})
				if err != nil {
					t.Error(err)
				}
				for _, l := range leases {
					won <- l
				}
			})
		}
		wg.Wait()
		equal(t, "winners", len(won), 1)
		equal(t, "epoch", b.get(id).Epoch, 1)
		b.no(b.complete(<-won))
	}
}

// Claimers that meet at the same rows still find all there is, each row once.
func TestManyClaimersShareWhatThereIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const jobs = 400
	for range jobs {
		b.enqueue(queue.Insert{})
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]int{}
	for range 8 {
		w := queuetest.Worker(b.w.RootID)
		wg.Go(func() {
			for {
				leases, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 3})
				if err != nil {
					t.Error(err)
				}
				if len(leases) == 0 {
					return
				}
				mu.Lock()
				for _, l := range leases {
					seen[l.Job().ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	equal(t, "jobs claimed", len(seen), jobs)
	for id, n := range seen {
		equal(t, fmt.Sprintf("claims of %d", id), n, 1)
	}
}

// A row that another transaction has locked doesn't hide those behind it.
func TestClaimSkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	locked := b.enqueue(queue.Insert{Priority: 1})
	next := b.enqueue(queue.Insert{})
	tx, err := b.pool.Begin(t.Context())
	b.no(err)
	_, err = tx.Exec(t.Context(), `select from jobs where id = $1 for update`, locked)
	b.no(err)
	equal(t, "claimed", b.one(b.w).Job().ID, next)
	equal(t, "nothing else", len(b.claim(b.w, 1)), 0)
	b.no(tx.Rollback(t.Context()))
	equal(t, "unlocked", b.one(b.w).Job().ID, locked)
}

// Of one key never two jobs run, and of several claimers' batches nothing gets lost.
func TestConcurrencyKeyNeverTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 40).Draw(rt, "keys") // 0 = no key
		priorities := rapid.SliceOfN(rapid.IntRange(0, 2), len(keys), len(keys)).Draw(rt, "priorities")
		workers := rapid.IntRange(1, 6).Draw(rt, "workers")
		limit := rapid.IntRange(1, 5).Draw(rt, "limit")
		b.exec(`truncate jobs`)
		for n, key := range keys {
			in := queue.Insert{Kind: "work", Lane: "lane", Priority: priorities[n]}
			if key > 0 {
				in.ConcurrencyKey = fmt.Sprint("k", key)
			}
			b.enqueue(in)
		}
		r := &runners{running: map[string]int{}, left: len(keys)}
		var wg sync.WaitGroup
		for range workers {
			w := queuetest.Worker(b.w.RootID)
			wg.Go(func() { r.run(t.Context(), b.q, w, limit) })
		}
		wg.Wait()
		if r.problem != "" {
			rt.Fatal(r.problem)
		}
		counts, err := b.q.Depth(t.Context())
		if err != nil || len(counts) != 0 {
			rt.Fatalf("left: %+v, %v", counts, err)
		}
	})
}

// runners complete what they claim and watch the keys.
type runners struct {
	mu      sync.Mutex
	running map[string]int
	left    int
	problem string
}

func (r *runners) run(ctx context.Context, q *queue.Queue, w queue.Worker, limit int) {
	for r.more() {
		leases, err := q.Claim(ctx, queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: limit})
		if err != nil {
			r.fail(err.Error())
			return
		}
		for _, l := range leases {
			r.enter(l.Job().ConcurrencyKey, 1)
		}
		for _, l := range leases {
			r.enter(l.Job().ConcurrencyKey, -1)
			if err := completeOn(ctx, l); err != nil {
				r.fail(err.Error())
				return
			}
			r.done()
		}
	}
}

func (r *runners) enter(key *string, by int) {
	if key == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[*key] += by
	if r.running[*key] > 1 {
		r.problem = "two jobs of key " + *key
	}
}

func (r *runners) more() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left > 0 && r.problem == ""
}

func (r *runners) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left--
}

func (r *runners) fail(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = problem
}

func TestWorkerIsRegisteredAndStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var stopped *time.Time
	read := func() {
		b.no(b.pool.QueryRow(t.Context(), `select stopped_at from workers where id = $1`, b.w.ID).Scan(&stopped))
	}
	read()
	equal(t, "running", stopped == nil, true)
	b.no(b.q.WorkerStopped(t.Context(), b.w))
	read()
	equal(t, "stopped", stopped != nil, true)
	b.no(b.q.RegisterWorker(t.Context(), b.w))
	read()
	equal(t, "running again", stopped == nil, true)
	if err := b.q.RegisterWorker(t.Context(), queuetest.Worker(uuid.New())); err == nil {
		t.Fatal("registered under a root that nobody bound")
	}
}
