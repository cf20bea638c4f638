package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

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

// While another claimer is at the first job of a key, its second isn't taken instead.
func TestLockedFirstOfAKeyHoldsItsSecondBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	first := b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	b.enqueue(queue.Insert{ConcurrencyKey: "between"})
	b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	tx, err := b.pool.Begin(t.Context())
	b.no(err)
	_, err = tx.Exec(t.Context(), `select from jobs where id = $1 for update`, first)
	b.no(err)
	leases := b.claim(b.w, 10)
	equal(t, "claimed", len(leases) == 1 && *leases[0].Job().ConcurrencyKey == "between", true)
	b.no(tx.Rollback(t.Context()))
	equal(t, "claimed then", b.one(b.w).Job().ID, first)
}

// Two claimers see different firsts of one key when a job of it begins meanwhile: the unique index decides, and the
// loser claims again without that key.
func TestLoserOfAKeyKeepsItsOtherRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	contested := b.enqueue(queue.Insert{ConcurrencyKey: "k", Priority: 9})
	want := []int64{b.enqueue(queue.Insert{Priority: 8}), b.enqueue(queue.Insert{ConcurrencyKey: "other"})}
	winner, err := b.pool.Begin(t.Context())
	b.no(err)
	defer func() { _ = winner.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = winner.Exec(t.Context(), `insert into jobs (kind, lane, max_attempts, concurrency_key, state, epoch, worker_id, lease_expires_at)
		values ('work', 'elsewhere', 3, 'k', 'running', 1, gen_random_uuid(), now() + interval '1 hour')`)
	b.no(err)
	got := make(chan []int64, 1)
	go func() { got <- ids(b.claim(b.w, 10)) }()
	queuetest.Until(t, "the loser waits for the winner", func() bool {
		var waiting bool
		b.no(b.pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting))
		return waiting
	})
	b.no(winner.Commit(t.Context()))
	equal(t, "claimed", slices.Equal(queuetest.Wait(t, "the loser's claim", got), want), true)
	equal(t, "epoch of the contested one", b.state(contested, queue.StateQueued).Epoch, 0)
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
