package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/overview"
	"orch/internal/queue/prune"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/schedule"
	"orch/internal/testdb"
	"orch/internal/worker"
)

func TestNewRefusesWhatCantWork(t *testing.T) {
	t.Parallel()
	q := queue.New(nil, queue.Config{LeaseTTL: time.Minute})
	handler := fn(func(context.Context, *queue.Lease) error { return nil })
	for name, cfg := range map[string]worker.Config{
		"no queue":          {},
		"no slots":          {Queue: q, Lanes: map[string]int{"lane": 0}},
		"no lane":           {Queue: q, Lanes: map[string]int{"lane": 1}, Handlers: handlers{"k": handler}},
		"unknown lane":      {Queue: q, Lanes: map[string]int{"lane": 1}, Handlers: handlers{"k": handler}, KindLane: map[string]string{"k": "x"}},
		"beats don't fit":   {Queue: q, Heartbeat: 21 * time.Second},
		"default beat, too": {Queue: queue.New(nil, queue.Config{LeaseTTL: 44 * time.Second})},
		"negative poll":     {Queue: q, Poll: -1},
		"negative beat":     {Queue: q, Heartbeat: -1},
		"negative grace":    {Queue: q, StopGrace: -1},
		"negative limit":    {Queue: q, WaitLimit: -1},
	} {
		if _, err := worker.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	_, err := worker.New(worker.Config{Queue: q, Heartbeat: 20 * time.Second})
	equal(t, "three beats", err, nil)
}

func TestNotifyWakesAnIdleWorkerWhosePollIsAnHourLong(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })}).start()
	queuetest.Until(t, "registered and idle", func() bool { return b.log.count("worker started") == 1 })
	b.listen()
	out, err := b.q.Enqueue(t.Context(), queue.Insert{Kind: "k", Lane: "lane"})
	b.no(err)
	b.until(out.ID, queue.StateSucceeded)
}

func TestPollClaimsAJobInsertedWithoutNotify(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })},
		func(b *bench) { b.cfg.Poll = 20 * time.Millisecond }).start()
	var id int64
	b.no(b.pool.QueryRow(t.Context(), `insert into jobs (kind, lane, max_attempts) values ('k', 'lane', 1) returning id`).Scan(&id))
	b.until(id, queue.StateSucceeded)
}

// A busy lane doesn't hold it up, and one that panics is followed by the next.
func TestTickComesWithEveryPollWhateverTheLanesDo(t *testing.T) {
	t.Parallel()
	var ticks atomic.Int64
	began, handler := block()
	b := newBench(t, handlers{"k": handler}, func(b *bench) {
		b.cfg.Poll = 20 * time.Millisecond
		b.cfg.Tick = func(context.Context) { ticks.Add(1); panic("a bad tick") }
	}).start()
	b.add(queue.Insert{Kind: "k"})
	b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "first", began)
	queuetest.Wait(t, "second", began)
	before := ticks.Load()
	queuetest.Until(t, "ticks", func() bool { return ticks.Load() > before+2 })
}

func TestPruneIsQueuedOnceOverManyTicksOfManyWorkers(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	var ticks atomic.Int64
	for range 3 {
		benchOn(t, pool, pool, handlers{}, func(b *bench) {
			b.cfg.Handlers[prune.Kind], b.cfg.KindLane[prune.Kind] = prune.New(prune.Config{Queue: b.q}), prune.Insert().Lane
			b.cfg.Lanes[prune.Insert().Lane], b.cfg.Poll = 1, 10*time.Millisecond
			b.cfg.Tick = func(ctx context.Context) {
				_, err := schedule.EnqueueEvery(ctx, b.pool, time.Hour, prune.Insert())
				if err == nil {
					ticks.Add(1)
				}
			}
		}).start()
	}
	queuetest.Until(t, "many ticks", func() bool { return ticks.Load() > 50 })
	jobs, err := overview.NewReader(pool).List(t.Context(), overview.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "prunes", len(jobs), 1)
	(&bench{t: t, pool: pool}).until(jobs[0].ID, queue.StateSucceeded)
}

func TestLaneTakesNoMoreThanItsSlots(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan struct{}, 10), make(chan struct{})
	var running, most atomic.Int64
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error {
		most.Store(max(most.Load(), running.Add(1)))
		began <- struct{}{}
		<-goOn
		running.Add(-1)
		return nil
	})}).start()
	for range 5 {
		b.add(queue.Insert{Kind: "k"})
	}
	queuetest.Wait(t, "first", began)
	queuetest.Wait(t, "second", began)
	equal(t, "lanes", b.w.Lanes()["lane"], worker.LaneStatus{Slots: 2, Busy: 2})
	equal(t, "lanes", b.w.Lanes()["other"], worker.LaneStatus{Slots: 1, Busy: 0})
	equal(t, "claimed", b.w.Stats().Claimed, 2)
	close(goOn) // each slot that gets free is filled again, without a poll
	b.stats(worker.Stats{Claimed: 5, Succeeded: 5})
	equal(t, "at once", most.Load() <= 2, true)
}

func TestLanesDontWaitForEachOther(t *testing.T) {
	t.Parallel()
	began, handler := block()
	b := newBench(t, handlers{"slow": handler, "fast": fn(func(context.Context, *queue.Lease) error { return nil })},
		func(b *bench) { b.cfg.KindLane["fast"] = "other" }).start()
	for range 3 {
		b.add(queue.Insert{Kind: "slow"})
	}
	queuetest.Wait(t, "begin", began)
	b.until(b.add(queue.Insert{Kind: "fast", Lane: "other"}), queue.StateSucceeded)
}

func TestJobsRunOneAfterAnotherAndAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })},
		func(b *bench) { b.cfg.Lanes["lane"] = 1 }).start()
	for range 50 {
		b.add(queue.Insert{Kind: "k"})
	}
	b.stats(worker.Stats{Claimed: 50, Succeeded: 50})
	b.w.CountReaped(3)
	b.stats(worker.Stats{Claimed: 50, Succeeded: 50, Reaped: 3})
}
