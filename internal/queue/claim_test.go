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
	id := b.Enqueue(queue.Insert{})
	lease := b.One(b.W)
	for what, job := range map[string]queue.Job{"lease": lease.Job(), "row": b.state(id, queue.StateRunning)} {
		queuetest.Equal(t, what+": epoch", job.Epoch, 1)
		queuetest.Equal(t, what+": attempt", job.Attempt, 1)
		queuetest.Equal(t, what+": worker", *job.WorkerID, b.W.ID)
		queuetest.Equal(t, what+": root", *job.RootID, b.W.RootID)
		queuetest.Equal(t, what+": pid", *job.PID, b.W.PID)
		queuetest.Equal(t, what+": boot", *job.BootID, b.W.BootID)
		queuetest.Within(t, what+": lease", job.LeaseExpiresAt.Sub(*job.HeartbeatAt), 59*time.Second, 61*time.Second)
	}
	queuetest.Equal(t, "claimed again", len(b.Claim(b.worker(b.W.RootID), 10)), 0)
}

func TestClaimOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := time.Now().Add(-time.Hour)
	low := b.Enqueue(queue.Insert{Priority: -1, RunAt: old})
	second := b.Enqueue(queue.Insert{RunAt: old.Add(time.Minute)})
	first := b.Enqueue(queue.Insert{RunAt: old, ConcurrencyKey: "k"})
	high := b.Enqueue(queue.Insert{Kind: "other", Priority: 5})
	here := b.Enqueue(queue.Insert{Priority: -9, PinnedRoot: b.W.RootID})
	b.Enqueue(queue.Insert{Priority: 9, RunAt: time.Now().Add(time.Hour)})
	b.Enqueue(queue.Insert{Priority: 9, PinnedRoot: queuetest.Root(t, b.Pool)})
	b.Enqueue(queue.Insert{Priority: 9, Kind: "unhandled"})
	b.Enqueue(queue.Insert{Priority: 9, Lane: "elsewhere"})
	// What is pinned here may have a run that goes on: it is first.
	got := append(queuetest.IDs(b.Claim(b.W, 2)), queuetest.IDs(b.Claim(b.W, 10))...)
	if want := []int64{here, high, first, second, low}; !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v", got, want)
	}
}

func TestClaimTakesNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for range 30 {
		b.Enqueue(queue.Insert{})
	}
	queuetest.Equal(t, "limit 0", len(b.Claim(b.W, 0)), 0)
	queuetest.Equal(t, "limit 7", len(b.Claim(b.W, 7)), 7)
	queuetest.Equal(t, "the rest", len(b.Claim(b.W, 100)), 23)
}

func TestClaimHonoursRunAtByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	id := b.Enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	queuetest.Equal(t, "not due", len(b.Claim(b.W, 1)), 0)
	b.Exec(`update jobs set run_at = now() where id = $1`, id)
	queuetest.Equal(t, "due", b.One(b.W).Job().ID, id)
}

func TestClaimOfAPinnedJob(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	other := b.worker(queuetest.Root(t, b.Pool))
	free := b.Enqueue(queue.Insert{PinnedRoot: other.RootID})
	keyed := b.Enqueue(queue.Insert{PinnedRoot: other.RootID, ConcurrencyKey: "k"})
	queuetest.Equal(t, "claimed by another root", len(b.Claim(b.W, 10)), 0)
	got := queuetest.IDs(b.Claim(other, 10))
	slices.Sort(got)
	queuetest.Equal(t, "claimed by its root", slices.Equal(got, []int64{free, keyed}), true)
}

func TestClaimOfOneConcurrencyKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var want []int64
	for range 3 {
		want = append(want, b.Enqueue(queue.Insert{ConcurrencyKey: "k"}))
	}
	b.Enqueue(queue.Insert{ConcurrencyKey: "later", RunAt: time.Now().Add(time.Hour)})
	free := b.Enqueue(queue.Insert{ConcurrencyKey: "free"})
	var got []int64
	for n := range want {
		leases := b.Claim(b.W, 10)
		if n == 0 {
			queuetest.Equal(t, "claimed of two keys", len(leases), 2)
			queuetest.Equal(t, "other key", leases[1].Job().ID, free)
		} else {
			queuetest.Equal(t, "claimed of one key", len(leases), 1)
		}
		got = append(got, leases[0].Job().ID)
		queuetest.Equal(t, "while it runs", len(b.Claim(b.worker(b.W.RootID), 10)), 0)
		b.No(b.complete(leases[0]))
	}
	queuetest.Equal(t, "in order", slices.Equal(got, want), true)
}

