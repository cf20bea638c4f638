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
	b.T.Helper()
	beat, err := b.Q.Beat(b.T.Context(), b.W, leases)
	b.No(err)
	return beat
}

func TestBeatRenewsAndCarriesReports(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	one, two := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Exec(`update jobs set lease_expires_at = now(), recoveries = 3`)
	b.Exec(`update jobs set started_at = now() - interval '6 minutes' where id = $1`, two.Job().ID)
	b.Exec(`update workers set heartbeat_at = now() - interval '1 hour'`)
	one.SetPhase("testing\x00")
	one.SetProgress(map[string]int{"done": 3})
	beat := b.beat(two, one)
	queuetest.Equal(t, "nothing to tell", len(beat.Lost)+len(beat.Cancelled)+beat.Orphans, 0)
	job := b.Get(one.Job().ID)
	queuetest.Equal(t, "phase", *job.Phase, "testing\uFFFD")
	queuetest.Equal(t, "progress", string(job.Progress), `{"done": 3}`)
	queuetest.Equal(t, "recoveries", job.Recoveries, 3)
	queuetest.Within(t, "renewed", time.Until(*job.LeaseExpiresAt), 30*time.Second, 90*time.Second)
	job = b.Get(two.Job().ID)
	queuetest.Within(t, "renewed", time.Until(*job.LeaseExpiresAt), 30*time.Second, 90*time.Second)
	queuetest.Equal(t, "recoveries after five healthy minutes", job.Recoveries, 0)
	queuetest.Equal(t, "phase", job.Phase == nil, true)
	queuetest.Within(t, "silence", one.Silence(), 0, 30*time.Second)
	var seen time.Time
	b.No(b.Pool.QueryRow(t.Context(), `select heartbeat_at from workers where id = $1`, b.W.ID).Scan(&seen))
	queuetest.Within(t, "worker seen", time.Since(seen), -time.Minute, time.Minute)
}

