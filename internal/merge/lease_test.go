package merge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// take tries to acquire the merge lease for a task's job, as enter does.
func (w *world) take(l *queue.Lease, task int64) (got *right, position int) {
	w.t.Helper()
	ctx := context.Background()
	t, err := w.tasks.Load(ctx, task)
	if err != nil {
		w.t.Fatal(err)
	}
	def, err := w.Definition(ctx, t)
	if err != nil {
		w.t.Fatal(err)
	}
	def.Method = MethodRebase
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		a, err := w.store.openAttemptTx(ctx, tx, l, t, def)
		if err != nil {
			return err
		}
		got, position, _, err = w.store.acquireTx(ctx, tx, l, a)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got, position
}

// two are two tasks whose jobs run, the first of them with the lease.
func two(t *testing.T) (w *world, first, second int64, holder, waiter *queue.Lease, held *right) {
	t.Helper()
	w = newWorld(t, true)
	first, second = w.add(map[string]string{"a": "a"}), w.add(map[string]string{"b": "b"})
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
	if err := held.renew(t.Context()); err != nil {
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
	if err := held.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
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
			if err := held.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
				t.Errorf("the former holder renewed: %v", err)
			}
			err := holder.Tx(t.Context(), func(tx pgx.Tx) error { return held.fenceTx(t.Context(), tx) })
			if !errors.Is(err, ErrLeaseLost) && !errors.Is(err, queue.ErrLeaseLost) {
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
	if err := held.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
		t.Errorf("renewed for a reaped job: %v", err)
	}
	w.mustClaim() // the job runs again, but under another epoch
	if err := held.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
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
			w, first, second, holder, _, held := two(t)
			before := w.main()
			verdict := arrange(w, holder)
			reclaimed, err := w.store.Reclaim(t.Context(), verdict)
			if err != nil || len(reclaimed) != 1 || reclaimed[0].Reason != reason || reclaimed[0].TaskID != first {
				t.Fatalf("reclaimed %+v, %v", reclaimed, err)
			}
			if again, err := w.store.Reclaim(t.Context(), verdict); err != nil || len(again) > 0 {
				t.Errorf("reclaimed again: %+v, %v", again, err)
			}
			if err := held.renew(t.Context()); !errors.Is(err, ErrLeaseLost) {
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
			if w.main() != before {
				t.Error("a reclaim moved main")
			}
			_ = second
		})
	}
}

func TestReclaimWakesTheNext(t *testing.T) {
	t.Parallel()
	w, _, second, _, waiter, _ := two(t)
	if err := w.run(w.handler(nil), waiter); err != nil || w.dueIn(second) < time.Second {
		t.Fatalf("the waiter ended with %v and is due in %s", err, w.dueIn(second))
	}
	if _, err := w.store.Reclaim(t.Context(), func(Holder) Verdict { return Dead }); err != nil {
		t.Fatal(err)
	}
	if due := w.dueIn(second); due > 0 {
		t.Errorf("due in %s", due)
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

func TestHolderThatLosesItsLeaseStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.store = NewStore(w.pool, StoreConfig{LockTimeout: 600 * time.Millisecond, Logger: w.log.logger()})
	task := w.add(map[string]string{"a": "a"})
	main := w.main()
	w.tester.during = func(ctx context.Context) error {
		if _, err := w.pool.Exec(ctx, `update merge_leases set epoch = epoch + 1`); err != nil {
			return err
		}
		<-ctx.Done() // the renewal finds out
		return context.Cause(ctx)
	}
	var snooze *queue.SnoozeError
	if err := w.run(w.handler(nil), w.mustClaim()); !errors.As(err, &snooze) || snooze.WaitingFor != WaitingForLease {
		t.Errorf("handler ended with %v", err)
	}
	if w.main() != main || w.jobState(task) != "queued" {
		t.Errorf("job is %s, main moved: %t", w.jobState(task), w.main() != main)
	}
}

// The lease is renewed while a test takes longer than the time to live.
func TestLongTestKeepsTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.store = NewStore(w.pool, StoreConfig{LockTimeout: 3 * time.Second, Logger: w.log.logger()})
	first := w.add(map[string]string{"a": "a"})
	w.tester.during = func(ctx context.Context) error {
		var acquired, renewed time.Time
		for renewed.Sub(acquired) < 3*time.Second {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			err := w.pool.QueryRow(ctx, `select acquired_at, renewed_at from merge_leases, pg_sleep(0.05)`).Scan(&acquired, &renewed)
			if err != nil {
				return err
			}
		}
		return nil
	}
	w.drain(w.handler(nil))
	w.landedOnce(first, "a")
}
