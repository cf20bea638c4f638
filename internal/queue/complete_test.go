package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
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
	e.Completer = queue.PatientCompleter(b.Q, b.W, func() int { return int(e.work.Load()) })
	b.T.Cleanup(func() { e.Close(context.WithoutCancel(b.T.Context())) })
	return e
}

// together completes all leases in one batch, and returns what each was told.
func (e *ending) together(leases ...*queue.Lease) []error {
	e.b.T.Helper()
	ctx := e.b.T.Context()
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
	b.T.Helper()
	for _, err := range errs {
		b.No(err)
	}
}

func (b *bench) runningMany(n int, in queue.Insert) []*queue.Lease {
	b.T.Helper()
	for range n {
		b.Enqueue(in)
	}
	leases := b.Claim(b.W, n)
	queuetest.Equal(b.T, "claimed", len(leases), n)
	return leases
}

func (b *bench) succeeded() int {
	b.T.Helper()
	return b.Count(`select coalesce(sum(total), 0)::int from job_totals where state = 'succeeded'`)
}

// takeAway gives a running job back as somebody else would, behind its holder's back.
func (b *bench) takeAway(l *queue.Lease) {
	b.T.Helper()
	b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where id = $1`, l.Job().ID)
}

func TestCompleterEndsManyInOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	var leases []*queue.Lease
	for epoch := range 3 {
		some := b.runningMany(10, queue.Insert{})
		for range epoch { // grants under later epochs
			for n, l := range some {
				b.No(b.release(l, queue.Release{}))
				some[n] = b.One(b.W)
			}
		}
		leases = append(leases, some...)
	}
	leases = append(leases, b.runningMany(10, queue.Insert{Kind: "other"})...)
	leases[0].SetPhase("nearly done")
	b.beat(leases...)
	b.Exec(`update jobs set error_code = 'x', error = 'of an attempt before'`)
	e, last := newEnding(b, 1), leases[len(leases)-1]
	told := make(chan error, len(leases))
	for _, l := range leases[:len(leases)-1] {
		go func() { told <- e.Complete(t.Context(), l) }()
	}
	queuetest.Until(t, "all but one are pending", func() bool { return queue.Pending(e.Completer) == len(leases)-1 })
	queuetest.Equal(t, "written", b.succeeded(), 0)
	e.work.Store(0)
	b.No(e.Complete(t.Context(), last))
	for range leases[:len(leases)-1] {
		b.No(queuetest.Wait(t, "an end", told))
	}
	queuetest.Equal(t, "transactions", b.Count(`select count(distinct xmin::text) from jobs`), 1)
	for _, l := range leases {
		queuetest.Equal(t, "outcome", l.Outcome(), queue.OutcomeSucceeded)
		job := b.state(l.Job().ID, queue.StateSucceeded)
		queuetest.Equal(t, "holds nothing any more", job.WorkerID == nil && job.LeaseExpiresAt == nil && job.HeartbeatAt == nil && job.PID == nil &&
			job.Phase == nil && job.ErrorCode == nil && job.Error == nil && job.FinishedAt != nil, true)
	}
	for kind, want := range map[string]int{"work": 30, "other": 10} {
		queuetest.Equal(t, kind, b.Count(`select sum(total)::int from job_totals where state = 'succeeded' and kind = $1`, kind), want)
	}
	beat := b.beat(leases...)
	queuetest.Equal(t, "lost or orphans", len(beat.Lost)+beat.Orphans, 0)
	b.Is(newEnding(b, 0).Complete(t.Context(), leases[0]), queue.ErrEnded)
	queuetest.Equal(t, "once", b.succeeded(), 40)
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
	b.No(e.Complete(t.Context(), leases[1]))
	b.No(queuetest.Wait(t, "the first end", first))
	queuetest.Equal(t, "transactions", b.Count(`select count(distinct xmin::text) from jobs`), 1)
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
	queuetest.Equal(t, "written", b.succeeded(), 0)
	end(leases[0])
	wg.Wait()
	queuetest.Equal(t, "errors", errs.Load(), 0)
	queuetest.Equal(t, "written", b.succeeded(), full)
}

// Nobody else comes, and a handler is at work for hours: the end waits for a moment only.
func TestEndsWaitOnlyForAMoment(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	c := queue.NewCompleter(b.Q, b.W, func() int { return 1 })
	for range 3 {
		b.No(c.Complete(t.Context(), b.Running(queue.Insert{})))
	}
	c.Close(t.Context())
}

// Late completions are refused one by one: only theirs.
func TestLateCompletionsInABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(8, queue.Insert{})
	stranger := b.worker(b.W.RootID)
	b.takeAway(leases[1])
	elsewhere := b.One(stranger)
	b.takeAway(leases[2])
	again := b.One(b.W) // ABA: worker and job are the same
	leases[3].MarkLost(nil)
	b.No(b.complete(leases[4]))
	b.takeAway(leases[5])
	b.Exec(`update jobs set worker_id = gen_random_uuid() where id = $1`, leases[6].Job().ID) // a restored database, say
	before := []string{dump(t, b.Get(elsewhere.Job().ID)), dump(t, b.Get(again.Job().ID))}

	errs := newEnding(b, 0).together(leases...)
	for n, want := range []error{nil, queue.ErrLeaseLost, queue.ErrLeaseLost, queue.ErrLeaseLost, queue.ErrEnded, queue.ErrLeaseLost, queue.ErrLeaseLost, nil} {
		b.Is(errs[n], want)
	}
	queuetest.Equal(t, "elsewhere", dump(t, b.Get(elsewhere.Job().ID)), before[0])
	queuetest.Equal(t, "again", dump(t, b.Get(again.Job().ID)), before[1])
	b.state(leases[3].Job().ID, queue.StateRunning)
	b.state(leases[5].Job().ID, queue.StateQueued)
	queuetest.Equal(t, "marked", leases[1].Lost() && leases[2].Lost() && leases[5].Lost(), true)
	b.state(leases[6].Job().ID, queue.StateRunning)
	queuetest.Equal(t, "total", b.succeeded(), 3)
	b.No(b.complete(elsewhere))
	b.No(newEnding(b, 0).Complete(t.Context(), again))
	queuetest.Equal(t, "total", b.succeeded(), 5)
}

func TestStaleAndFreshGrantOfOneJobInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := b.Running(queue.Insert{})
	b.takeAway(old)
	fresh := b.One(b.W)
	errs := newEnding(b, 0).together(old, fresh)
	b.Is(errs[0], queue.ErrLeaseLost)
	b.No(errs[1])
	queuetest.Equal(t, "total", b.succeeded(), 1)
}

func TestBatchWakesWhatItsKeysHeldBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	first := b.Running(queue.Insert{ConcurrencyKey: "one"})
	second := b.Running(queue.Insert{ConcurrencyKey: "two"})
	b.Enqueue(queue.Insert{ConcurrencyKey: "one"})
	queuetest.Equal(t, "held back", len(b.Claim(b.W, 10)), 0)
	heard := b.Listen()
	b.allNo(newEnding(b, 0).together(first, second))
	queuetest.Equal(t, "lane", heard().Payload, "lane")
	b.No(b.complete(b.One(b.W)))
}

func TestEndThatIsntWaitedForIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	e := newEnding(b, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Complete(ctx, lease) }()
	queuetest.Until(t, "it's pending", func() bool { return queue.Pending(e.Completer) == 1 })
	cancel(queue.ErrStopping)
	b.Is(queuetest.Wait(t, "the answer", done), queue.ErrStopping)
	e.Close(t.Context())
	b.state(lease.Job().ID, queue.StateRunning)
	queuetest.Equal(t, "ended or lost", lease.Ended() || lease.Lost(), false)
	b.No(b.complete(lease))
}

func TestClosedCompleterHasWrittenAllAndGoesOnAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	pending, late := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	e := newEnding(b, 1)
	done := make(chan error, 1)
	go func() { done <- e.Complete(t.Context(), pending) }()
	queuetest.Until(t, "it's pending", func() bool { return queue.Pending(e.Completer) == 1 })
	e.Close(t.Context())
	b.state(pending.Job().ID, queue.StateSucceeded)
	b.No(queuetest.Wait(t, "the answer", done))
	b.No(e.Complete(t.Context(), late))
	e.Close(t.Context())
	queuetest.Equal(t, "total", b.succeeded(), 2)
}

// Several processes end jobs of the same kinds, together and alone, at the same time: all totals are everybody's.
func TestBatchesOfManyWorkersAddUp(t *testing.T) {
	t.Parallel()
	const workers, each, kinds = 4, 200, 5
	b := newBench(t, queue.Config{})
	var wg sync.WaitGroup
	for range workers {
		q, w := queue.New(b.Pool, queue.Config{}), b.worker(b.W.RootID)
		var work atomic.Int64
		c := queue.NewCompleter(q, w, func() int { return int(work.Load()) })
		var names []string
		for n := range kinds {
			names = append(names, fmt.Sprint("kind-", n))
		}
		for n := range each {
			b.Enqueue(queue.Insert{Kind: names[n%kinds], Lane: w.ID.String()})
		}
		leases, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: w, Lane: w.ID.String(), Kinds: names, Limit: each})
		b.No(err)
		queuetest.Equal(t, "claimed", len(leases), each)
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
	queuetest.Equal(t, "total", b.succeeded(), workers*each)
	queuetest.Equal(t, "rows", b.Count(`select count(*) from jobs where state = 'succeeded'`), workers*each)
}

// An end that comes while a flush ends isn't left to the next one, whatever that flush saw before.
func TestEndThatComesWhileAFlushEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	leases := b.runningMany(2, queue.Insert{})
	var calls atomic.Int64
	asking, goOn := make(chan struct{}), make(chan struct{})
	c := queue.PatientCompleter(b.Q, b.W, func() int {
		if calls.Add(1) != 3 { // the first end, its flush, and then the look whether there are more
			return 0
		}
		close(asking)
		<-goOn
		return 1
	})
	b.No(c.Complete(t.Context(), leases[0]))
	queuetest.Wait(t, "the look", asking)
	told := make(chan error, 1)
	go func() { told <- c.Complete(t.Context(), leases[1]) }()
	queuetest.Until(t, "the second end relies on the flush", func() bool { return queue.Pending(c) == 1 && calls.Load() == 4 })
	close(goOn)
	b.No(queuetest.Wait(t, "the second end", told))
	c.Close(t.Context())
}
