package merge

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

// One that decides to wait behind another, just while that one is cancelled, is woken when the cancel is through.
func TestCancelWakesWhoIsDecidingToWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	first, second := w.add(map[string]string{"b": "b"}), w.add(map[string]string{"c": "c"})
	w.drain(w.handler(nil))
	release()
	w.exec(`update jobs set run_at = case task_id when $1 then now() + interval '1 minute' else now() end where task_id in ($1, $2)`,
		first, second)
	l := w.mustClaim()
	cancelled := make(chan error, 1)
	err := l.Tx(t.Context(), func(tx pgx.Tx) error {
		task, err := w.tasks.Load(t.Context(), second)
		if err != nil {
			return err
		}
		def, err := w.Definition(t.Context(), task)
		if err != nil {
			return err
		}
		a, err := w.store.OpenTx(t.Context(), tx, l, opening(task, def))
		if err != nil {
			return err
		}
		got, position, _, err := w.leases.AcquireTx(t.Context(), tx, l, a.Turn())
		if err != nil || got != nil || position != 2 {
			t.Errorf("granted %v at place %d, %v", got, position, err)
		}
		go func() { cancelled <- w.cancel(t.Context(), first) }()
		w.untilBlocked(cancelled)
		return l.ReleaseTx(t.Context(), tx, queue.Release{After: time.Minute, WaitingFor: WaitingForLease})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-cancelled; err != nil {
		t.Fatal(err)
	}
	if due := w.dueIn(second); due > 0 {
		t.Errorf("the one behind who was cancelled is due in %s", due)
	}
}

// untilBlocked returns when a transaction of this database waits for a lock, or when done has something.
func (w *world) untilBlocked(done chan error) {
	w.t.Helper()
	for blocked := false; !blocked; {
		w.row(&blocked, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')
			from pg_sleep(0.01)`)
		if len(done) > 0 {
			return
		}
	}
}
