package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
	"orch/internal/queue/look"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
)

// seen looks at one running job.
func (b *bench) seen(id int64) queue.Seen {
	b.T.Helper()
	page, err := look.NewStore(b.Pool).RunningPage(b.T.Context(), id-1, 1)
	b.No(err)
	if len(page) != 1 || page[0].ID != id {
		b.T.Fatalf("job %d isn't running: %+v", id, page)
	}
	return page[0]
}

func (b *bench) take(s queue.Seen, t queue.Taking) *queue.Job {
	b.T.Helper()
	after, err := b.Q.Take(b.T.Context(), s, t)
	b.No(err)
	return after
}

// run writes a run of a job and pins the job by it.
func (b *bench) run(l *queue.Lease, state string) uuid.UUID {
	b.T.Helper()
	return queuetest.Run(b.T, b.Pool, l, state)
}

// What isn't any more as it was seen is left alone, and nothing else is done for it.
func TestTakeRefusesWhatHasChangedSince(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench, l *queue.Lease){
		"ended":               func(b *bench, l *queue.Lease) { b.No(b.complete(l)) },
		"queued again":        func(b *bench, l *queue.Lease) { b.No(b.release(l, queue.Release{})) },
		"granted again":       func(b *bench, l *queue.Lease) { b.No(b.release(l, queue.Release{})); b.One(b.W) },
		"of another worker":   func(b *bench, l *queue.Lease) { b.Exec(`update jobs set worker_id = gen_random_uuid()`) },
		"pinned by a new run": func(b *bench, l *queue.Lease) { b.run(l, "running") },
		"renewed": func(b *bench, l *queue.Lease) {
			b.Exec(`update jobs set lease_expires_at = clock_timestamp() + interval '1 hour'`)
		},
		"in another phase":     func(b *bench, l *queue.Lease) { b.Exec(`update jobs set phase = 'gates'`) },
		"deleted":              func(b *bench, l *queue.Lease) { b.Exec(`delete from jobs`) },
		"renewed by a handler": func(b *bench, l *queue.Lease) { b.No(b.Tx(l, func(pgx.Tx) error { return nil })) },
		"renewed by a heart":   func(b *bench, l *queue.Lease) { _, err := b.Q.Beat(b.T.Context(), b.W, []*queue.Lease{l}); b.No(err) },
		"cancelled meanwhile": func(b *bench, l *queue.Lease) {
			b.No(b.Tx(l, func(tx pgx.Tx) error { return l.CancelledTx(b.T.Context(), tx) }))
		},
		"failed for good": func(b *bench, l *queue.Lease) {
			b.No(b.Tx(l, func(tx pgx.Tx) error { return l.FailTx(b.T.Context(), tx, queue.Failure{}) }))
		},
		"of a later epoch": func(b *bench, l *queue.Lease) { b.Exec(`update jobs set epoch = epoch + 1`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			l := b.Running(queue.Insert{})
			b.Exec(`update jobs set phase = 'following', lease_expires_at = clock_timestamp() - interval '1 second'`)
			s := b.seen(l.Job().ID)
			change(b, l)
			var rows string
			const all = `select coalesce(string_agg(jobs::text, ''), '') from jobs`
			b.No(b.Pool.QueryRow(t.Context(), all).Scan(&rows))
			for _, spend := range []bool{false, true} {
				after := b.take(s, queue.Taking{Spend: spend, Recovery: true, StillExpired: true, StillPhase: true, Within: func(context.Context, pgx.Tx, queue.Job, queue.Job) error {
					t.Error("something was done within")
					return nil
				}})
				queuetest.Equal(t, "nothing was taken", after == nil, true)
			}
			var now string
			b.No(b.Pool.QueryRow(t.Context(), all).Scan(&now))
			queuetest.Equal(t, "rows", now, rows)
		})
	}
}

