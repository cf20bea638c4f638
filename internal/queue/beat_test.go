package queue_test

import (
	"encoding/json"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/testdb"
)

func (b *bench) beat(leases ...*queue.Lease) queue.Beat {
	b.t.Helper()
	beat, err := b.q.Beat(b.t.Context(), b.w, leases)
	b.no(err)
	return beat
}

func TestBeatRenewsAndCarriesReports(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	one, two := b.running(queue.Insert{}), b.running(queue.Insert{})
	b.exec(`update jobs set lease_expires_at = now(), recoveries = 3`)
	b.exec(`update jobs set started_at = now() - interval '6 minutes' where id = $1`, two.Job().ID)
	b.exec(`update workers set heartbeat_at = now() - interval '1 hour'`)
	one.SetPhase("testing\x00")
	one.SetProgress(map[string]int{"done": 3})
	beat := b.beat(two, one)
	equal(t, "nothing to tell", len(beat.Lost)+len(beat.Cancelled)+beat.Orphans, 0)
	job := b.get(one.Job().ID)
	equal(t, "phase", *job.Phase, "testing\uFFFD")
	equal(t, "progress", string(job.Progress), `{"done": 3}`)
	equal(t, "recoveries", job.Recoveries, 3)
	within(t, "renewed", time.Until(*job.LeaseExpiresAt), 30*time.Second, 90*time.Second)
	job = b.get(two.Job().ID)
	within(t, "renewed", time.Until(*job.LeaseExpiresAt), 30*time.Second, 90*time.Second)
	equal(t, "recoveries after five healthy minutes", job.Recoveries, 0)
	equal(t, "phase", job.Phase == nil, true)
	within(t, "silence", one.Silence(), 0, 30*time.Second)
	var seen time.Time
	b.no(b.pool.QueryRow(t.Context(), `select heartbeat_at from workers where id = $1`, b.w.ID).Scan(&seen))
	within(t, "worker seen", time.Since(seen), -time.Minute, time.Minute)
}

func TestBeatFindsLosses(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	kept, lost := b.running(queue.Insert{}), b.running(queue.Insert{})
	taken := b.running(queue.Insert{})
	b.exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where id = $1`, lost.Job().ID)
	b.exec(`update jobs set worker_id = gen_random_uuid(), epoch = epoch + 1 where id = $1`, taken.Job().ID)
	beat := b.beat(kept, lost, taken)
	equal(t, "lost", len(beat.Lost), 2)
	equal(t, "marked", lost.Lost() && taken.Lost() && !kept.Lost(), true)
	equal(t, "told once", len(b.beat(kept, lost, taken).Lost), 0)
}

// ABA: the same worker claimed the job again. The old lease is lost, the new one isn't touched.
func TestBeatTellsGrantsApart(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := b.running(queue.Insert{})
	b.exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null`)
	fresh := b.one(b.w)
	b.exec(`update jobs set lease_expires_at = now() - interval '1 minute'`)
	beat := b.beat(old)
	equal(t, "lost", len(beat.Lost) == 1 && beat.Lost[0] == old, true)
	equal(t, "orphans", beat.Orphans, 0)
	equal(t, "not renewed", b.get(fresh.Job().ID).LeaseExpiresAt.Before(time.Now()), true)
	b.no(b.complete(fresh))
}

func TestBeatBringsCancelRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	one, two := b.running(queue.Insert{}), b.running(queue.Insert{})
	_, err := b.q.Cancel(t.Context(), two.Job().ID)
	b.no(err)
	beat := b.beat(one, two)
	equal(t, "asked", len(beat.Cancelled) == 1 && beat.Cancelled[0] == two, true)
	b.no(b.tx(two, func(tx pgx.Tx) error { return two.CancelledTx(t.Context(), tx) }))
	b.state(two.Job().ID, queue.StateCancelled)
}

// A row that a transaction holds is neither waited for nor called lost.
func TestBeatSkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	busy, idle := b.running(queue.Insert{}), b.running(queue.Insert{})
	b.exec(`update jobs set lease_expires_at = now()`)
	b.no(b.tx(busy, func(pgx.Tx) error {
		beat := b.beat(busy, idle)
		equal(t, "lost", len(beat.Lost), 0)
		within(t, "the other is renewed", time.Until(*b.get(idle.Job().ID).LeaseExpiresAt), 30*time.Second, 90*time.Second)
		return nil
	}))
	equal(t, "lost", busy.Lost(), false)
}

// Handlers that hold every connection of the pool don't stop the beat.
func TestBeatNeedsNoPool(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.running(queue.Insert{})
	for range b.pool.Config().MaxConns {
		conn, err := b.pool.Acquire(t.Context())
		b.no(err)
		t.Cleanup(conn.Release)
	}
	equal(t, "lost", len(b.beat(lease).Lost), 0)
}

