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
	queued := b.Enqueue(queue.Insert{DedupeKey: "k"})
	job, err := b.Q.Cancel(t.Context(), queued)
	b.No(err)
	queuetest.Equal(t, "state", job.State, queue.StateCancelled)
	b.state(queued, queue.StateCancelled)
	job, err = b.Q.Cancel(t.Context(), queued)
	b.No(err)
	queuetest.Equal(t, "again", job.State, queue.StateCancelled)
	_, err = b.Q.Cancel(t.Context(), 999)
	b.Is(err, queue.ErrNotFound)
	done := b.Running(queue.Insert{})
	b.No(b.complete(done))
	job, err = b.Q.Cancel(t.Context(), done.Job().ID)
	b.No(err)
	queuetest.Equal(t, "an ended one", job.State, queue.StateSucceeded)
	census, err := overview.NewReader(b.Pool).Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "total", census.Counts[queue.StateCancelled], 1)
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{MaxAttempts: 1, DedupeKey: "k"})
	id := lease.Job().ID
	_, err := b.Q.Requeue(t.Context(), id)
	b.Is(err, queue.ErrNotEnded)
	b.No(b.Tx(lease, func(tx pgx.Tx) error { return lease.FailTx(t.Context(), tx, queue.Failure{Code: "x"}) }))
	twin := b.Enqueue(queue.Insert{DedupeKey: "k"})
	_, err = b.Q.Requeue(t.Context(), id)
	b.Is(err, queue.ErrDuplicate)
	_, err = b.Q.Cancel(t.Context(), twin)
	b.No(err)
	job, err := b.Q.Requeue(t.Context(), id)
	b.No(err)
	queuetest.Equal(t, "state", job.State, queue.StateQueued)
	queuetest.Equal(t, "attempts", job.MaxAttempts, 2)
	queuetest.Equal(t, "code", job.ErrorCode == nil, true)
	lease = b.One(b.W)
	queuetest.Equal(t, "epoch", lease.Job().Epoch, 2)
	b.No(b.complete(lease))
	_, err = b.Q.Requeue(t.Context(), id)
	b.Is(err, queue.ErrNotEnded)
	_, err = b.Q.Requeue(t.Context(), 999)
	b.Is(err, queue.ErrNotFound)
}

func TestWhatADeadWorkerHeldIsTaken(t *testing.T) {
	t.Parallel()
	var failed []string
	b := newBench(t, queue.Config{OnFailed: func(_ context.Context, _ pgx.Tx, _ queue.Job, code, _ string) error {
		failed = append(failed, code)
		return nil
	}})
	alive, other := b.worker(b.W.RootID), b.worker(queuetest.Root(t, b.Pool))
	claimBy := func(w queue.Worker) *queue.Lease { b.Enqueue(queue.Insert{}); return b.One(w) }
	plain, asked, crashing, pinned := claimBy(b.W), claimBy(b.W), claimBy(b.W), claimBy(b.W)
	kept, elsewhere := claimBy(alive), claimBy(other)
	_, err := b.Q.Cancel(t.Context(), asked.Job().ID)
	b.No(err)
	b.No(b.Tx(pinned, func(tx pgx.Tx) error { return pinned.PinTx(t.Context(), tx, uuid.New()) }))
	b.Exec(`update jobs set recoveries = 5 where id = any($1)`, queuetest.IDs([]*queue.Lease{crashing, pinned}))

	ofBoot := func() (ids []uuid.UUID) {
		workers, err := look.NewStore(b.Pool).RunningOfBoot(t.Context(), "boot", "ns")
		b.No(err)
		for _, w := range workers {
			ids = append(ids, w.ID)
		}
		return ids
	}
	queuetest.Equal(t, "may be dead", slices.Equal(ofBoot(), []uuid.UUID{b.W.ID, alive.ID, other.ID}), true)
	jobs, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	queuetest.Equal(t, "taken", len(jobs), 4)
	job := b.state(plain.Job().ID, queue.StateQueued)
	queuetest.Equal(t, "recoveries", job.Recoveries, 1)
	queuetest.Equal(t, "attempt", job.Attempt, 0)
	b.state(asked.Job().ID, queue.StateCancelled)
	queuetest.Equal(t, "code", *b.state(crashing.Job().ID, queue.StateFailed).ErrorCode, queue.CodeCrashLoop)
	queuetest.Equal(t, "hook", slices.Equal(failed, []string{queue.CodeCrashLoop}), true)
	queuetest.Equal(t, "its run may live", b.state(pinned.Job().ID, queue.StateQueued).Recoveries, 5)
	b.state(kept.Job().ID, queue.StateRunning)
	b.state(elsewhere.Job().ID, queue.StateRunning)
	b.Is(b.complete(plain), queue.ErrLeaseLost)

	queuetest.Equal(t, "may be dead later", slices.Equal(ofBoot(), []uuid.UUID{alive.ID, other.ID}), true)
	jobs, err = queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	queuetest.Equal(t, "taken again", len(jobs), 0)
}