// Lease and phase are looked at only by whoever goes by them.
func TestTakeGoesByNoMoreThanItWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	s := b.seen(b.Running(queue.Insert{}).Job().ID)
	b.Exec(`update jobs set phase = 'gates', lease_expires_at = clock_timestamp() + interval '1 hour'`)
	queuetest.Equal(t, "taken", b.take(s, queue.Taking{}).State, queue.StateQueued)
}

func TestTakenJobKeepsItsAttemptAndItsRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	l := b.Running(queue.Insert{})
	run := b.run(l, "running")
	after := b.take(b.seen(l.Job().ID), queue.Taking{Reason: "worker_dead"})
	job := b.state(l.Job().ID, queue.StateQueued)
	for _, j := range []queue.Job{*after, job} {
		queuetest.Equal(t, "as it is", j.Attempt == 0 && j.Recoveries == 0 && *j.RunID == run && *j.PinnedRoot == b.W.RootID && j.ErrorCode == nil && j.Epoch == 1, true)
	}
	b.Is(b.complete(l), queue.ErrLeaseLost)
	queuetest.Equal(t, "granted at once", b.One(b.W).Job().Attempt, 1)
}

func TestSpentAttemptIsSpentOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{BackoffBase: time.Hour, BackoffMax: 4 * time.Hour})
	l := b.Running(queue.Insert{MaxAttempts: 2})
	run := b.run(l, "finished")
	b.Exec(`update jobs set recoveries = 5`)
	var before, after queue.Job
	b.take(b.seen(l.Job().ID), queue.Taking{
		Reason: "process_dead", Spend: true, Recovery: true, Code: "crashed", Message: "the agent's process is gone\x00",
		Within: func(ctx context.Context, tx pgx.Tx, was, is queue.Job) error {
			before, after = was, is
			_, err := tx.Exec(ctx, `update runs set consumed_at = now() where id = $1 and consumed_at is null`, was.RunID)
			return err
		},
	})
	queuetest.Equal(t, "before", before.State == queue.StateRunning && *before.RunID == run && *before.WorkerID == b.W.ID, true)
	job := b.state(l.Job().ID, queue.StateQueued)
	queuetest.Equal(t, "after", after.State == queue.StateQueued && after.RunID == nil, true)
	queuetest.Equal(t, "attempt", job.Attempt, 1)
	queuetest.Equal(t, "recoveries", job.Recoveries, 5)
	queuetest.Equal(t, "let go of", job.RunID == nil && *job.PinnedRoot == b.W.RootID && job.WorkerID == nil && job.Phase == nil, true)
	queuetest.Equal(t, "why", *job.ErrorCode+": "+*job.Error, "crashed: the agent's process is gone\ufffd")
	queuetest.Within(t, "back-off", time.Until(job.RunAt), 40*time.Minute, 80*time.Minute)
	b.Exec(`update jobs set run_at = now()`)
	queuetest.Equal(t, "next", b.One(b.W).Job().Attempt, 2)
}

