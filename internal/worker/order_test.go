package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/pause"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

// journal keeps the ids of jobs in the order in which they ran.
type journal struct {
	mu  sync.Mutex
	ids []int64
}

func (j *journal) handler() worker.Handler {
	return fn(func(_ context.Context, l *queue.Lease) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ids = append(j.ids, l.Job().ID)
		return nil
	})
}

func (j *journal) all() []int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]int64(nil), j.ids...)
}

func TestHigherPriorityRunsFirst(t *testing.T) {
	t.Parallel()
	var ran journal
	b := newBench(t, handlers{"k": ran.handler()}, func(b *bench) { b.cfg.Lanes["lane"] = 1 })
	want := make([]int64, 5)
	for _, priority := range []int{0, 4, 2, 1, 3} {
		want[4-priority] = b.add(queue.Insert{Kind: "k", Priority: priority})
	}
	b.start()
	b.stats(worker.Stats{Claimed: 5, Succeeded: 5})
	for n, id := range ran.all() {
		equal(t, "job", id, want[n])
	}
}

func TestJobRunsNotBeforeItsTimeAndThenWithoutBeingWoken(t *testing.T) {
	t.Parallel()
	var ran journal
	b := newBench(t, handlers{"k": ran.handler()}, func(b *bench) { b.cfg.Poll = 20 * time.Millisecond })
	far := b.add(queue.Insert{Kind: "k", RunAt: time.Now().Add(time.Hour)})
	soon := b.add(queue.Insert{Kind: "k", RunAt: time.Now().Add(300 * time.Millisecond)})
	b.start()
	job := b.until(soon, queue.StateSucceeded)
	equal(t, "before its time", job.StartedAt.Before(job.RunAt), false)
	equal(t, "the other", b.get(far).State, queue.StateQueued)
	_, err := b.pool.Exec(t.Context(), `update jobs set run_at = now() where id = $1`, far)
	b.no(err)
	b.until(far, queue.StateSucceeded)
}

func TestKindWithoutAHandlerIsLeftAlone(t *testing.T) {
	t.Parallel()
	var ran journal
	b := newBench(t, handlers{"k": ran.handler()}).start()
	other := b.add(queue.Insert{Kind: "unknown", Priority: 9})
	b.until(b.add(queue.Insert{Kind: "k"}), queue.StateSucceeded)
	equal(t, "epoch", b.get(other).Epoch, 0)
}

func TestTwoWorkersNeverRunOneRowTwice(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	watch(t, pool)
	hs := handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error { return noted(ctx, l, "end") })}
	b := benchOn(t, pool, pool, hs)
	const jobs = 200
	for n := range jobs {
		in := queue.Insert{Kind: "k"}
		if n%2 == 0 {
			in.ConcurrencyKey = "one at a time"
		}
		b.add(in)
	}
	for range 2 {
		benchOn(t, pool, pool, hs, func(b *bench) { b.cfg.Lanes["lane"] = 8; b.cfg.Poll = 20 * time.Millisecond }).start()
	}
	queuetest.Until(t, "all ended", func() bool {
		census, err := overview.NewReader(b.pool).Census(t.Context())
		b.no(err)
		return census.Counts[queue.StateSucceeded] == jobs
	})
	judge(t, pool)
	var grants int
	b.no(pool.QueryRow(t.Context(), `select count(*) from transitions where became = 'running'`).Scan(&grants))
	equal(t, "grants", grants, jobs)
}

// What it waits for is shown meanwhile.
func TestSnoozedJobComesBackWithItsAttempt(t *testing.T) {
	t.Parallel()
	attempts := make(chan int, 10)
	b := newBench(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		attempts <- l.Job().Attempt
		if l.Job().Epoch < 3 {
			return &queue.SnoozeError{After: 30 * time.Millisecond, WaitingFor: "ci"}
		}
		return nil
	})}, func(b *bench) { b.cfg.Poll = 10 * time.Millisecond }).start()
	job := b.until(b.add(queue.Insert{Kind: "k", MaxAttempts: 1}), queue.StateSucceeded)
	equal(t, "epoch", job.Epoch, 3)
	for range 3 {
		equal(t, "attempt", queuetest.Wait(t, "begin", attempts), 1)
	}
	b.stats(worker.Stats{Claimed: 3, Released: 2, Succeeded: 1})
}

