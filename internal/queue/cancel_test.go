package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	queued := b.enqueue(queue.Insert{DedupeKey: "k"})
	job, err := b.q.Cancel(t.Context(), queued)
	b.no(err)
	equal(t, "state", job.State, queue.StateCancelled)
	b.state(queued, queue.StateCancelled)
	job, err = b.q.Cancel(t.Context(), queued)
	b.no(err)
	equal(t, "again", job.State, queue.StateCancelled)
	_, err = b.q.Cancel(t.Context(), 999)
	b.is(err, queue.ErrNotFound)
	done := b.running(queue.Insert{})
	b.no(b.complete(done))
	job, err = b.q.Cancel(t.Context(), done.Job().ID)
	b.no(err)
	equal(t, "an ended one", job.State, queue.StateSucceeded)
	counts, err := b.q.Counts(t.Context())
	b.no(err)
	equal(t, "total", counts[queue.StateCancelled], 1)
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{MaxAttempts: 1, DedupeKey: "k"})
	id := lease.Job().ID
	_, err := b.q.Requeue(t.Context(), id)
	b.is(err, queue.ErrNotEnded)
	b.no(b.tx(lease, func(tx pgx.Tx) error { return lease.FailTx(t.Context(), tx, queue.Failure{Code: "x"}) }))
	twin := b.enqueue(queue.Insert{DedupeKey: "k"})
	_, err = b.q.Requeue(t.Context(), id)
	b.is(err, queue.ErrDuplicate)
	_, err = b.q.Cancel(t.Context(), twin)
	b.no(err)
	job, err := b.q.Requeue(t.Context(), id)
	b.no(err)
	equal(t, "state", job.State, queue.StateQueued)
	equal(t, "attempts", job.MaxAttempts, 2)
	equal(t, "code", job.ErrorCode == nil, true)
	lease = b.one(b.w)
	equal(t, "epoch", lease.Job().Epoch, 2)
	b.no(b.complete(lease))
	_, err = b.q.Requeue(t.Context(), id)
	b.is(err, queue.ErrNotEnded)
	_, err = b.q.Requeue(t.Context(), 999)
	b.is(err, queue.ErrNotFound)
}

func TestWhatADeadWorkerHeldIsTaken(t *testing.T) {
	t.Parallel()
	var failed []string
	b := newBench(t, queue.Config{OnFailed: func(_ context.Context, _ pgx.Tx, _ queue.Job, code, _ string) error {
		failed = append(failed, code)
		return nil
	}})
	alive, other := b.worker(b.w.RootID), b.worker(queuetest.Root(t, b.pool))
	claimBy := func(w queue.Worker) *queue.Lease { b.enqueue(queue.Insert{}); return b.one(w) }
	plain, asked, crashing, pinned := claimBy(b.w), claimBy(b.w), claimBy(b.w), claimBy(b.w)
	kept, elsewhere := claimBy(alive), claimBy(other)
	_, err := b.q.Cancel(t.Context(), asked.Job().ID)
	b.no(err)
	b.no(b.tx(pinned, func(tx pgx.Tx) error { return pinned.PinTx(t.Context(), tx, uuid.New()) }))
	b.exec(`update jobs set recoveries = 5 where id = any($1)`, ids([]*queue.Lease{crashing, pinned}))

	ofBoot := func() (ids []uuid.UUID) {
		workers, err := b.q.RunningOfBoot(t.Context(), "boot", "ns")
		b.no(err)
		for _, w := range workers {
			ids = append(ids, w.ID)
		}
		return ids
	}
	equal(t, "may be dead", slices.Equal(ofBoot(), []uuid.UUID{b.w.ID, alive.ID, other.ID}), true)
	jobs, err := queuetest.TakeHeld(t.Context(), b.q, b.w.ID)
	b.no(err)
	equal(t, "taken", len(jobs), 4)
	job := b.state(plain.Job().ID, queue.StateQueued)
	equal(t, "recoveries", job.Recoveries, 1)
	equal(t, "attempt", job.Attempt, 0)
	b.state(asked.Job().ID, queue.StateCancelled)
	equal(t, "code", *b.state(crashing.Job().ID, queue.StateFailed).ErrorCode, queue.CodeCrashLoop)
	equal(t, "hook", slices.Equal(failed, []string{queue.CodeCrashLoop}), true)
	equal(t, "its run may live", b.state(pinned.Job().ID, queue.StateQueued).Recoveries, 5)
	b.state(kept.Job().ID, queue.StateRunning)
	b.state(elsewhere.Job().ID, queue.StateRunning)
	b.is(b.complete(plain), queue.ErrLeaseLost)

	equal(t, "may be dead later", slices.Equal(ofBoot(), []uuid.UUID{alive.ID, other.ID}), true)
	jobs, err = queuetest.TakeHeld(t.Context(), b.q, b.w.ID)
	b.no(err)
	equal(t, "taken again", len(jobs), 0)
}

