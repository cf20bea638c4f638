package queuetest

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/look"
)

// TakeHeld takes all that a dead worker holds, and notes that it is gone: the attempts are given back, and each taking
// counts as a recovery, but not under a run that lives. The jobs are returned as they became, beside the errors of those that
// couldn't be taken.
func TakeHeld(ctx context.Context, pool *pgxpool.Pool, q *queue.Queue, worker uuid.UUID) ([]queue.Job, error) {
	held, err := look.NewStore(pool).HeldBy(ctx, worker)
	if err != nil {
		return nil, err
	}
	taken, err := take(ctx, q, held, queue.Taking{Reason: "worker_dead"})
	return taken, errors.Join(err, look.NewStore(pool).NoteGone(ctx, worker))
}

// TakeDead takes what the dead workers of a boot held, as TakeHeld does.
func TakeDead(ctx context.Context, pool *pgxpool.Pool, q *queue.Queue, boot, namespace string, dead func(queue.Worker) bool) (taken []queue.Job, err error) {
	workers, err := look.NewStore(pool).RunningOfBoot(ctx, boot, namespace)
	for _, w := range workers {
		if !dead(w) {
			continue
		}
		jobs, failed := TakeHeld(ctx, pool, q, w.ID)
		taken, err = append(taken, jobs...), errors.Join(err, failed)
	}
	return taken, err
}

// TakeExpired takes the jobs whose lease has run out, whoever holds them, as TakeHeld does.
func TakeExpired(ctx context.Context, pool *pgxpool.Pool, q *queue.Queue) (taken []queue.Job, err error) {
	const limit = 1000
	for after, full := int64(0), true; full; {
		page, err := look.NewStore(pool).RunningPage(ctx, after, limit)
		if err != nil {
			return taken, err
		}
		var late []queue.Seen
		for _, s := range page {
			if after = s.ID; s.Expired {
				late = append(late, s)
			}
		}
		jobs, err := take(ctx, q, late, queue.Taking{Reason: "lease_expired", StillExpired: true})
		if taken = append(taken, jobs...); err != nil {
			return taken, err
		}
		full = len(page) == limit
	}
	return taken, nil
}

func take(ctx context.Context, q *queue.Queue, seen []queue.Seen, t queue.Taking) (taken []queue.Job, err error) {
	for _, s := range seen {
		t.Recovery = s.RunID == nil || s.RunFinished
		after, failed := q.Take(ctx, s, t)
		if err = errors.Join(err, failed); after != nil {
			taken = append(taken, *after)
		}
	}
	return taken, err
}