// The last attempt: the failure, whoever is to be told of it and what is done within are one transaction.
func TestLastAttemptFailsTogetherWithAllThatFollows(t *testing.T) {
	t.Parallel()
	var refuse error
	b := newBench(t, queue.Config{OnFailed: func(ctx context.Context, tx pgx.Tx, job queue.Job, code, message string) error {
		if err := tally.AddCounterTx(ctx, tx, "told "+code+" "+message, 1); err != nil {
			return err
		}
		if refuse != nil && strings.HasPrefix(refuse.Error(), "hook") {
			return fmt.Errorf("%w: %w", refuse, pgx.ErrNoRows) // not to be taken for a job that somebody else has
		}
		return nil
	}})
	l := b.Running(queue.Insert{MaxAttempts: 1, ConcurrencyKey: "k"})
	run := b.run(l, "finished")
	b.Enqueue(queue.Insert{ConcurrencyKey: "k"})
	s := b.seen(l.Job().ID)
	taking := queue.Taking{Reason: "process_dead", Spend: true, Message: "gone", Within: func(ctx context.Context, tx pgx.Tx, before, after queue.Job) error {
		queuetest.Equal(t, "after", after.State, queue.StateFailed)
		if _, err := tx.Exec(ctx, `update runs set consumed_at = now() where id = $1`, before.RunID); err != nil {
			return err
		}
		if err := tally.AddCounterTx(ctx, tx, "reaped", 1); err != nil {
			return err
		}
		if refuse != nil {
			return fmt.Errorf("%w: %w", refuse, pgx.ErrNoRows)
		}
		return nil
	}}
	counts := func() string {
		var counted string
		b.No(b.Pool.QueryRow(t.Context(), `select coalesce(string_agg(name || ' ' || total, ', ' order by name), '') || ' consumed ' || (select count(consumed_at) from runs) from counters`).Scan(&counted))
		return counted
	}
	for _, refuse = range []error{errors.New("hook refused"), errors.New("refused within")} {
		after, err := b.Q.Take(t.Context(), s, taking)
		b.Is(err, refuse)
		queuetest.Equal(t, "nothing was taken", after == nil, true)
		queuetest.Equal(t, "undone", counts(), " consumed 0")
		queuetest.Equal(t, "still pinned", *b.state(l.Job().ID, queue.StateRunning).RunID, run)
	}
	refuse = nil
	next := b.Listen()
	b.take(s, taking)
	queuetest.Equal(t, "done", counts(), "reaped 1, told process_dead gone 1 consumed 1")
	job := b.state(l.Job().ID, queue.StateFailed)
	queuetest.Equal(t, "code", *job.ErrorCode, "process_dead")
	queuetest.Equal(t, "let go of", job.RunID == nil, true)
	queuetest.Equal(t, "woken lane", next().Payload, "lane")
	b.take(s, taking)
	queuetest.Equal(t, "once", counts(), "reaped 1, told process_dead gone 1 consumed 1")
	census, err := overview.NewReader(b.Pool).Census(t.Context())
	b.No(err)
	queuetest.Equal(t, "total", census.Counts[queue.StateFailed], 1)
}

// Whoever wanted the job cancelled gets that, whatever attempts are left; a job whose run may live waits for its root.
func TestTakenJobThatIsToBeCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error { return errors.New("told of a failure") }})
	spent, last, plain, pinned := b.Running(queue.Insert{}), b.Running(queue.Insert{MaxAttempts: 1}), b.Running(queue.Insert{}), b.Running(queue.Insert{})
	looping := b.Running(queue.Insert{})
	for _, l := range []*queue.Lease{spent, last, pinned} {
		b.run(l, "running")
	}
	b.Exec(`update jobs set recoveries = 5 where id = $1`, looping.Job().ID)
	for l, want := range map[*queue.Lease]queue.State{
		spent: queue.StateCancelled, last: queue.StateCancelled, plain: queue.StateCancelled, pinned: queue.StateQueued, looping: queue.StateCancelled,
	} {
		_, err := b.Q.Cancel(t.Context(), l.Job().ID)
		b.No(err)
		after := b.take(b.seen(l.Job().ID), queue.Taking{Spend: l == spent || l == last, Recovery: l == looping})
		queuetest.Equal(t, "after", after.State, want)
		job := b.state(l.Job().ID, want)
		queuetest.Equal(t, "asked for", job.CancelRequestedAt != nil && (job.RunID != nil) == (l == pinned), true)
	}
}

func TestManyTakersTakeOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const jobs, takers = 20, 4
	var seen []queue.Seen
	for n := range jobs {
		seen = append(seen, b.seen(b.Running(queue.Insert{MaxAttempts: 1 + n%2}).Job().ID))
	}
	var mu sync.Mutex
	taken := map[int64]int{}
	var wg sync.WaitGroup
	for range takers {
		wg.Go(func() {
			for _, s := range seen {
				after, err := b.Q.Take(t.Context(), s, queue.Taking{Spend: true, Within: func(ctx context.Context, tx pgx.Tx, _, _ queue.Job) error {
					return tally.AddCounterTx(ctx, tx, "reaped", 1)
				}})
				if err != nil && db.Code(err) != db.CodeLock { // the first one was slow
					t.Error(err)
				}
				mu.Lock()
				if after != nil {
					taken[s.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	counters, err := tally.NewStore(b.Pool).Counters(t.Context())
	b.No(err)
	queuetest.Equal(t, "counted", counters["reaped"], jobs)
	for _, s := range seen {
		queuetest.Equal(t, "taken", taken[s.ID], 1)
		queuetest.Equal(t, "attempts spent", b.Get(s.ID).Attempt, 1)
	}
}

// Nobody waits for long behind whoever has locked the row.
func TestTakeLeavesALockedRowToTheNextLook(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Hour})
	s := b.seen(b.Running(queue.Insert{}).Job().ID)
	unlock := b.lock(s.ID)
	if after, err := b.Q.Take(t.Context(), s, queue.Taking{}); db.Code(err) != db.CodeLock || after != nil {
		t.Fatal(after, err)
	}
	unlock()
	queuetest.Equal(t, "then", b.take(s, queue.Taking{}).State, queue.StateQueued)
}

// Workers that die under a run that has ended are a crash loop, however often its result is about to be used; under one
// that lives they aren't.
func TestCrashLoopUnderAFinishedRunEnds(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]queue.State{"finished": queue.StateFailed, "running": queue.StateQueued} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			l := b.Running(queue.Insert{})
			run := b.run(l, state)
			for n := 1; n <= queue.MaxRecoveries; n++ {
				_, err := queuetest.TakeHeld(t.Context(), b.Pool, b.Q, b.W.ID)
				b.No(err)
				job := b.state(l.Job().ID, queue.StateQueued)
				queuetest.Equal(t, "recoveries", job.Recoveries > 0, state == "finished")
				b.No(b.Q.RegisterWorker(t.Context(), b.W))
				b.One(b.W)
			}
			b.Exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second'`)
			_, err := queuetest.TakeExpired(t.Context(), b.Pool, b.Q)
			b.No(err)
			job := b.state(l.Job().ID, want)
			queuetest.Equal(t, "its result can still be used", *job.RunID == run && *job.PinnedRoot == b.W.RootID, true)
			if want == queue.StateFailed {
				queuetest.Equal(t, "code", *job.ErrorCode, queue.CodeCrashLoop)
				job, err := b.Q.Requeue(t.Context(), job.ID)
				b.No(err)
				queuetest.Equal(t, "a person may try again", job.Recoveries, 0)
			}
		})
	}
}

// The handler's own giving back goes by the row: what a beat has reset since the claim counts no more.
func TestRecoveredJobIsCountedByItsRow(t *testing.T) {
	t.Parallel()
	var told []string
	b := newBench(t, queue.Config{OnFailed: func(_ context.Context, _ pgx.Tx, _ queue.Job, code, message string) error {
		told = append(told, code+" "+message)
		return nil
	}})
	id := b.Enqueue(queue.Insert{})
	b.Exec(`update jobs set recoveries = 5`)
	give := func() (state queue.State) {
		l := b.One(b.W)
		if l.Job().Recoveries == 5 && told == nil {
			b.Exec(`update jobs set recoveries = 4`)
			told = []string{}
		}
		b.No(b.Tx(l, func(tx pgx.Tx) (err error) {
			state, err = l.RecoverTx(t.Context(), tx, queue.Release{}, "again and again")
			return err
		}))
		return state
	}
	queuetest.Equal(t, "reset since", give(), queue.StateQueued)
	queuetest.Equal(t, "recoveries", b.Get(id).Recoveries, 5)
	queuetest.Equal(t, "too often", give(), queue.StateFailed)
	queuetest.Equal(t, "code", *b.Get(id).ErrorCode, queue.CodeCrashLoop)
	queuetest.Equal(t, "told", strings.Join(told, ", "), "crash_loop again and again")
}
