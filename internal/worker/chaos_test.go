package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// chaosKeys is how many concurrency keys the jobs of the stress test share.
const chaosKeys = 120

// chaosSteps is how many steps long jobs have. A process that was stopped is to find others in the middle of its jobs.
const chaosSteps = 12

// codeChaos is the code of jobs that fail for good.
const codeChaos = "chaos"

// chaosHandlers are what worker processes of the stress test do: all ways in which a job can write and end. They take some
// time, so that processes are killed and stopped in the middle of each of them.
func chaosHandlers(q *queue.Queue) handlers {
	return handlers{
		// Ends with other jobs in one flush.
		"plain": fn(func(ctx context.Context, l *queue.Lease) error {
			takes(ctx, 20*time.Millisecond)
			return noted(ctx, l, "last")
		}),
		// Ends inside its own transaction, together with a write that must never be there twice.
		"own end": fn(func(ctx context.Context, l *queue.Lease) error {
			takes(ctx, 20*time.Millisecond)
			return l.Tx(ctx, func(tx pgx.Tx) error {
				return errors.Join(note(ctx, tx, l, "end"), l.CompleteTx(ctx, tx))
			})
		}),
		"steps": fn(func(ctx context.Context, l *queue.Lease) error {
			for n := range chaosSteps {
				takes(ctx, 150*time.Millisecond)
				l.SetProgress(map[string]int{"step": n})
				if err := noted(ctx, l, strconv.Itoa(n)); err != nil {
					return err
				}
			}
			return nil
		}),
		// Doesn't listen to anybody, so only the fence stops it.
		"stubborn": fn(func(ctx context.Context, l *queue.Lease) error {
			ctx = context.WithoutCancel(ctx)
			for n := range chaosSteps {
				takes(ctx, 150*time.Millisecond)
				if err := noted(ctx, l, strconv.Itoa(n)); err != nil {
					return err
				}
			}
			return l.Tx(ctx, func(tx pgx.Tx) error {
				return errors.Join(note(ctx, tx, l, "end"), l.CompleteTx(ctx, tx))
			})
		}),
		// Holds its row for a while.
		"long transaction": fn(func(ctx context.Context, l *queue.Lease) error {
			return l.Tx(ctx, func(tx pgx.Tx) error {
				takes(ctx, 150*time.Millisecond)
				return note(ctx, tx, l, "last")
			})
		}),
		"flaky": fn(func(ctx context.Context, l *queue.Lease) error {
			takes(ctx, 10*time.Millisecond)
			if err := noted(ctx, l, "last"); err != nil {
				return err
			}
			switch rand.IntN(10) {
			case 0, 1, 2:
				return queue.RetryAfter(30*time.Millisecond, codeChaos, nil)
			case 3:
				panic("chaos")
			case 4:
				return queue.Terminal(codeChaos, nil)
			default:
				return nil
			}
		}),
		"snooze": fn(func(ctx context.Context, l *queue.Lease) error {
			if rand.IntN(2) == 0 {
				return &queue.SnoozeError{After: 50 * time.Millisecond, WaitingFor: "luck"}
			}
			return noted(ctx, l, "last")
		}),
		// Queues another job, which is there if, and only if, its own write is.
		"parent": fn(func(ctx context.Context, l *queue.Lease) error {
			return l.Tx(ctx, func(tx pgx.Tx) error {
				_, err := queue.EnqueueTx(ctx, tx, queue.Insert{
					Kind: "plain", Lane: "lane", MaxAttempts: chaosAttempts, DedupeKey: fmt.Sprintf("child of %d", l.Job().ID),
				})
				return errors.Join(err, note(ctx, tx, l, "last"))
			})
		}),
		"poison": fn(func(_ context.Context, l *queue.Lease) error { return l.Job().Decode(&struct{ Wanted int }{}) }),
		"asks": fn(func(ctx context.Context, l *queue.Lease) error {
			if err := l.Check(ctx); err != nil {
				return err
			}
			_, err := q.Get(ctx, l.Job().ID)
			return errors.Join(err, noted(ctx, l, "last"))
		}),
	}
}

const chaosAttempts = 1000 // nothing fails for want of attempts

// chaosJob makes a job of any sort.
func chaosJob(n int) queue.Insert {
	kinds := []string{
		"plain", "plain", "own end", "own end", "steps", "stubborn", "long transaction", "flaky", "snooze", "parent", "poison", "asks",
	}
	in := queue.Insert{
		Kind: kinds[rand.IntN(len(kinds))], Lane: "lane", MaxAttempts: chaosAttempts, Priority: rand.IntN(3),
		Args: map[string]int{"n": n},
	}
	if rand.IntN(2) == 0 {
		in.ConcurrencyKey = fmt.Sprintf("key %d", rand.IntN(chaosKeys))
	}
	if rand.IntN(10) == 0 {
		in.DedupeKey = fmt.Sprintf("twin %d", rand.IntN(500))
	}
	return in
}

// takes is work that takes about that long.
func takes(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
