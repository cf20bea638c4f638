package worker_test

import (
	"syscall"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

// holding is a real worker process whose one job has begun.
func holding(t *testing.T, kind string) (b *bench, p *workerProcess, job int64) {
	t.Helper()
	pool := testdb.New(t)
	watch(t, pool)
	b = &bench{t: t, pool: pool}
	p = startProcess(t, "", processConfig{
		Role: "hold", URL: testdb.URL(testdb.ConnConfig(pool)), Root: queuetest.Root(t, pool), LeaseTTL: 30 * time.Second, Grace: time.Minute,
	})
	p.isReady()
	out, err := queue.New(pool, queue.Config{}).Enqueue(t.Context(), queue.Insert{Kind: kind, Lane: "lane", MaxAttempts: 1})
	b.no(err)
	p.says("began")
	return b, p, out.ID
}

func TestSIGTERMLetsTheRunningJobOfAProcessFinishAndItExits0(t *testing.T) {
	t.Parallel()
	b, p, job := holding(t, "obedient")
	p.signal(syscall.SIGTERM)
	queuetest.Until(t, "it stops", func() bool { return p.log.count("worker stopping") == 1 })
	out, err := queue.New(b.pool, queue.Config{}).Enqueue(t.Context(), queue.Insert{Kind: "obedient", Lane: "lane"})
	b.no(err)
	b.no(p.stdin.Close())
	equal(t, "exit code", p.exits(), 0)
	equal(t, "state", b.get(job).State, queue.StateSucceeded)
	late := b.get(out.ID)
	equal(t, "what came after the stop", late.State, queue.StateQueued)
	equal(t, "its attempt", late.Attempt, 0) // a claim that was on its way may have met it
}

// Its handler never returns, and has a minute of grace left.
func TestSecondSIGTERMReleasesTheRunningJobOfAProcessAndItExits0(t *testing.T) {
	t.Parallel()
	b, p, job := holding(t, "stubborn")
	p.signal(syscall.SIGTERM)
	queuetest.Until(t, "it stops", func() bool { return p.log.count("worker stopping") == 1 })
	equal(t, "state within the grace", b.get(job).State, queue.StateRunning)
	p.signal(syscall.SIGTERM)
	equal(t, "exit code", p.exits(), 0)
	after := b.get(job)
	equal(t, "state", after.State, queue.StateQueued)
	equal(t, "attempt", after.Attempt, 0)
	equal(t, "epoch", after.Epoch, 1)
}

// A signal at any moment, also in the middle of the start, ends a process with 0.
func TestSIGTERMAtAnyMomentEndsAProcessWith0(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	watch(t, pool)
	b := &bench{t: t, pool: pool}
	cfg := processConfig{
		Role: "hold", URL: testdb.URL(testdb.ConnConfig(pool)), Root: queuetest.Root(t, pool), LeaseTTL: 30 * time.Second, Grace: time.Minute,
	}
	for _, moment := range []string{"worker started", "listening for notifications", "worker_id"} {
		p := startProcess(t, "", cfg)
		queuetest.Until(t, moment, func() bool { return p.log.count(moment) > 0 })
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGTERM)
		equal(t, "exit code", p.exits(), 0)
	}
	var alive int
	b.no(pool.QueryRow(t.Context(), `select count(*) from workers where stopped_at is null`).Scan(&alive))
	equal(t, "workers that didn't say goodbye", alive, 0)
}
