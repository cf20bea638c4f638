package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/worker"
)

func TestJobThatWaitsForTooLongIsLoggedAndToldOnce(t *testing.T) {
	t.Parallel()
	type wait struct {
		job    int64
		what   string
		waited time.Duration
	}
	told := make(chan wait, 100)
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error {
		return &queue.SnoozeError{After: time.Millisecond, WaitingFor: "a review"}
	})}, func(b *bench) {
		b.cfg.Poll = 10 * time.Millisecond
		b.cfg.OnWait = func(_ context.Context, job queue.Job, what string, waited time.Duration) {
			told <- wait{job.ID, what, waited.Truncate(time.Hour)}
			panic("all is lost")
		}
	}).start()
	fresh := b.add(queue.Insert{Kind: "k"})
	queuetest.Until(t, "it waits", func() bool { return b.get(fresh).Epoch > 5 })
	equal(t, "logged", b.log.count("job waits for very long"), 0)
	_, err := b.pool.Exec(t.Context(), `update jobs set waiting_since = clock_timestamp() - interval '30 hours'`)
	b.no(err)
	queuetest.Until(t, "logged", func() bool { return b.log.count(`waiting_for="a review" waited_hours=30`) > 0 })
	epoch := b.get(fresh).Epoch
	queuetest.Until(t, "it waits on", func() bool { return b.get(fresh).Epoch > epoch+5 })
	equal(t, "logged", b.log.count("job waits for very long"), 1)
	equal(t, "told", <-told, wait{fresh, "a review", 30 * time.Hour})
	equal(t, "told again", len(told), 0)
}

func TestWaitThatAHandlerWroteItselfIsToldToo(t *testing.T) {
	t.Parallel()
	told := make(chan string, 100)
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		return l.Tx(ctx, func(tx pgx.Tx) error {
			return l.ReleaseTx(ctx, tx, queue.Release{After: time.Millisecond, WaitingFor: "disk_space"})
		})
	})}, func(b *bench) {
		b.cfg.Poll = 10 * time.Millisecond
		b.cfg.OnWait = func(_ context.Context, _ queue.Job, what string, _ time.Duration) { told <- what }
	}).start()
	id := b.add(queue.Insert{Kind: "k"})
	queuetest.Until(t, "it waits", func() bool { return b.get(id).WaitingSince != nil })
	_, err := b.pool.Exec(t.Context(), `update jobs set waiting_since = clock_timestamp() - interval '30 hours'`)
	b.no(err)
	equal(t, "told", queuetest.Wait(t, "told", told), "disk_space")
}

// migrating is what a migration says before it begins.
func (b *bench) migrating(to int) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), `update instance set migrating_to = $1, migrating_until = clock_timestamp() + interval '1 hour'`, to)
	b.no(err)
}

const (
	knownSchema = 1000
	newerSchema = 1001
)

func knowsSchema(b *bench) { b.cfg.Worker.Schema = knownSchema }

func TestNewerSchemaDrainsTheWorker(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan *queue.Lease, 1), make(chan struct{})
	b := newBench(t, handlers{"k": fn(func(ctx context.Context, l *queue.Lease) error {
		began <- l
		<-l.Stopping()
		<-goOn
		return ctx.Err()
	})}, knowsSchema).start()
	running := b.add(queue.Insert{Kind: "k"})
	queuetest.Wait(t, "begin", began)
	b.migrating(newerSchema)
	b.w.BeatNow()
	queuetest.Until(t, "it drains", func() bool { return b.log.count("worker stopping") == 1 })
	next := b.add(queue.Insert{Kind: "k"})
	close(goOn)
	equal(t, "error", queuetest.Wait(t, "end of Run", b.done), worker.ErrSchemaNewer)
	b.done = nil
	equal(t, "what ran", b.get(running).State, queue.StateSucceeded)
	equal(t, "what came then", b.get(next).State, queue.StateQueued)
	equal(t, "its attempt", b.get(next).Attempt, 0) // a claim that was on its way may have met it
	equal(t, "begun", len(began), 0)
	var alive int
	b.no(b.pool.QueryRow(t.Context(), `select count(*) from workers where stopped_at is null`).Scan(&alive))
	equal(t, "workers that a migration waits for", alive, 0)
}

// One that starts beside a migration claims nothing, not even before its first regular beat, and leaves no row that the
// migration would wait for.
func TestNewerSchemaIsSeenBeforeTheFirstClaim(t *testing.T) {
	t.Parallel()
	var begun atomic.Int64
	b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { begun.Add(1); return nil })}, knowsSchema)
	id := b.add(queue.Insert{Kind: "k"})
	b.migrating(newerSchema)
	b.start()
	equal(t, "error", queuetest.Wait(t, "end of Run", b.done), worker.ErrSchemaNewer)
	b.done = nil
	equal(t, "epoch", b.get(id).Epoch, 0)
	equal(t, "begun", begun.Load(), 0)
	var alive int
	b.no(b.pool.QueryRow(t.Context(), `select count(*) from workers where stopped_at is null`).Scan(&alive))
	equal(t, "workers that a migration waits for", alive, 0)
}

func TestSchemaThatIsKnownDoesntDrainTheWorker(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bench){
		"known":            knowsSchema,
		"nobody said what": func(*bench) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })}, change)
			b.migrating(knownSchema)
			b.start()
			b.until(b.add(queue.Insert{Kind: "k"}), queue.StateSucceeded)
		})
	}
}

// Leases couldn't be kept, and a migration may have taken this worker for dead. The database can be asked all the while.
func TestNothingIsClaimedWhileNoBeatComesThrough(t *testing.T) {
	t.Parallel()
	b, proxy := proxied(t, handlers{"k": fn(func(context.Context, *queue.Lease) error { return nil })}, func(b *bench) {
		b.q = queue.New(b.through, queue.Config{LeaseTTL: 3 * time.Second, QueryTimeout: time.Second})
		b.cfg.Queue, b.cfg.Heartbeat, b.cfg.Poll = b.q, 300*time.Millisecond, 10*time.Millisecond
	})
	b.start()
	b.until(b.add(queue.Insert{Kind: "k"}), queue.StateSucceeded)
	proxy.Set(queuetest.CutBefore, "update workers set heartbeat_at") // which each connection for beats says once
	_, err := b.pool.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid()`)
	b.no(err)
	before := b.log.count("nothing is claimed") // on a busy machine a beat may have been late before
	queuetest.Until(t, "silence", func() bool { return b.log.count("nothing is claimed") > before })
	id := b.add(queue.Insert{Kind: "k"})
	tries := proxy.Hits()
	queuetest.Until(t, "more tries", func() bool { return proxy.Hits() > tries+3 })
	equal(t, "epoch", b.get(id).Epoch, 0)
	proxy.Set(queuetest.Pass, "")
	b.until(id, queue.StateSucceeded)
}
