package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/queue/tally"
)

// two are two tasks whose jobs run, the first of them with the lease.
func two(t *testing.T) (w *world, first, second int64, holder, waiter *queue.Lease, held *Right) {
	t.Helper()
	w = newWorld(t)
	first, second = w.add(), w.add()
	holder, waiter = w.mustClaim(), w.mustClaim()
	held, _ = w.take(holder, first)
	if held == nil {
		t.Fatal("a free lease wasn't granted")
	}
	return w, first, second, holder, waiter, held
}

func TestLiveHolderIsNeverTouched(t *testing.T) {
	t.Parallel()
	w, _, second, _, waiter, held := two(t)
	if got, position := w.take(waiter, second); got != nil || position != 2 {
		t.Errorf("a held lease was granted again, or position %d isn't 2", position)
	}
	for _, verdict := range []Verdict{Alive, Unknown} {
		reclaimed, err := w.store.Reclaim(t.Context(), func(Holder) Verdict { return verdict })
		if err != nil || len(reclaimed) > 0 {
			t.Errorf("verdict %s: reclaimed %v, %v", verdict, reclaimed, err)
		}
	}
	if err := held.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
}

func TestSameTaskGetsItsLeaseAgainWithANewEpoch(t *testing.T) {
	t.Parallel()
	w, first, _, holder, _, held := two(t)
	again, _ := w.take(holder, first)
	if again == nil || again.epoch != held.epoch+1 {
		t.Fatalf("granted %+v after epoch %d", again, held.epoch)
	}
	if err := held.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("the older epoch renewed: %v", err)
	}
	w.reap(holder)
	next, _ := w.take(w.mustClaim(), first)
	if next == nil || next.epoch != again.epoch+1 {
		t.Fatalf("granted %+v to the next grant of the job", next)
	}
	if got := w.text(`select total from counters where name = $1`, CounterReclaimed); got != "" {
		t.Errorf("counted as a reclaim: %s", got)
	}
}

func TestLeaseIsTakenOver(t *testing.T) {
	t.Parallel()
	for reason, loses := range map[string]func(w *world, holder *queue.Lease, task int64){
		ReasonExpired: func(w *world, _ *queue.Lease, _ int64) {
			w.exec(`update merge_leases set renewed_at = renewed_at - interval '300 s'`)
		},
		ReasonJobEnded: func(w *world, holder *queue.Lease, task int64) {
			w.exec(`update jobs set state = 'cancelled', finished_at = now(), worker_id = null, lease_expires_at = null
				where id = $1`, holder.Job().ID)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w, first, second, holder, waiter, held := two(t)
			loses(w, holder, first)
			got, _ := w.take(waiter, second)
			if got == nil || got.epoch != held.epoch+1 {
				t.Fatalf("granted %+v", got)
			}
			if err := held.Renew(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("the former holder renewed: %v", err)
			}
			err := holder.Tx(t.Context(), func(tx pgx.Tx) error { return held.FenceTx(t.Context(), tx) })
			if !errors.Is(err, ErrLost) && !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("the former holder may write: %v", err)
			}
			if got := w.text(`select total from counters where name = $1`, CounterReclaimed); got != "1" {
				t.Errorf("counted %q reclaims, want 1", got)
			}
		})
	}
}

func TestRenewNeedsARunningJob(t *testing.T) {
	t.Parallel()
	w, _, _, holder, _, held := two(t)
	w.reap(holder)
	if err := held.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("renewed for a reaped job: %v", err)
	}
	w.mustClaim() // the job runs again, but under another epoch
	if err := held.Renew(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("renewed for another grant of the job: %v", err)
	}
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	dead := func(Holder) Verdict { return Dead }
	alive := func(Holder) Verdict { return Alive }
	for reason, arrange := range map[string]func(w *world, holder *queue.Lease) func(Holder) Verdict{
		ReasonProcessDead: func(*world, *queue.Lease) func(Holder) Verdict { return dead },
		ReasonExpired: func(w *world, _ *queue.Lease) func(Holder) Verdict {
			w.exec(`update merge_leases set renewed_at = renewed_at - interval '301 s'`)
			return alive
		},
		ReasonJobEnded: func(w *world, holder *queue.Lease) func(Holder) Verdict {
			w.reap(holder)
			return alive
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w, first, _, holder, _, held := two(t)
			verdict := arrange(w, holder)
			reclaimed, err := w.store.Reclaim(t.Context(), verdict)
			if err != nil || len(reclaimed) != 1 || reclaimed[0].Reason != reason || reclaimed[0].TaskID != first {
				t.Fatalf("reclaimed %+v, %v", reclaimed, err)
			}
			if again, err := w.store.Reclaim(t.Context(), verdict); err != nil || len(again) > 0 {
				t.Errorf("reclaimed again: %+v, %v", again, err)
			}
			if err := held.Renew(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("the former holder renewed: %v", err)
			}
			line := w.log.String()
			for _, want := range []string{`"level":"WARN"`, `"reason":"` + reason, `"task":"` + w.key(first), `"pid":`, `"age_s":`, `"job_id":`, `"branch":"orch/`, `"host":"here"`} {
				if !strings.Contains(line, want) {
					t.Errorf("the log doesn't tell %s: %s", want, line)
				}
			}
			if got := w.text(`select total from counters where name = $1`, CounterReclaimed); got != "1" {
				t.Errorf("counted %q, want 1", got)
			}
		})
	}
}