func TestRetryAfterComesBackAtTheNamedTimeWithAnAttemptSpent(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		if l.Job().Attempt < 3 {
			return queue.RetryAfter(200*time.Millisecond, "limit", errors.New("come back"))
		}
		return nil
	})}, func(b *bench) { b.cfg.Poll = 10 * time.Millisecond }).start()
	job := b.until(b.add(queue.Insert{Kind: "k", MaxAttempts: 3}), queue.StateSucceeded)
	equal(t, "attempt", job.Attempt, 3)
	equal(t, "waited", job.StartedAt.Sub(job.CreatedAt) >= 400*time.Millisecond, true)
	b.stats(worker.Stats{Claimed: 3, Retried: 2, Succeeded: 1})
}

func TestOperatorsRetryRunsAFailedJobOnceMore(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		if l.Job().MaxAttempts == 1 {
			return queue.Terminal("broken", nil)
		}
		return nil
	})}).start()
	b.listen()
	id := b.add(queue.Insert{Kind: "k", MaxAttempts: 1})
	b.until(id, queue.StateFailed)
	_, err := b.q.Requeue(t.Context(), id) // which wakes the lane
	b.no(err)
	job := b.until(id, queue.StateSucceeded)
	equal(t, "attempt", job.Attempt, 2)
	equal(t, "code", text(job.ErrorCode), "")
}

func TestOnlyRepositoriesThatAreServedAreWorkedOn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	served := []string{"mine"}
	var ran journal
	b := newBench(t, handlers{"k": ran.handler()}, func(b *bench) {
		b.cfg.Repos = func() []string { mu.Lock(); defer mu.Unlock(); return served }
	}).start()
	other := b.add(queue.Insert{Kind: "k", Repo: "other", Priority: 9})
	b.until(b.add(queue.Insert{Kind: "k", Repo: "mine"}), queue.StateSucceeded)
	b.until(b.add(queue.Insert{Kind: "k"}), queue.StateSucceeded)
	equal(t, "epoch", b.get(other).Epoch, 0)
	mu.Lock()
	served = []string{"mine", "other"} // which is asked each time
	mu.Unlock()
	b.w.Wake("lane")
	b.until(other, queue.StateSucceeded)
	b.w.BeatNow()
	queuetest.Until(t, "the worker's row tells", func() (tells bool) {
		b.no(b.pool.QueryRow(t.Context(), `select repos @> array['other'] from workers where id = $1`, b.cfg.Worker.ID).Scan(&tells))
		return tells
	})
}

func TestResumeAfterAPauseWakesAWorkerWhosePollIsAnHourLong(t *testing.T) {
	t.Parallel()
	var ran journal
	b := newBench(t, handlers{"k": ran.handler()}, func(b *bench) {
		b.cfg.Repos = func() []string { return []string{"r"} }
		b.cfg.Lanes["side"], b.cfg.KindLane["side"], b.cfg.Handlers["side"] = 1, "side", ran.handler()
	}).start()
	b.listen()
	pauses := pause.NewStore(b.pool)
	for _, p := range []pause.Pause{{Scope: pause.Lane, Name: "lane"}, {Scope: pause.Repo, Name: "r"}} {
		p.Reason, p.Actor = "test", "test"
		b.no(pauses.Pause(t.Context(), p))
		id := b.add(queue.Insert{Kind: "k", Repo: "r"})
		b.until(b.add(queue.Insert{Kind: "side", Lane: "side"}), queue.StateSucceeded) // somebody does look
		equal(t, "epoch while paused", b.get(id).Epoch, 0)
		resumed, err := pauses.Resume(t.Context(), p.Scope, p.Name)
		b.no(err)
		equal(t, "resumed", resumed, true)
		b.until(id, queue.StateSucceeded)
	}
}