func TestTwoWorkersOnOneRow(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	for range 20 {
		id := b.Enqueue(queue.Insert{})
		var wg sync.WaitGroup
		won := make(chan *queue.Lease, 8)
		for range cap(won) {
			w := queuetest.Worker(b.W.RootID)
			wg.Go(func() {
				leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 1})
				if err != nil {
					t.Error(err)
				}
				for _, l := range leases {
					won <- l
				}
			})
		}
		wg.Wait()
		queuetest.Equal(t, "winners", len(won), 1)
		queuetest.Equal(t, "epoch", b.Get(id).Epoch, 1)
		b.No(b.complete(<-won))
	}
}

// Claimers that meet at the same rows still find all there is, each row once.
func TestManyClaimersShareWhatThereIs(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const jobs = 400
	for range jobs {
		b.Enqueue(queue.Insert{})
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]int{}
	for range 8 {
		w := queuetest.Worker(b.W.RootID)
		wg.Go(func() {
			for {
				leases, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: "lane", Kinds: []string{"work"}, Limit: 3})
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
	queuetest.Equal(t, "jobs claimed", len(seen), jobs)
	for id, n := range seen {
		queuetest.Equal(t, fmt.Sprintf("claims of %d", id), n, 1)
	}
}

// A row that another transaction has locked doesn't hide those behind it.
func TestClaimSkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	locked := b.Enqueue(queue.Insert{Priority: 1})
	next := b.Enqueue(queue.Insert{})
	tx, err := b.Pool.Begin(t.Context())
	b.No(err)
	_, err = tx.Exec(t.Context(), `select from jobs where id = $1 for update`, locked)
	b.No(err)
	queuetest.Equal(t, "claimed", b.One(b.W).Job().ID, next)
	queuetest.Equal(t, "nothing else", len(b.Claim(b.W, 1)), 0)
	b.No(tx.Rollback(t.Context()))
	queuetest.Equal(t, "unlocked", b.One(b.W).Job().ID, locked)
}

// While another claimer is at the first job of a key, its second isn't taken instead.
func TestLockedFirstOfAKeyHoldsItsSecondBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	first := b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	b.Enqueue(queue.Insert{ConcurrencyKey: "between"})
	b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	tx, err := b.Pool.Begin(t.Context())
	b.No(err)
	_, err = tx.Exec(t.Context(), `select from jobs where id = $1 for update`, first)
	b.No(err)
	leases := b.Claim(b.W, 10)
	queuetest.Equal(t, "claimed", len(leases) == 1 && *leases[0].Job().ConcurrencyKey == "between", true)
	b.No(tx.Rollback(t.Context()))
	queuetest.Equal(t, "claimed then", b.One(b.W).Job().ID, first)
}

// Two claimers see different firsts of one key when a job of it begins meanwhile: the unique index decides, and the
// loser claims again without that key.
func TestLoserOfAKeyKeepsItsOtherRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	contested := b.Enqueue(queue.Insert{ConcurrencyKey: "k", Priority: 9})
	want := []int64{b.Enqueue(queue.Insert{Priority: 8}), b.Enqueue(queue.Insert{ConcurrencyKey: "other"})}
	winner, err := b.Pool.Begin(t.Context())
	b.No(err)
	defer func() { _ = winner.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = winner.Exec(t.Context(), `insert into jobs (kind, lane, max_attempts, concurrency_key, state, epoch, worker_id, lease_expires_at)
		values ('work', 'elsewhere', 3, 'k', 'running', 1, gen_random_uuid(), now() + interval '1 hour')`)
	b.No(err)
	got := make(chan []int64, 1)
	go func() { got <- queuetest.IDs(b.Claim(b.W, 10)) }()
	queuetest.Until(t, "the loser waits for the winner", func() bool {
		var waiting bool
		b.No(b.Pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waiting))
		return waiting
	})
	b.No(winner.Commit(t.Context()))
	queuetest.Equal(t, "claimed", slices.Equal(queuetest.Wait(t, "the loser's claim", got), want), true)
	queuetest.Equal(t, "epoch of the contested one", b.state(contested, queue.StateQueued).Epoch, 0)
}

func TestWorkerIsRegisteredAndStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var stopped *time.Time
	read := func() {
		b.No(b.Pool.QueryRow(t.Context(), `select stopped_at from workers where id = $1`, b.W.ID).Scan(&stopped))
	}
	read()
	queuetest.Equal(t, "running", stopped == nil, true)
	b.No(b.Q.WorkerStopped(t.Context(), b.W))
	read()
	queuetest.Equal(t, "stopped", stopped != nil, true)
	b.No(b.Q.RegisterWorker(t.Context(), b.W))
	read()
	queuetest.Equal(t, "running again", stopped == nil, true)
	if err := b.Q.RegisterWorker(t.Context(), queuetest.Worker(uuid.New())); err == nil {
		t.Fatal("registered under a root that nobody bound")
	}
}