// A worker that is stopped, wedged or gone without a trace has lost its jobs once its leases are over, whichever root
// it serves; one that beats has not.
func TestWhatIsHeldByALeaseThatRanOutIsTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error { return nil }})
	far := b.worker(queuetest.Root(t, b.pool))
	claimBy := func(w queue.Worker) *queue.Lease { b.enqueue(queue.Insert{}); return b.one(w) }
	late, fresh, elsewhere, crashing, pinned := claimBy(b.w), claimBy(b.w), claimBy(far), claimBy(b.w), claimBy(b.w)
	b.no(b.tx(pinned, func(tx pgx.Tx) error { return pinned.PinTx(t.Context(), tx, uuid.New()) }))
	b.exec(`update jobs set recoveries = 5 where id = any($1)`, ids([]*queue.Lease{crashing, pinned}))
	b.exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second' where id <> $1`, fresh.Job().ID)

	jobs, err := queuetest.TakeExpired(t.Context(), b.q)
	b.no(err)
	equal(t, "taken", len(jobs), 4)
	for _, lease := range []*queue.Lease{late, elsewhere} {
		job := b.state(lease.Job().ID, queue.StateQueued)
		equal(t, "attempt given back", job.Attempt, 0)
		equal(t, "recoveries", job.Recoveries, 1)
		b.is(b.complete(lease), queue.ErrLeaseLost)
	}
	equal(t, "code", *b.state(crashing.Job().ID, queue.StateFailed).ErrorCode, queue.CodeCrashLoop)
	equal(t, "its run may live", *b.state(pinned.Job().ID, queue.StateQueued).PinnedRoot, b.w.RootID)
	b.state(fresh.Job().ID, queue.StateRunning)
	b.no(b.complete(fresh))
}

func TestPinRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	far := b.worker(queuetest.Root(t, b.pool))
	id := b.enqueue(queue.Insert{})
	lease := b.one(b.w)
	b.no(b.tx(lease, func(tx pgx.Tx) error {
		b.no(lease.PinRootTx(t.Context(), tx, far.RootID))
		return lease.ReleaseTx(t.Context(), tx, queue.Release{})
	}))
	equal(t, "nothing for this root", len(b.claim(b.w, 1)), 0)
	equal(t, "the other root's", b.one(far).Job().ID, id)
}

// A job that needs its root no more is anybody's who serves its repository, unless it has a run there.
func TestFreeRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	far := b.worker(queuetest.Root(t, b.pool))
	id := b.enqueue(queue.Insert{PinnedRoot: b.w.RootID})
	lease := b.one(b.w)
	b.no(b.tx(lease, func(tx pgx.Tx) error {
		b.no(lease.PinTx(t.Context(), tx, uuid.New()))
		return lease.FreeRootTx(t.Context(), tx)
	}))
	for _, job := range []queue.Job{b.get(id), lease.Job()} {
		equal(t, "root of the run", *job.PinnedRoot, b.w.RootID)
	}
	b.no(b.tx(lease, func(tx pgx.Tx) error {
		b.no(lease.UnpinTx(t.Context(), tx))
		return lease.FreeRootTx(t.Context(), tx)
	}))
	for _, job := range []queue.Job{b.get(id), lease.Job()} {
		equal(t, "it is free", job.PinnedRoot == nil, true)
	}
	b.no(b.release(lease, queue.Release{}))
	equal(t, "another root's", b.one(far).Job().ID, id)
}

func TestCancelRequestIsSeenUnderTheFence(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	for _, want := range []bool{false, true} {
		b.no(b.tx(lease, func(tx pgx.Tx) error {
			requested, err := lease.CancelRequestedTx(t.Context(), tx)
			equal(t, "requested", requested, want)
			return err
		}))
		b.no(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := queue.CancelTx(t.Context(), tx, lease.Job().ID)
			return err
		}))
	}
}

