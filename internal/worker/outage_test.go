package worker_test

import (
	"context"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
	"orch/internal/worker"
)

func proxied(t *testing.T, hs handlers, change ...func(*bench)) (*bench, *queuetest.Proxy) {
	t.Helper()
	pool := testdb.New(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(pool))
	return benchOn(t, pool, queuetest.Pool(t, proxy.Config()), hs, change...), proxy
}

// Its slot stays taken until then.
func TestJobThatFinishesWhileTheDatabaseIsAwayIsRecordedWhenItIsBack(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})})
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.Refuse, "")
	close(goOn)
	queuetest.Until(t, "some tries", func() bool { return b.w.Stats().Errors >= 4 })
	equal(t, "busy", b.w.Lanes()["lane"].Busy, 1)
	equal(t, "logged once", b.log.count("call=end error_code=database_unreachable"), 1)
	proxy.Set(queuetest.Pass, "")
	equal(t, "attempt", b.until(id, queue.StateSucceeded).Attempt, 1)
	b.stats(worker.Stats{Claimed: 1, Succeeded: 1})
	queuetest.Until(t, "free", func() bool { return b.w.Lanes()["lane"].Busy == 0 })
	queuetest.Until(t, "logged", func() bool { return b.log.count(`"queue call works again" call=end`) == 1 })
}

// One that claimed before would hold more than it has slots for.
func TestSlotIsFreeOnlyWhenTheEndOfItsJobIsAcknowledged(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 2), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})}, func(b *bench) { b.cfg.Lanes["lane"] = 1 })
	b.start()
	first, second := b.add(queue.Insert{Kind: "k"}), b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.HoldAnswers, "commit\x00")
	close(goOn)
	b.until(first, queue.StateSucceeded)
	equal(t, "busy", b.w.Lanes()["lane"].Busy, 1)
	equal(t, "claimed", b.w.Stats().Claimed, 1)
	proxy.Set(queuetest.Pass, "") // the answer is lost, and looked up
	b.until(second, queue.StateSucceeded)
	b.stats(worker.Stats{Claimed: 2, Succeeded: 2})
}

// While others run on.
func TestSuccessesOfHandlersThatReturnTogetherAreWrittenTogether(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 20), make(chan struct{})
	lasting, handler := block()
	b := newBench(t, handlers{
		"quick": fn(func(_ context.Context, l *queue.Lease) error { began <- l; <-goOn; return nil }),
		"slow":  handler,
	}, func(b *bench) { b.cfg.Lanes["lane"] = 21 }).start()
	b.add(queue.Insert{Kind: "slow"})
	queuetest.Wait(t, "the slow one's begin", lasting)
	for range 20 {
		b.add(queue.Insert{Kind: "quick"})
	}
	for range 20 {
		queuetest.Wait(t, "begin", began)
	}
	close(goOn)
	b.stats(worker.Stats{Claimed: 21, Succeeded: 20})
	var transactions int
	b.no(b.pool.QueryRow(t.Context(), `select count(distinct xmin::text) from jobs where state = 'succeeded'`).Scan(&transactions))
	equal(t, "fewer transactions than jobs", transactions < 20, true)
}

func TestJobThatFinishesWhileTheDatabaseIsAwayIsNotRecordedWhenItsEpochIsOver(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})})
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.Refuse, "")
	close(goOn)
	queuetest.Until(t, "a try", func() bool { return b.w.Stats().Errors >= 1 })
	_, err := b.pool.Exec(t.Context(), `update jobs set epoch = epoch + 1`)
	b.no(err)
	proxy.Set(queuetest.Pass, "")
	b.stats(worker.Stats{Claimed: 1, Lost: 1})
	_ = id
}

