package merge

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/git"
	"orch/internal/merge/lease"
	"orch/internal/queue"
)

// take acquires the free merge lease for a task's job, as enter does.
func (w *world) take(l *queue.Lease, task int64) {
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
	def.Method = string(git.Rebase)
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		a, err := w.store.OpenTx(ctx, tx, l, opening(t, def))
		if err != nil {
			return err
		}
		got, _, _, err := w.leases.AcquireTx(ctx, tx, l, a.Turn())
		if err == nil && got == nil {
			err = errors.New("a free lease wasn't granted")
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestReclaimWakesTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	first, second := w.add(map[string]string{"a": "a"}), w.add(map[string]string{"b": "b"})
	before := w.main()
	w.take(w.mustClaim(), first)
	if err := w.run(w.handler(nil), w.mustClaim()); err != nil || w.dueIn(second) < time.Second {
		t.Fatalf("the waiter ended with %v and is due in %s", err, w.dueIn(second))
	}
	reclaimed, err := w.leases.Reclaim(t.Context(), func(lease.Holder) lease.Verdict { return lease.Dead })
	if err != nil || len(reclaimed) != 1 || reclaimed[0].TaskID != first {
		t.Fatalf("reclaimed %+v, %v", reclaimed, err)
	}
	if due := w.dueIn(second); due > 0 {
		t.Errorf("due in %s", due)
	}
	if w.main() != before {
		t.Error("a reclaim moved main")
	}
}

func TestHolderThatLosesItsLeaseStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.lockFor(600 * time.Millisecond)
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
	w.lockFor(3 * time.Second)
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