// A job that can't be taken, since nobody can be told of its failure, stays as it is for the next look.
func TestTakenJobWhoseFailureCannotBeToldStays(t *testing.T) {
	t.Parallel()
	refuse := errors.New("refused")
	b := newBench(t, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error { return refuse }})
	bad, good := b.running(queue.Insert{}), b.running(queue.Insert{})
	b.exec(`update jobs set recoveries = 5 where id = $1`, bad.Job().ID)
	jobs, err := queuetest.TakeHeld(t.Context(), b.q, b.w.ID)
	b.is(err, refuse)
	equal(t, "taken", len(jobs) == 1 && jobs[0].ID == good.Job().ID, true)
	b.state(bad.Job().ID, queue.StateRunning)
	refuse = nil
	jobs, err = queuetest.TakeHeld(t.Context(), b.q, b.w.ID)
	b.no(err)
	equal(t, "taken", len(jobs) == 1 && jobs[0].ID == bad.Job().ID, true)
}

func TestListAndGet(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var all []int64
	for n := range 5 {
		all = append(all, b.enqueue(queue.Insert{TaskID: int64(n%2 + 1), RunAt: time.Now().Add(time.Duration(n) * time.Hour)}))
	}
	b.one(b.w)
	list := func(f queue.Filter) (got []int64) {
		jobs, err := b.q.List(t.Context(), f)
		b.no(err)
		for _, job := range jobs {
			got = append(got, job.ID)
		}
		return got
	}
	for _, c := range []struct {
		f    queue.Filter
		want []int64
	}{
		{queue.Filter{}, []int64{all[4], all[3], all[2], all[1], all[0]}},
		{queue.Filter{Limit: 2}, []int64{all[4], all[3]}},
		{queue.Filter{Limit: 2, Before: all[3]}, []int64{all[2], all[1]}},
		{queue.Filter{State: queue.StateRunning}, []int64{all[0]}},
		{queue.Filter{TaskID: 2}, []int64{all[3], all[1]}},
		{queue.Filter{TaskID: 2, State: queue.StateRunning}, nil},
	} {
		if got := list(c.f); !slices.Equal(got, c.want) {
			t.Fatalf("%+v: %v, want %v", c.f, got, c.want)
		}
	}
	_, err := b.q.Get(t.Context(), 999)
	b.is(err, queue.ErrNotFound)
}

func TestDepth(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	b.running(queue.Insert{Kind: "other"})
	failed := b.running(queue.Insert{Kind: "other"})
	b.no(b.tx(failed, func(tx pgx.Tx) error { return failed.FailTx(t.Context(), tx, queue.Failure{}) }))
	b.enqueue(queue.Insert{RunAt: time.Now().Add(-time.Hour), ConcurrencyKey: "k"})
	b.enqueue(queue.Insert{PinnedRoot: uuid.New()})
	b.enqueue(queue.Insert{RunAt: time.Now().Add(time.Hour)})
	b.exec(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null where id = $1`, b.enqueue(queue.Insert{}))
	depth, err := b.q.Depth(t.Context())
	b.no(err)
	equal(t, "rows", len(depth), 2)
	equal(t, "other", depth[0], queue.Depth{Kind: "other", Lane: "lane", Running: 1, Failed: 1})
	work := depth[1]
	within(t, "oldest", *work.OldestQueued, 59*time.Minute, 61*time.Minute)
	work.OldestQueued = nil
	equal(t, "work", work, queue.Depth{Kind: "work", Lane: "lane", Queued: 3})
}

// The lookup sees the successor of the job that it waited for.
func TestActiveForTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	find := func() (job *queue.Job) {
		b.no(db.InTx(t.Context(), b.pool, func(tx pgx.Tx) (err error) {
			job, err = queue.ActiveForTaskTx(t.Context(), tx, 7)
			return err
		}))
		return job
	}
	equal(t, "none", find() == nil, true)
	in := queue.Insert{Kind: "work", Lane: "lane", DedupeKey: queue.TaskKey(7), TaskID: 7}
	lease := b.running(in)
	equal(t, "running", find().ID, lease.Job().ID)

	locked, found := make(chan int64, 1), make(chan *queue.Job, 1)
	var next queue.Inserted
	var wg sync.WaitGroup
	b.no(b.tx(lease, func(tx pgx.Tx) (err error) {
		wg.Go(func() { locked <- 1; found <- find() })
		<-locked
		queuetest.Until(t, "the lookup waits for the lock", func() (waits bool) {
			b.no(b.pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits))
			return waits
		})
		b.no(lease.CompleteTx(t.Context(), tx))
		next, err = queue.EnqueueTx(t.Context(), tx, in)
		return err
	}))
	wg.Wait()
	equal(t, "successor", (<-found).ID, next.ID)
}
