package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// ending is a Completer in a test, and the handlers that are still at work.
type ending struct {
	*queue.Completer
	b    *bench
	work atomic.Int64
}

// newEnding makes one that writes only when it is full, or nobody is at work.
func newEnding(b *bench, working int) *ending {
	e := &ending{b: b}
	e.work.Store(int64(working))
	e.Completer = queue.PatientCompleter(b.q, b.w, func() int { return int(e.work.Load()) })
	b.t.Cleanup(func() { e.Close(context.WithoutCancel(b.t.Context())) })
	return e
}

// together completes all leases in one batch, and returns what each was told.
func (e *ending) together(leases ...*queue.Lease) []error {
	e.b.t.Helper()
	ctx := e.b.t.Context()
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for n, l := range leases {
		e.work.Store(int64(len(leases) - 1 - n))
		wg.Add(1)
		e.Hand(ctx, l, func(err error) {
			errs[n] = err
			wg.Done()
		})
	}
	wg.Wait()
	for n, l := range leases {
		if errors.Is(errs[n], queue.ErrAlone) {
			wg.Go(func() { errs[n] = queue.CompleteAlone(ctx, l) })
		}
	}
	wg.Wait()
	return errs
}

func (b *bench) allNo(errs []error) {
	b.t.Helper()
	for _, err := range errs {
		b.no(err)
	}
}

func (b *bench) runningMany(n int, in queue.Insert) []*queue.Lease {
	b.t.Helper()
	for range n {
		b.enqueue(in)
	}
	leases := b.claim(b.w, n)
	equal(b.t, "claimed", len(leases), n)
	return leases
}