// The answer to the COMMIT of a completion is lost, and nobody can be asked for a while: one end, counted once.
func TestCompletionWhoseAnswerIsLostIsCountedOnce(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})}, func(b *bench) { b.cfg.Lanes["lane"] = 1 }) // no other claim: the next COMMIT is the completion's
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.DieAfter, "commit\x00")
	close(goOn)
	queuetest.Until(t, "some tries", func() bool { return b.w.Stats().Errors >= 2 })
	equal(t, "state", b.get(id).State, queue.StateSucceeded)
	equal(t, "counted", b.w.Stats().Succeeded, 0)
	proxy.Set(queuetest.Pass, "")
	b.stats(worker.Stats{Claimed: 1, Succeeded: 1})
	census, err := overview.NewReader(b.pool).Census(t.Context())
	b.no(err)
	equal(t, "total", census.Counts[queue.StateSucceeded], 1)
}

func TestStopDoesntWaitForADatabaseThatDoesntComeBack(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})}, func(b *bench) { b.cfg.StopGrace = 50 * time.Millisecond })
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.Refuse, "")
	close(goOn)
	queuetest.Until(t, "a try", func() bool { return b.w.Stats().Errors >= 1 })
	b.stop(errStop)
	b.finish()
	equal(t, "state", b.get(id).State, queue.StateRunning)
	equal(t, "stats", b.w.Stats().Succeeded, 0)
}

// Nor for one that doesn't answer in the middle of writing ends. Nothing else here would end the wait in an hour.
func TestStopDoesntWaitForAFlushThatHangs(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b, proxy := proxied(t, handlers{"k": fn(func(_ context.Context, l *queue.Lease) error {
		began <- l
		<-goOn
		return nil
	})}, func(b *bench) {
		b.cfg.Queue = queue.New(b.through, queue.Config{LeaseTTL: time.Hour, QueryTimeout: time.Hour})
		b.cfg.StopGrace = time.Hour
	})
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.HoldAnswers, "commit\x00")
	close(goOn)
	b.until(id, queue.StateSucceeded)
	b.stop(errStop)
	b.w.HurryUp()
	b.finish()
	proxy.Set(queuetest.Pass, "")
}

// From the first moment; it is logged once.
func TestUnreachableDatabaseIsCountedAndRetried(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })},
		func(b *bench) { b.cfg.Poll, b.cfg.Heartbeat = 10*time.Millisecond, time.Second })
	proxy.Set(queuetest.Refuse, "")
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Until(t, "some tries", func() bool { return b.w.Stats().Errors >= 3 })
	equal(t, "logged once, as a code", b.log.count("call=register error_code=database_unreachable"), 1)
	proxy.Set(queuetest.Pass, "")
	b.until(id, queue.StateSucceeded)
	proxy.Set(queuetest.Refuse, "")
	before := b.w.Stats().Errors
	queuetest.Until(t, "tries of claims", func() bool { return b.w.Stats().Errors >= before+5 })
	next := b.add(queue.Insert{Kind: "k"})
	proxy.Set(queuetest.Pass, "")
	b.until(next, queue.StateSucceeded)
}

// No beat comes through for the TTL less its margin: the handler is told, before anyone else may have the job.
func TestLeasesAreGivenUpWhenNoBeatComesThrough(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b, proxy := proxied(t, handlers{"k": handler}, func(b *bench) {
		b.cfg.Queue = queue.New(b.through, queue.Config{LeaseTTL: 3 * time.Second, QueryTimeout: time.Second})
		b.cfg.Heartbeat = 500 * time.Millisecond
	})
	b.start()
	id := b.add(queue.Insert{Kind: "k"})
	lease := queuetest.Wait(t, "begin", began)
	proxy.Set(queuetest.Refuse, "")
	b.stats(worker.Stats{Claimed: 1, Lost: 1})
	equal(t, "lost", lease.Lost(), true)
	queuetest.Until(t, "logged", func() bool { return b.log.count("lease given up") == 1 })
	equal(t, "state", b.get(id).State, queue.StateRunning)
	proxy.Set(queuetest.Pass, "")
	// The handler has returned, so the first beat that comes through gives the row back, and it is claimed again.
	again := queuetest.Wait(t, "second begin", began).Job()
	equal(t, "epoch", again.Epoch, 2)
	equal(t, "attempt", again.Attempt, 1)
}
