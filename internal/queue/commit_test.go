package queue_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
)

const commit = "commit\x00" // as it is sent

// The COMMIT went through and its answer didn't come: the lease finds out that the job has ended.
func TestUnansweredCommitThatHappened(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	b.No(lease.Tx(t.Context(), func(tx pgx.Tx) error {
		proxy.Set(queuetest.CutAfter, commit)
		return lease.CompleteTx(t.Context(), tx)
	}))
	queuetest.Equal(t, "cut", proxy.Hits() > 0, true)
	queuetest.Equal(t, "ended", lease.Outcome(), queue.OutcomeSucceeded)
	queuetest.Equal(t, "lost", lease.Lost(), false)
	b.state(lease.Job().ID, queue.StateSucceeded)
}

// It never reached the server: nothing has ended, and the end may be written anew.
func TestUnansweredCommitThatDidNotHappen(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	err := lease.Tx(t.Context(), func(tx pgx.Tx) error {
		proxy.Set(queuetest.CutBefore, commit)
		return lease.CompleteTx(t.Context(), tx)
	})
	b.Is(err, queue.ErrUnavailable)
	queuetest.Equal(t, "ended", lease.Ended() || lease.Lost(), false)
	proxy.Set(queuetest.Pass, "")
	b.state(lease.Job().ID, queue.StateRunning)
	b.No(b.complete(lease))
	queuetest.Equal(t, "ended", lease.Ended(), true)
}

// With the database away the outcome stays open, and whatever is written next finds it out. There is no second end.
func TestUnsureEndIsResolvedByTheNextTx(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode queuetest.Mode
		want queue.Outcome
	}{
		"happened":      {queuetest.DieAfter, queue.OutcomeSucceeded},
		"didn't happen": {queuetest.DieBefore, queue.OutcomeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, proxy := viaProxy(t, queue.Config{QueryTimeout: 5 * time.Second})
			lease := b.Running(queue.Insert{})
			b.beat(lease)
			unsure(t, b, proxy, lease, c.mode)
			queuetest.Equal(t, "ended or lost", lease.Ended() || lease.Lost(), false)
			proxy.Set(queuetest.Pass, "")

			// A beat may see the row gone: not a loss, not an orphan.
			queuetest.Until(t, "a beat comes through", func() bool {
				beat, err := b.Q.Beat(t.Context(), b.W, []*queue.Lease{lease})
				queuetest.Equal(t, "lost or orphan", len(beat.Lost)+beat.Orphans, 0)
				return err == nil
			})
			err := lease.Tx(t.Context(), func(tx pgx.Tx) error {
				return lease.FailTx(t.Context(), tx, queue.Failure{Code: "second"})
			})
			if c.want == queue.OutcomeSucceeded {
				b.Is(err, queue.ErrEnded)
			} else {
				b.No(err)
			}
			queuetest.Equal(t, "outcome", lease.Outcome(), c.want)
			b.state(lease.Job().ID, queue.State(c.want))
			census, err := overview.NewReader(b.Pool).Census(t.Context())
			b.No(err)
			queuetest.Equal(t, "ends", census.Counts[queue.StateSucceeded]+census.Counts[queue.StateFailed], 1)
		})
	}
}

// unsure makes a lease whose end was cut off, with nobody left to ask.
func unsure(t *testing.T, b *bench, proxy *queuetest.Proxy, lease *queue.Lease, mode queuetest.Mode) {
	t.Helper()
	err := lease.Tx(t.Context(), func(tx pgx.Tx) error {
		proxy.Set(mode, commit)
		return lease.CompleteTx(t.Context(), tx)
	})
	b.Is(err, queue.ErrUnavailable)
}

// The row was taken by somebody else while the end was in doubt, and that end never happened: a loss.
func TestUnsureEndThatWasLost(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: 5 * time.Second})
	lease := b.Running(queue.Insert{})
	unsure(t, b, proxy, lease, queuetest.DieBefore)
	proxy.Set(queuetest.Pass, "")
	b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null`)
	b.Is(b.complete(lease), queue.ErrLeaseLost)
	queuetest.Equal(t, "lost", lease.Lost() && !lease.Ended(), true)
	b.state(lease.Job().ID, queue.StateQueued)
}

// The backend dies under an open transaction: definite, nothing was kept.
func TestTerminatedBackend(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	err := b.Tx(lease, func(tx pgx.Tx) error {
		b.No(lease.CompleteTx(t.Context(), tx))
		var pid int
		b.No(tx.QueryRow(t.Context(), `select pg_backend_pid()`).Scan(&pid))
		b.Exec(`select pg_terminate_backend($1, 10000)`, pid)
		return nil
	})
	b.Is(err, queue.ErrUnavailable)
	queuetest.Equal(t, "ended or lost", lease.Ended() || lease.Lost(), false)
	b.No(b.complete(lease))
}

// Or under a statement: the handler's error says that the database was away.
func TestTerminatedBackendUnderAStatement(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	b.Is(b.Tx(lease, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `select pg_terminate_backend(pg_backend_pid())`)
		return err
	}), queue.ErrUnavailable)
	b.No(b.complete(lease))
}