// A worker that is stopped, wedged or gone without a trace has lost its jobs once its leases are over, whichever root
// it serves; one that beats has not.
func TestWhatIsHeldByALeaseThatRanOutIsTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error { return nil }})
	far := b.worker(queuetest.Root(t, b.Pool))
	claimBy := func(w queue.Worker) *queue.Lease { b.Enqueue(queue.Insert{}); return b.One(w) }
	late, fresh, elsewhere, crashing, pinned := claimBy(b.W), claimBy(b.W), claimBy(far), claimBy(b.W), claimBy(b.W)
	b.No(b.Tx(pinned, func(tx pgx.Tx) error { return pinned.PinTx(t.Context(), tx, uuid.New()) }))
	b.Exec(`update jobs set recoveries = 5 where id = any($1)`, queuetest.IDs([]*queue.Lease{crashing, pinned}))
	b.Exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second' where id <> $1`, fresh.Job().ID)

	jobs, err := queuetest.TakeExpired(t.Context(), b.Pool, b.Q)
	b.No(err)
	queuetest.Equal(t, "taken", len(jobs), 4)
	for _, lease := range []*queue.Lease{late, elsewhere} {
		job := b.state(lease.Job().ID, queue.StateQueued)
		queuetest.Equal(t, "attempt given back", job.Attempt, 0)
		queuetest.Equal(t, "recoveries", job.Recoveries, 1)
		b.Is(b.complete(lease), queue.ErrLeaseLost)
	}
	queuetest.Equal(t, "code", *b.state(crashing.Job().ID, queue.StateFailed).ErrorCode, queue.CodeCrashLoop)
	queuetest.Equal(t, "its run may live", *b.state(pinned.Job().ID, queue.StateQueued).PinnedRoot, b.W.RootID)
	b.state(fresh.Job().ID, queue.StateRunning)
	b.No(b.complete(fresh))
}

func TestPinRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	far := b.worker(queuetest.Root(t, b.Pool))
	id := b.Enqueue(queue.Insert{})
	lease := b.One(b.W)
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.PinRootTx(t.Context(), tx, far.RootID))
		return lease.ReleaseTx(t.Context(), tx, queue.Release{})
	}))
	queuetest.Equal(t, "nothing for this root", len(b.Claim(b.W, 1)), 0)
	queuetest.Equal(t, "the other root's", b.One(far).Job().ID, id)
}

// A job that needs its root no more is anybody's who serves its repository, unless it has a run there.
func TestFreeRoot(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	far := b.worker(queuetest.Root(t, b.Pool))
	id := b.Enqueue(queue.Insert{PinnedRoot: b.W.RootID})
	lease := b.One(b.W)
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.PinTx(t.Context(), tx, uuid.New()))
		return lease.FreeRootTx(t.Context(), tx)
	}))
	for _, job := range []queue.Job{b.Get(id), lease.Job()} {
		queuetest.Equal(t, "root of the run", *job.PinnedRoot, b.W.RootID)
	}
	b.No(b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.UnpinTx(t.Context(), tx))
		return lease.FreeRootTx(t.Context(), tx)
	}))
	for _, job := range []queue.Job{b.Get(id), lease.Job()} {
		queuetest.Equal(t, "it is free", job.PinnedRoot == nil, true)
	}
	b.No(b.release(lease, queue.Release{}))
	queuetest.Equal(t, "another root's", b.One(far).Job().ID, id)
}

func TestCancelRequestIsSeenUnderTheFence(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	for _, want := range []bool{false, true} {
		b.No(b.Tx(lease, func(tx pgx.Tx) error {
			requested, err := lease.CancelRequestedTx(t.Context(), tx)
			queuetest.Equal(t, "requested", requested, want)
			return err
		}))
		b.No(pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
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
	bad, good := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Exec(`update jobs set recoveries = 5 where id = $1`, bad.Job().ID)
	jobs, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.Is(err, refuse)
	queuetest.Equal(t, "taken", len(jobs) == 1 && jobs[0].ID == good.Job().ID, true)
	b.state(bad.Job().ID, queue.StateRunning)
	refuse = nil
	jobs, err = queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
	b.No(err)
	queuetest.Equal(t, "taken", len(jobs) == 1 && jobs[0].ID == bad.Job().ID, true)
}
