package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
)

func idsOf(seen []queue.Seen) []int64 {
	ids := []int64{}
	for _, s := range seen {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

func nothing(context.Context, pgx.Tx, []queue.Seen) error { return nil }

// crowd are so many running jobs.
func (b *bench) crowd(n int) (seen []queue.Seen) {
	b.T.Helper()
	for range n {
		seen = append(seen, b.seen(b.Running(queue.Insert{}).Job().ID))
	}
	return seen
}

// Those that aren't as they were seen are nobody's any more; those that need something of their own are left for it.
func TestTakeManyTakesOnlyWhatIsAsSeenAndNeedsNoMore(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	seen := b.crowd(8)
	id := func(n int) int64 { return seen[n].ID }
	b.Exec(`update jobs set epoch = epoch + 1 where id = $1`, id(0))
	b.Exec(`update jobs set worker_id = gen_random_uuid() where id = $1`, id(1))
	b.Exec(`update jobs set state = 'succeeded', finished_at = now(), worker_id = null, lease_expires_at = null where id = $1`, id(2))
	b.Exec(`update jobs set cancel_requested_at = now() where id = $1`, id(3))
	b.Exec(`update jobs set recoveries = $2 where id = $1`, id(4), queue.MaxRecoveries)
	b.Exec(`update jobs set run_id = gen_random_uuid() where id = $1`, id(5))
	var told []int64
	taken, left, err := b.Q.TakeMany(t.Context(), seen, func(_ context.Context, _ pgx.Tx, taken []queue.Seen) error {
		told = append(told, idsOf(taken)...)
		return nil
	})
	b.No(err)
	queuetest.Equal(t, "taken", slices.Equal(idsOf(taken), []int64{id(6), id(7)}) && slices.Equal(told, idsOf(taken)), true)
	queuetest.Equal(t, "left", slices.Equal(idsOf(left), []int64{id(3), id(4), id(5)}), true)
	for _, s := range taken {
		job := b.state(s.ID, queue.StateQueued)
		queuetest.Equal(t, "given back", job.Attempt == 0 && job.Recoveries == 1 && job.Epoch == s.Epoch && job.WorkerID == nil && job.Host == nil, true)
	}
	for n := range 6 {
		if n != 2 {
			b.state(id(n), queue.StateRunning)
		}
	}
	taken, left, err = b.Q.TakeMany(t.Context(), nil, nothing)
	queuetest.Equal(t, "none", err == nil && taken == nil && left == nil, true)
}

func TestTakeManyLeavesLockedRowsForLater(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Hour})
	seen := b.crowd(4)
	unlock := b.lock(seen[1].ID)
	taken, left, err := b.Q.TakeMany(t.Context(), seen, nothing)
	unlock()
	queuetest.Equal(t, "code", db.Code(err), db.CodeLock)
	queuetest.Equal(t, "taken", slices.Equal(idsOf(taken), []int64{seen[0].ID, seen[2].ID, seen[3].ID}), true)
	queuetest.Equal(t, "left", slices.Equal(idsOf(left), []int64{seen[1].ID}), true)
}

func TestTakeManyIsUndoneWithWhatFollows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	seen, undone := b.crowd(3), errors.New("undone")
	taken, left, err := b.Q.TakeMany(t.Context(), seen, func(context.Context, pgx.Tx, []queue.Seen) error { return undone })
	b.Is(err, undone)
	queuetest.Equal(t, "taken", len(taken), 0)
	queuetest.Equal(t, "left", len(left), 3)
	for _, s := range seen {
		b.state(s.ID, queue.StateRunning)
	}
}

func TestTakeManyWakesTheLane(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	seen := b.crowd(3)
	next := b.Listen()
	_, _, err := b.Q.TakeMany(t.Context(), seen, nothing)
	b.No(err)
	queuetest.Equal(t, "woken lane", next().Payload, "lane")
}