func TestBeatFindsLosses(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	kept, lost := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	taken := b.Running(queue.Insert{})
	b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null where id = $1`, lost.Job().ID)
	b.Exec(`update jobs set worker_id = gen_random_uuid(), epoch = epoch + 1 where id = $1`, taken.Job().ID)
	beat := b.beat(kept, lost, taken)
	queuetest.Equal(t, "lost", len(beat.Lost), 2)
	queuetest.Equal(t, "marked", lost.Lost() && taken.Lost() && !kept.Lost(), true)
	queuetest.Equal(t, "told once", len(b.beat(kept, lost, taken).Lost), 0)
}

// ABA: the same worker claimed the job again. The old lease is lost, the new one isn't touched.
func TestBeatTellsGrantsApart(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	old := b.Running(queue.Insert{})
	b.Exec(`update jobs set state = 'queued', worker_id = null, lease_expires_at = null`)
	fresh := b.One(b.W)
	b.Exec(`update jobs set lease_expires_at = now() - interval '1 minute'`)
	beat := b.beat(old)
	queuetest.Equal(t, "lost", len(beat.Lost) == 1 && beat.Lost[0] == old, true)
	queuetest.Equal(t, "orphans", beat.Orphans, 0)
	queuetest.Equal(t, "not renewed", b.Get(fresh.Job().ID).LeaseExpiresAt.Before(time.Now()), true)
	b.No(b.complete(fresh))
}

func TestBeatBringsCancelRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	one, two := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	_, err := b.Q.Cancel(t.Context(), two.Job().ID)
	b.No(err)
	beat := b.beat(one, two)
	queuetest.Equal(t, "asked", len(beat.Cancelled) == 1 && beat.Cancelled[0] == two, true)
	b.No(b.Tx(two, func(tx pgx.Tx) error { return two.CancelledTx(t.Context(), tx) }))
	b.state(two.Job().ID, queue.StateCancelled)
}

// A row that a transaction holds is neither waited for nor called lost.
func TestBeatSkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	busy, idle := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Exec(`update jobs set lease_expires_at = now()`)
	b.No(b.Tx(busy, func(pgx.Tx) error {
		beat := b.beat(busy, idle)
		queuetest.Equal(t, "lost", len(beat.Lost), 0)
		queuetest.Within(t, "the other is renewed", time.Until(*b.Get(idle.Job().ID).LeaseExpiresAt), 30*time.Second, 90*time.Second)
		return nil
	}))
	queuetest.Equal(t, "lost", busy.Lost(), false)
}

// Handlers that hold every connection of the pool don't stop the beat.
func TestBeatNeedsNoPool(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	lease := b.Running(queue.Insert{})
	for range b.Pool.Config().MaxConns {
		conn, err := b.Pool.Acquire(t.Context())
		b.No(err)
		t.Cleanup(conn.Release)
	}
	queuetest.Equal(t, "lost", len(b.beat(lease).Lost), 0)
}

// A value that JSON knows and PostgreSQL doesn't costs its own report, not everybody's lease.
func TestBeatSurvivesBadProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	bad, good := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	b.Exec(`update jobs set lease_expires_at = now()`)
	bad.SetProgress(math.Inf(1))
	bad.SetProgress(map[string]string{"text": "\x00"})
	b.beat(bad, good)
	queuetest.Equal(t, "dropped", b.Get(bad.Job().ID).Progress == nil, true)
	bad.SetProgress(json.RawMessage(`1e999999`))
	good.SetPhase("fine")
	beat := b.beat(bad, good)
	queuetest.Equal(t, "lost", len(beat.Lost), 0)
	for _, l := range []*queue.Lease{bad, good} {
		queuetest.Within(t, "renewed", time.Until(*b.Get(l.Job().ID).LeaseExpiresAt), 30*time.Second, 90*time.Second)
	}
	good.SetPhase("fine")
	b.beat(bad, good)
	queuetest.Equal(t, "phase", *b.Get(good.Job().ID).Phase, "fine")
}

// viaProxy makes a bench whose queue reaches the database through a proxy; its pool stays direct.
func viaProxy(t *testing.T, cfg queue.Config) (*bench, *queuetest.Proxy) {
	t.Helper()
	pool := testdb.New(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(pool))
	return benchOn(t, pool, queuetest.Pool(t, proxy.Config()), queuetest.Root(t, pool), cfg), proxy
}

func TestLostClaimReplyIsReleasedByTheNextBeat(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{})
	id := b.Enqueue(queue.Insert{})
	b.W.BootID = "boot of the claimer" // which only the grant names
	proxy.Set(queuetest.CutAfter, b.W.BootID)
	req := queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Limit: 1}
	if _, err := b.Q.Claim(t.Context(), req); err == nil {
		t.Fatal("the answer came through")
	}
	proxy.Set(queuetest.Pass, "")
	b.state(id, queue.StateRunning)
	queuetest.Equal(t, "orphans", b.beat().Orphans, 1)
	job := b.state(id, queue.StateQueued)
	queuetest.Equal(t, "attempt", job.Attempt, 0)
	queuetest.Equal(t, "epoch", job.Epoch, 1)
	queuetest.Equal(t, "once", b.beat().Orphans, 0)
	queuetest.Equal(t, "next epoch", b.One(b.W).Job().Epoch, 2)
}

// While the answer of a claim is on its way, its rows have no lease in memory and aren't orphans.
func TestClaimInFlightIsNoOrphan(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: time.Minute})
	id := b.Enqueue(queue.Insert{})
	b.W.BootID = "boot of the claimer"
	proxy.Set(queuetest.HoldAnswers, b.W.BootID)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.Q.Claim(t.Context(), queue.ClaimRequest{Worker: b.W, Lane: "lane", Kinds: []string{"work"}, Limit: 1})
		if err == nil {
			t.Error("the answer came through")
		}
	})
	queuetest.Until(t, "the claim is committed", func() bool { return b.Get(id).State == queue.StateRunning })
	for range 3 {
		queuetest.Equal(t, "orphans", b.beat().Orphans, 0)
	}
	b.state(id, queue.StateRunning)
	proxy.Set(queuetest.Pass, "") // cuts the connection: the answer is lost after all
	wg.Wait()
	queuetest.Equal(t, "orphans", b.beat().Orphans, 1)
	b.state(id, queue.StateQueued)
}

// Nor is a row whose lease is held, beaten or not, until its end is committed or it is forgotten.
func TestHeldRowsAreNoOrphans(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	ending, lost := b.Running(queue.Insert{}), b.Running(queue.Insert{})
	lost.MarkLost(nil)
	b.No(b.Tx(ending, func(tx pgx.Tx) error {
		b.No(ending.CompleteTx(t.Context(), tx))
		queuetest.Equal(t, "orphans", b.beat().Orphans, 0)
		return nil
	}))
	queuetest.Equal(t, "orphans", b.beat().Orphans, 0)
	lost.Forget()
	queuetest.Equal(t, "orphans once nobody works on it", b.beat().Orphans, 1)
	b.state(lost.Job().ID, queue.StateQueued)
}

func TestBeatWithoutADatabase(t *testing.T) {
	t.Parallel()
	b, proxy := viaProxy(t, queue.Config{QueryTimeout: 5 * time.Second})
	lease := b.Running(queue.Insert{})
	b.beat(lease)
	proxy.Set(queuetest.Refuse, "")
	if _, err := b.Q.Beat(t.Context(), b.W, []*queue.Lease{lease}); err == nil {
		t.Fatal("a beat without a database")
	}
	err := lease.Check(t.Context())
	b.Is(err, queue.ErrUnavailable)
	queuetest.Equal(t, "lost", lease.Lost() || errors.Is(err, queue.ErrLeaseLost), false)
	proxy.Set(queuetest.Pass, "")
	queuetest.Equal(t, "lost", len(b.beat(lease).Lost), 0)
	b.No(lease.Check(t.Context()))
}
