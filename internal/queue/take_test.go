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
	b.t.Helper()
	page, err := look.NewStore(b.pool).RunningPage(b.t.Context(), id-1, 1)
	b.no(err)
	if len(page) != 1 || page[0].ID != id {
		b.t.Fatalf("job %d isn't running: %+v", id, page)
	}
	return page[0]
}

func (b *bench) take(s queue.Seen, t queue.Taking) *queue.Job {
	b.t.Helper()
	after, err := b.q.Take(b.t.Context(), s, t)
	b.no(err)
	return after
}

// run writes a run of a job and pins the job by it.
func (b *bench) run(l *queue.Lease, state string) uuid.UUID {
	b.t.Helper()
	return queuetest.Run(b.t, b.pool, l, state)
}

// What isn't any more as it was seen is left alone, and nothing else is done for it.
func TestTakeRefusesWhatHasChangedSince(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench, l *queue.Lease){
		"ended":               func(b *bench, l *queue.Lease) { b.no(b.complete(l)) },
		"queued again":        func(b *bench, l *queue.Lease) { b.no(b.release(l, queue.Release{})) },
		"granted again":       func(b *bench, l *queue.Lease) { b.no(b.release(l, queue.Release{})); b.one(b.w) },
		"of another worker":   func(b *bench, l *queue.Lease) { b.exec(`update jobs set worker_id = gen_random_uuid()`) },
		"pinned by a new run": func(b *bench, l *queue.Lease) { b.run(l, "running") },
		"renewed": func(b *bench, l *queue.Lease) {
			b.exec(`update jobs set lease_expires_at = clock_timestamp() + interval '1 hour'`)
		},
		"in another phase":     func(b *bench, l *queue.Lease) { b.exec(`update jobs set phase = 'gates'`) },
		"deleted":              func(b *bench, l *queue.Lease) { b.exec(`delete from jobs`) },
		"renewed by a handler": func(b *bench, l *queue.Lease) { b.no(b.tx(l, func(pgx.Tx) error { return nil })) },
		"renewed by a heart":   func(b *bench, l *queue.Lease) { _, err := b.q.Beat(b.t.Context(), b.w, []*queue.Lease{l}); b.no(err) },
		"cancelled meanwhile": func(b *bench, l *queue.Lease) {
			b.no(b.tx(l, func(tx pgx.Tx) error { return l.CancelledTx(b.t.Context(), tx) }))
		},
		"failed for good": func(b *bench, l *queue.Lease) {
			b.no(b.tx(l, func(tx pgx.Tx) error { return l.FailTx(b.t.Context(), tx, queue.Failure{}) }))
		},
		"of a later epoch": func(b *bench, l *queue.Lease) { b.exec(`update jobs set epoch = epoch + 1`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			l := b.running(queue.Insert{})
			b.exec(`update jobs set phase = 'following', lease_expires_at = clock_timestamp() - interval '1 second'`)
			s := b.seen(l.Job().ID)
			change(b, l)
			var rows string
			const all = `select coalesce(string_agg(jobs::text, ''), '') from jobs`
			b.no(b.pool.QueryRow(t.Context(), all).Scan(&rows))
			for _, spend := range []bool{false, true} {
				after := b.take(s, queue.Taking{Spend: spend, Recovery: true, StillExpired: true, StillPhase: true, Within: func(context.Context, pgx.Tx, queue.Job, queue.Job) error {
					t.Error("something was done within")
					return nil
				}})
				equal(t, "nothing was taken", after == nil, true)
			}
			var now string
			b.no(b.pool.QueryRow(t.Context(), all).Scan(&now))
			equal(t, "rows", now, rows)
		})
	}
}

// Lease and phase are looked at only by whoever goes by them.
func TestTakeGoesByNoMoreThanItWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	s := b.seen(b.running(queue.Insert{}).Job().ID)
	b.exec(`update jobs set phase = 'gates', lease_expires_at = clock_timestamp() + interval '1 hour'`)
	equal(t, "taken", b.take(s, queue.Taking{}).State, queue.StateQueued)
}

func TestTakenJobKeepsItsAttemptAndItsRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	l := b.running(queue.Insert{})
	run := b.run(l, "running")
	after := b.take(b.seen(l.Job().ID), queue.Taking{Reason: "worker_dead"})
	job := b.state(l.Job().ID, queue.StateQueued)
	for _, j := range []queue.Job{*after, job} {
		equal(t, "as it is", j.Attempt == 0 && j.Recoveries == 0 && *j.RunID == run && *j.PinnedRoot == b.w.RootID && j.ErrorCode == nil && j.Epoch == 1, true)
	}
	b.is(b.complete(l), queue.ErrLeaseLost)
	equal(t, "granted at once", b.one(b.w).Job().Attempt, 1)
}

func TestSpentAttemptIsSpentOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{BackoffBase: time.Hour, BackoffMax: 4 * time.Hour})
	l := b.running(queue.Insert{MaxAttempts: 2})
	run := b.run(l, "finished")
	b.exec(`update jobs set recoveries = 5`)
	var before, after queue.Job
	b.take(b.seen(l.Job().ID), queue.Taking{
		Reason: "process_dead", Spend: true, Recovery: true, Code: "crashed", Message: "the agent's process is gone\x00",
		Within: func(ctx context.Context, tx pgx.Tx, was, is queue.Job) error {
			before, after = was, is
			_, err := tx.Exec(ctx, `update runs set consumed_at = now() where id = $1 and consumed_at is null`, was.RunID)
			return err
		},
	})
	equal(t, "before", before.State == queue.StateRunning && *before.RunID == run && *before.WorkerID == b.w.ID, true)
	job := b.state(l.Job().ID, queue.StateQueued)
	equal(t, "after", after.State == queue.StateQueued && after.RunID == nil, true)
	equal(t, "attempt", job.Attempt, 1)
	equal(t, "recoveries", job.Recoveries, 5)
	equal(t, "let go of", job.RunID == nil && *job.PinnedRoot == b.w.RootID && job.WorkerID == nil && job.Phase == nil, true)
	equal(t, "why", *job.ErrorCode+": "+*job.Error, "crashed: the agent's process is gone\ufffd")
	within(t, "back-off", time.Until(job.RunAt), 40*time.Minute, 80*time.Minute)
	b.exec(`update jobs set run_at = now()`)
	equal(t, "next", b.one(b.w).Job().Attempt, 2)
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
	l := b.running(queue.Insert{MaxAttempts: 1, ConcurrencyKey: "k"})
	run := b.run(l, "finished")
	b.enqueue(queue.Insert{ConcurrencyKey: "k"})
	s := b.seen(l.Job().ID)
	taking := queue.Taking{Reason: "process_dead", Spend: true, Message: "gone", Within: func(ctx context.Context, tx pgx.Tx, before, after queue.Job) error {
		equal(t, "after", after.State, queue.StateFailed)
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
		b.no(b.pool.QueryRow(t.Context(), `select coalesce(string_agg(name || ' ' || total, ', ' order by name), '') || ' consumed ' || (select count(consumed_at) from runs) from counters`).Scan(&counted))
		return counted
	}
	for _, refuse = range []error{errors.New("hook refused"), errors.New("refused within")} {
		after, err := b.q.Take(t.Context(), s, taking)
		b.is(err, refuse)
		equal(t, "nothing was taken", after == nil, true)
		equal(t, "undone", counts(), " consumed 0")
		equal(t, "still pinned", *b.state(l.Job().ID, queue.StateRunning).RunID, run)
	}
	refuse = nil
	next := b.listen(queue.ChannelJobs)
	b.take(s, taking)
	equal(t, "done", counts(), "reaped 1, told process_dead gone 1 consumed 1")
	job := b.state(l.Job().ID, queue.StateFailed)
	equal(t, "code", *job.ErrorCode, "process_dead")
	equal(t, "let go of", job.RunID == nil, true)
	equal(t, "woken lane", next().Payload, "lane")
	b.take(s, taking)
	equal(t, "once", counts(), "reaped 1, told process_dead gone 1 consumed 1")
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "total", census.Counts[queue.StateFailed], 1)
}

// Whoever wanted the job cancelled gets that, whatever attempts are left; a job whose run may live waits for its root.
func TestTakenJobThatIsToBeCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{OnFailed: func(context.Context, pgx.Tx, queue.Job, string, string) error { return errors.New("told of a failure") }})
	spent, last, plain, pinned := b.running(queue.Insert{}), b.running(queue.Insert{MaxAttempts: 1}), b.running(queue.Insert{}), b.running(queue.Insert{})
	looping := b.running(queue.Insert{})
	for _, l := range []*queue.Lease{spent, last, pinned} {
		b.run(l, "running")
	}
	b.exec(`update jobs set recoveries = 5 where id = $1`, looping.Job().ID)
	for l, want := range map[*queue.Lease]queue.State{
		spent: queue.StateCancelled, last: queue.StateCancelled, plain: queue.StateCancelled, pinned: queue.StateQueued, looping: queue.StateCancelled,
	} {
		_, err := b.q.Cancel(t.Context(), l.Job().ID)
		b.no(err)
		after := b.take(b.seen(l.Job().ID), queue.Taking{Spend: l == spent || l == last, Recovery: l == looping})
		equal(t, "after", after.State, want)
		job := b.state(l.Job().ID, want)
		equal(t, "asked for", job.CancelRequestedAt != nil && (job.RunID != nil) == (l == pinned), true)
	}
}

func TestManyTakersTakeOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	const jobs, takers = 20, 4
	var seen []queue.Seen
	for n := range jobs {
		seen = append(seen, b.seen(b.running(queue.Insert{MaxAttempts: 1 + n%2}).Job().ID))
	}
	var mu sync.Mutex
	taken := map[int64]int{}
	var wg sync.WaitGroup
	for range takers {
		wg.Go(func() {
			for _, s := range seen {
				after, err := b.q.Take(t.Context(), s, queue.Taking{Spend: true, Within: func(ctx context.Context, tx pgx.Tx, _, _ queue.Job) error {
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
	counters, err := tally.NewStore(b.pool).Counters(t.Context())
	b.no(err)
	equal(t, "counted", counters["reaped"], jobs)
	for _, s := range seen {
		equal(t, "taken", taken[s.ID], 1)
		equal(t, "attempts spent", b.get(s.ID).Attempt, 1)
	}
}

// Nobody waits for long behind whoever has locked the row.
func TestTakeLeavesALockedRowToTheNextLook(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{QueryTimeout: time.Hour})
	s := b.seen(b.running(queue.Insert{}).Job().ID)
	unlock := b.lock(s.ID)
	if after, err := b.q.Take(t.Context(), s, queue.Taking{}); db.Code(err) != db.CodeLock || after != nil {
		t.Fatal(after, err)
	}
	unlock()
	equal(t, "then", b.take(s, queue.Taking{}).State, queue.StateQueued)
}

// Workers that die under a run that has ended are a crash loop, however often its result is about to be used; under one
// that lives they aren't.
func TestCrashLoopUnderAFinishedRunEnds(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]queue.State{"finished": queue.StateFailed, "running": queue.StateQueued} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, queue.Config{})
			l := b.running(queue.Insert{})
			run := b.run(l, state)
			for n := 1; n <= queue.MaxRecoveries; n++ {
				_, err := queuetest.TakeHeld(t.Context(), b.pool, b.q, b.w.ID)
				b.no(err)
				job := b.state(l.Job().ID, queue.StateQueued)
				equal(t, "recoveries", job.Recoveries > 0, state == "finished")
				b.no(b.q.RegisterWorker(t.Context(), b.w))
				b.one(b.w)
			}
			b.exec(`update jobs set lease_expires_at = clock_timestamp() - interval '1 second'`)
			_, err := queuetest.TakeExpired(t.Context(), b.pool, b.q)
			b.no(err)
			job := b.state(l.Job().ID, want)
			equal(t, "its result can still be used", *job.RunID == run && *job.PinnedRoot == b.w.RootID, true)
			if want == queue.StateFailed {
				equal(t, "code", *job.ErrorCode, queue.CodeCrashLoop)
				job, err := b.q.Requeue(t.Context(), job.ID)
				b.no(err)
				equal(t, "a person may try again", job.Recoveries, 0)
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
	id := b.enqueue(queue.Insert{})
	b.exec(`update jobs set recoveries = 5`)
	give := func() (state queue.State) {
		l := b.one(b.w)
		if l.Job().Recoveries == 5 && told == nil {
			b.exec(`update jobs set recoveries = 4`)
			told = []string{}
		}
		b.no(b.tx(l, func(tx pgx.Tx) (err error) {
			state, err = l.RecoverTx(t.Context(), tx, queue.Release{}, "again and again")
			return err
		}))
		return state
	}
	equal(t, "reset since", give(), queue.StateQueued)
	equal(t, "recoveries", b.get(id).Recoveries, 5)
	equal(t, "too often", give(), queue.StateFailed)
	equal(t, "code", *b.get(id).ErrorCode, queue.CodeCrashLoop)
	equal(t, "told", strings.Join(told, ", "), "crash_loop again and again")
}