// One lease whose judgement panics doesn't keep the others.
func TestReclaimGoesOn(t *testing.T) {
	t.Parallel()
	w, _, _, holder, _, _ := two(t)
	job := holder.Job()
	w.exec(`insert into merge_leases (repo, target, epoch, job_id, job_epoch, host, acquired_at, renewed_at)
		values ('a', 'main', 1, $1, $2, 'bad', now(), now())`, job.ID, job.Epoch)
	reclaimed, err := w.store.Reclaim(t.Context(), func(h Holder) Verdict {
		if h.Host == "bad" {
			panic("bad")
		}
		return Dead
	})
	if err == nil || len(reclaimed) != 1 || reclaimed[0].Repo != repoName {
		t.Errorf("reclaimed %+v, %v", reclaimed, err)
	}
}

// Each reclaim is told of in the transaction of its cause: what is written then stands exactly when the lease was taken.
func TestReclaimTellsInItsTransaction(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(w *world, waiter *queue.Lease, second int64) error{
		"at acquire": func(w *world, waiter *queue.Lease, second int64) error {
			_, _, err := w.tryTake(waiter, second)
			return err
		},
		"by the periodic look": func(w *world, _ *queue.Lease, _ int64) error {
			_, err := w.store.Reclaim(t.Context(), func(Holder) Verdict { return Alive })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first, second, _, waiter, _ := two(t)
			broken := errors.New("no alert can be written")
			var told []Reclaimed
			fail := true
			w.store = NewStore(w.pool, Config{OnReclaimedTx: func(ctx context.Context, tx pgx.Tx, r Reclaimed) error {
				told = append(told, r)
				if fail {
					return broken
				}
				return tally.AddCounterTx(ctx, tx, "told", 1)
			}})
			w.exec(`update merge_leases set renewed_at = renewed_at - interval '301 s'`)
			if err := take(w, waiter, second); !errors.Is(err, broken) {
				t.Fatalf("reclaimed with %v", err)
			}
			if got := w.text(`select task_id from merge_leases`); got != w.text(`select $1::bigint`, first) || w.text(`select total from counters where name = $1`, CounterReclaimed) != "" {
				t.Errorf("the lease is task %s's although it couldn't be told", got)
			}
			fail = false
			if err := take(w, waiter, second); err != nil {
				t.Fatal(err)
			}
			if len(told) != 2 || told[1].TaskID != first || told[1].Reason != ReasonExpired {
				t.Errorf("told %+v", told)
			}
			if got := w.text(`select total from counters where name = 'told'`); got != "1" {
				t.Errorf("written %q times", got)
			}
		})
	}
}

// However late a living holder's renewals come, up to the time to live less a beat, and whatever races with them, it keeps its
// lease.
func TestLivingHolderIsNeverReclaimed(t *testing.T) {
	t.Parallel()
	w, _, second, _, waiter, held := two(t)
	const trials = 1000
	ttl := w.store.TTL()
	most := ttl - ttl/3
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	verdicts := []Verdict{Alive, Unknown}
	for trial := range trials {
		late := time.Duration(random.Int64N(int64(most)))
		w.exec(`update merge_leases set renewed_at = clock_timestamp() - make_interval(secs => $1)`, late.Seconds())
		verdict := verdicts[random.IntN(len(verdicts))]
		var group sync.WaitGroup
		group.Go(func() {
			if err := held.Renew(t.Context()); err != nil {
				t.Errorf("renew: %v", err)
			}
		})
		group.Go(func() {
			if reclaimed, err := w.store.Reclaim(t.Context(), func(Holder) Verdict { return verdict }); err != nil || len(reclaimed) > 0 {
				t.Errorf("reclaimed %+v, %v", reclaimed, err)
			}
		})
		if trial%10 == 0 {
			if got, _, err := w.tryTake(waiter, second); err != nil || got != nil {
				t.Errorf("granted %+v to a waiter, %v", got, err)
			}
		}
		group.Wait()
		if t.Failed() {
			t.Fatalf("trial %d of seed %d, renewed %s late", trial, seed, late)
		}
	}
	if got := w.text(`select epoch from merge_leases`); got != w.text(`select $1::bigint`, held.Epoch()) {
		t.Errorf("epoch is %s", got)
	}
}