// A value that JSON knows and PostgreSQL doesn't costs its own report, not everybody's lease.
func TestBeatSurvivesBadProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	bad, good := b.running(queue.Insert{}), b.running(queue.Insert{})
	b.exec(`update jobs set lease_expires_at = now()`)
	bad.SetProgress(math.Inf(1))
	bad.SetProgress(map[string]string{"text": "\x00"})
	b.beat(bad, good)
	equal(t, "dropped", b.get(bad.Job().ID).Progress == nil, true)
	bad.SetProgress(json.RawMessage(`1e999999`))
	good.SetPhase("fine")
	beat := b.beat(bad, good)
	equal(t, "lost", len(beat.Lost), 0)
	for _, l := range []*queue.Lease{bad, good} {
		within(t, "renewed", time.Until(*b.get(l.Job().ID).LeaseExpiresAt), 30*time.Second, 90*time.Second)
	}
	good.SetPhase("fine")
	b.beat(bad, good)
	equal(t, "phase", *b.get(good.Job().ID).Phase, "fine")
}

// viaProxy makes a bench whose queue reaches the database through a proxy; its pool stays direct.
func viaProxy(t *testing.T, cfg queue.Config) (*bench, *queuetest.Proxy) {
	t.Helper()
	pool := testdb.New(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(pool))
	b := &bench{t: t, pool: pool, q: queue.New(queuetest.Pool(t, proxy.Config()), cfg)}
	b.w = b.worker(queuetest.Root(t, pool))
	return b, proxy
}

func TestLostClaimReplyIsReleasedByTheNextBeat(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{})
	id := b.enqueue(queue.Insert{})
	b.w.BootID = "boot of the claimer" // which only the grant names
	proxy.Set(queuetest.CutAfter, b.w.BootID)
	req := queue.ClaimRequest{Worker: b.w, Lane: "lane", Kinds: []string{"work"}, Limit: 1}
	if _, err := b.q.Claim(t.Context(), req); err == nil {
		t.Fatal("the answer came through")
	}
	proxy.Set(queuetest.Pass, "")
	b.state(id, queue.StateRunning)
	equal(t, "orphans", b.beat().Orphans, 1)
	job := b.state(id, queue.StateQueued)
	equal(t, "attempt", job.Attempt, 0)
	equal(t, "epoch", job.Epoch, 1)
	equal(t, "once", b.beat().Orphans, 0)
	equal(t, "next epoch", b.one(b.w).Job().Epoch, 2)
}

// While the answer of a claim is on its way, its rows have no lease in memory and aren't orphans.
func TestClaimInFlightIsNoOrphan(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: time.Minute})
	id := b.enqueue(queue.Insert{})
	b.w.BootID = "boot of the claimer"
	proxy.Set(queuetest.HoldAnswers, b.w.BootID)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.q.Claim(t.Context(), queue.ClaimRequest{Worker: b.w, Lane: "lane", Kinds: []string{"work"}, Limit: 1})
		if err == nil {
			t.Error("the answer came through")
		}
	})
	queuetest.Until(t, "the claim is committed", func() bool { return b.get(id).State == queue.StateRunning })
	for range 3 {
		equal(t, "orphans", b.beat().Orphans, 0)
	}
	b.state(id, queue.StateRunning)
	proxy.Set(queuetest.Pass, "") // cuts the connection: the answer is lost after all
	wg.Wait()
	equal(t, "orphans", b.beat().Orphans, 1)
	b.state(id, queue.StateQueued)
}

// Nor is a row whose lease is held, beaten or not, until its end is committed or it is forgotten.
func TestHeldRowsAreNoOrphans(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	ending, lost := b.running(queue.Insert{}), b.running(queue.Insert{})
	lost.MarkLost(nil)
	b.no(b.tx(ending, func(tx pgx.Tx) error {
		b.no(ending.CompleteTx(t.Context(), tx))
		equal(t, "orphans", b.beat().Orphans, 0)
		return nil
	}))
	equal(t, "orphans", b.beat().Orphans, 0)
	lost.Forget()
	equal(t, "orphans once nobody works on it", b.beat().Orphans, 1)
	b.state(lost.Job().ID, queue.StateQueued)
}

func TestBeatWithoutADatabase(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: 5 * time.Second})
	lease := b.running(queue.Insert{})
	b.beat(lease)
	proxy.Set(queuetest.Refuse, "")
	if _, err := b.q.Beat(t.Context(), b.w, []*queue.Lease{lease}); err == nil {
		t.Fatal("a beat without a database")
	}
	err := lease.Check(t.Context())
	b.is(err, queue.ErrUnavailable)
	equal(t, "lost", lease.Lost() || errors.Is(err, queue.ErrLeaseLost), false)
	proxy.Set(queuetest.Pass, "")
	equal(t, "lost", len(b.beat(lease).Lost), 0)
	b.no(lease.Check(t.Context()))
}