func (b *bench) count(sql string, args ...any) (n int) {
	b.t.Helper()
	b.no(b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func (b *bench) succeeded() int {
	b.t.Helper()
	return b.count(`select coalesce(sum(total), 0)::int from job_totals where state = 'succeeded'`)
}

// takeAway gives a running job back as somebody else would, behind its holder's back.
func (b *bench) takeAway(l *queue.Lease) {
	b.t.Helper()
	b.exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where id = $1`, l.Job().ID)
}

func TestCompleterEndsManyInOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var leases []*queue.Lease
	for epoch := range 3 {
		some := b.runningMany(10, queue.Insert{})
		for range epoch { // grants under later epochs
			for n, l := range some {
				b.no(b.release(l, queue.Release{}))
				some[n] = b.one(b.w)
			}
		}
		leases = append(leases, some...)
	}
	leases = append(leases, b.runningMany(10, queue.Insert{Kind: "other"})...)
	leases[0].SetPhase("nearly done")
	b.beat(leases...)
	b.exec(`update jobs set error_code = 'x', error = 'of an attempt before'`)
	e, last := newEnding(b, 1), leases[len(leases)-1]
	told := make(chan error, len(leases))
	for _, l := range leases[:len(leases)-1] {
		go func() { told <- e.Complete(t.Context(), l) }()
	}
	queuetest.Until(t, "all but one are pending", func() bool { return queue.Pending(e.Completer) == len(leases)-1 })
	equal(t, "written", b.succeeded(), 0)
	e.work.Store(0)
	b.no(e.Complete(t.Context(), last))
	for range leases[:len(leases)-1] {
		b.no(queuetest.Wait(t, "an end", told))
	}
	equal(t, "transactions", b.count(`select count(distinct xmin::text) from jobs`), 1)
	for _, l := range leases {
		equal(t, "outcome", l.Outcome(), queue.OutcomeSucceeded)
		job := b.state(l.Job().ID, queue.StateSucceeded)
		equal(t, "holds nothing any more", job.WorkerID == nil && job.LeaseExpiresAt == nil && job.HeartbeatAt == nil && job.PID == nil &&
			job.Phase == nil && job.ErrorCode == nil && job.Error == nil && job.FinishedAt != nil, true)
	}
	for kind, want := range map[string]int{"work": 30, "other": 10} {
		equal(t, kind, b.count(`select sum(total)::int from job_totals where state = 'succeeded' and kind = $1`, kind), want)
	}
	beat := b.beat(leases...)
	equal(t, "lost or orphans", len(beat.Lost)+beat.Orphans, 0)
	b.is(newEnding(b, 0).Complete(t.Context(), leases[0]), queue.ErrEnded)
	equal(t, "once", b.succeeded(), 40)
}

func TestEndsWaitForTheHandlersStillAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(2, queue.Insert{})
	e := newEnding(b, 1)
	first := make(chan error, 1)
	go func() { first <- e.Complete(t.Context(), leases[0]) }()
	queuetest.Until(t, "the first end is pending", func() bool { return queue.Pending(e.Completer) == 1 })
	b.state(leases[0].Job().ID, queue.StateRunning)
	e.work.Store(0)
	b.no(e.Complete(t.Context(), leases[1]))
	b.no(queuetest.Wait(t, "the first end", first))
	equal(t, "transactions", b.count(`select count(distinct xmin::text) from jobs`), 1)
}

func TestManyEndsWaitForNobody(t *testing.T) {
	t.Parallel()
	const full = 500
	b := newBench(t, queue.Config{})
	leases := b.runningMany(full, queue.Insert{})
	e := newEnding(b, 1)
	var wg sync.WaitGroup
	var errs atomic.Int64
	end := func(l *queue.Lease) {
		wg.Go(func() {
			if e.Complete(t.Context(), l) != nil {
				errs.Add(1)
			}
		})
	}
	for _, l := range leases[1:] {
		end(l)
	}
	queuetest.Until(t, "all but one are pending", func() bool { return queue.Pending(e.Completer) == full-1 })
	equal(t, "written", b.succeeded(), 0)
	end(leases[0])
	wg.Wait()
	equal(t, "errors", errs.Load(), 0)
	equal(t, "written", b.succeeded(), full)
}

// Nobody else comes, and a handler is at work for hours: the end waits for a moment only.
func TestEndsWaitOnlyForAMoment(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	c := queue.NewCompleter(b.q, b.w, func() int { return 1 })
	for range 3 {
		b.no(c.Complete(t.Context(), b.running(queue.Insert{})))
	}
	c.Close(t.Context())
}

// Late completions are refused one by one: only theirs.
func TestLateCompletionsInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(8, queue.Insert{})
	stranger := b.worker(b.w.RootID)
	b.takeAway(leases[1])
	elsewhere := b.one(stranger)
	b.takeAway(leases[2])
	again := b.one(b.w) // ABA: worker and job are the same
	leases[3].MarkLost(nil)
	b.no(b.complete(leases[4]))
	b.takeAway(leases[5])
	b.exec(`update jobs set worker_id = gen_random_uuid() where id = $1`, leases[6].Job().ID) // a restored database, say
	before := []string{dump(t, b.get(elsewhere.Job().ID)), dump(t, b.get(again.Job().ID))}

	errs := newEnding(b, 0).together(leases...)
	for n, want := range []error{nil, queue.ErrLeaseLost, queue.ErrLeaseLost, queue.ErrLeaseLost, queue.ErrEnded, queue.ErrLeaseLost, queue.ErrLeaseLost, nil} {
		b.is(errs[n], want)
	}
	equal(t, "elsewhere", dump(t, b.get(elsewhere.Job().ID)), before[0])
	equal(t, "again", dump(t, b.get(again.Job().ID)), before[1])
	b.state(leases[3].Job().ID, queue.StateRunning)
	b.state(leases[5].Job().ID, queue.StateQueued)
	equal(t, "marked", leases[1].Lost() && leases[2].Lost() && leases[5].Lost(), true)
	b.state(leases[6].Job().ID, queue.StateRunning)
	equal(t, "total", b.succeeded(), 3)
	b.no(b.complete(elsewhere))
	b.no(newEnding(b, 0).Complete(t.Context(), again))
	equal(t, "total", b.succeeded(), 5)
}

func TestStaleAndFreshGrantOfOneJobInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := b.running(queue.Insert{})
	b.takeAway(old)
	fresh := b.one(b.w)
	errs := newEnding(b, 0).together(old, fresh)
	b.is(errs[0], queue.ErrLeaseLost)
	b.no(errs[1])
	equal(t, "total", b.succeeded(), 1)
}

func TestBatchWakesWhatItsKeysHeldBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	first := b.running(queue.Insert{ConcurrencyKey: "one"})
	second := b.running(queue.Insert{ConcurrencyKey: "two"})
	b.enqueue(queue.Insert{ConcurrencyKey: "one"})
	equal(t, "held back", len(b.claim(b.w, 10)), 0)
	heard := listen(t, b)
	b.allNo(newEnding(b, 0).together(first, second))
	equal(t, "lane", heard(), "lane")
	b.no(b.complete(b.one(b.w)))
}

// listen returns a function that waits for the next notification.
func listen(t *testing.T, b *bench) func() string {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), testdb.ConnConfig(b.pool))
	b.no(err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `listen `+queue.ChannelJobs)
	b.no(err)
	return func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		n, err := conn.WaitForNotification(ctx)
		b.no(err)
		return n.Payload
	}
}

func TestEndThatIsntWaitedForIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	e := newEnding(b, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Complete(ctx, lease) }()
	queuetest.Until(t, "it's pending", func() bool { return queue.Pending(e.Completer) == 1 })
	cancel(queue.ErrStopping)
	b.is(queuetest.Wait(t, "the answer", done), queue.ErrStopping)
	e.Close(t.Context())
	b.state(lease.Job().ID, queue.StateRunning)
	equal(t, "ended or lost", lease.Ended() || lease.Lost(), false)
	b.no(b.complete(lease))
}

func TestClosedCompleterHasWrittenAllAndGoesOnAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	pending, late := b.running(queue.Insert{}), b.running(queue.Insert{})
	e := newEnding(b, 1)
	done := make(chan error, 1)
	go func() { done <- e.Complete(t.Context(), pending) }()
	queuetest.Until(t, "it's pending", func() bool { return queue.Pending(e.Completer) == 1 })
	e.Close(t.Context())
	b.state(pending.Job().ID, queue.StateSucceeded)
	b.no(queuetest.Wait(t, "the answer", done))
	b.no(e.Complete(t.Context(), late))
	e.Close(t.Context())
	equal(t, "total", b.succeeded(), 2)
}

// Several processes end jobs of the same kinds, together and alone, at the same time: all totals are everybody's.
func TestBatchesOfManyWorkersAddUp(t *testing.T) {
	t.Parallel()
	const workers, each, kinds = 4, 200, 5
	b := newBench(t, queue.Config{})
	var wg sync.WaitGroup
	for range workers {
		q, w := queue.New(b.pool, queue.Config{}), b.worker(b.w.RootID)
		var work atomic.Int64
		c := queue.NewCompleter(q, w, func() int { return int(work.Load()) })
		var names []string
		for n := range kinds {
			names = append(names, fmt.Sprint("kind-", n))
		}
		for n := range each {
			b.enqueue(queue.Insert{Kind: names[n%kinds], Lane: w.ID.String()})
		}
		leases, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: w.ID.String(), Kinds: names, Limit: each})
		b.no(err)
		equal(t, "claimed", len(leases), each)
		for n, l := range leases {
			work.Add(1)
			wg.Go(func() {
				work.Add(-1)
				var err error
				if n%4 == 0 {
					err = completeOn(t.Context(), l)
				} else {
					err = c.Complete(t.Context(), l)
				}
				if err != nil {
					t.Error(errors.Join(err, fmt.Errorf("job %d", l.Job().ID)))
				}
			})
		}
	}
	wg.Wait()
	equal(t, "total", b.succeeded(), workers*each)
	equal(t, "rows", b.count(`select count(*) from jobs where state = 'succeeded'`), workers*each)
}

// An end that comes while a flush ends isn't left to the next one, whatever that flush saw before.
func TestEndThatComesWhileAFlushEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(2, queue.Insert{})
	var calls atomic.Int64
	asking, goOn := make(chan struct{}), make(chan struct{})
	c := queue.PatientCompleter(b.q, b.w, func() int {
		if calls.Add(1) != 3 { // the first end, its flush, and then the look whether there are more
			return 0
		}
		close(asking)
		<-goOn
		return 1
	})
	b.no(c.Complete(t.Context(), leases[0]))
	queuetest.Wait(t, "the look", asking)
	told := make(chan error, 1)
	go func() { told <- c.Complete(t.Context(), leases[1]) }()
	queuetest.Until(t, "the second end relies on the flush", func() bool { return queue.Pending(c) == 1 && calls.Load() == 4 })
	close(goOn)
	b.no(queuetest.Wait(t, "the second end", told))
	c.Close(t.Context())
}
