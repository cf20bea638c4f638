package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/overview"
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
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "total", census.Counts[queue.StateCancelled], 1)
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
		workers, err := look.NewStore(b.pool).RunningOfBoot(t.Context(), "boot", "ns")
		b.no(err)
		for _, w := range workers {
			ids = append(ids, w.ID)
		}
		return ids
	}
	equal(t, "may be dead", slices.Equal(ofBoot(), []uuid.UUID{b.w.ID, alive.ID, other.ID}), true)
	jobs, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
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
	jobs, err = queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
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

	jobs, err := queuetest.TakeExpired(t.Context(), b.pool, b.q)
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
	jobs, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	b.is(err, refuse)
	equal(t, "taken", len(jobs) == 1 && jobs[0].ID == good.Job().ID, true)
	b.state(bad.Job().ID, queue.StateRunning)
	refuse = nil
	jobs, err = queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
	b.no(err)
	equal(t, "taken", len(jobs) == 1 && jobs[0].ID == bad.Job().ID, true)
}
