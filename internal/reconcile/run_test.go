package reconcile_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"orch/internal/queue/queuetest"
)

var errEnough = errors.New("enough")

func TestRunRepairsAtOnceAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := w.create(demo)
	w.loseJob(lost.ID)
	ctx, stop := context.WithCancelCause(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- w.rec.Run(ctx, func() { close(ready) }) }()
	queuetest.Wait(t, "it is ready", ready)
	queuetest.Until(t, "its first tick is over", func() bool { return !w.rec.Snapshot().LastRun.IsZero() })
	w.repaired("job_missing demo-1")
	stop(errEnough)
	if err := queuetest.Wait(t, "its end", ended); err != nil {
		t.Error(err)
	}
	if err := w.rec.Tick(ctx); !errors.Is(err, errEnough) {
		t.Errorf("a tick after the stop: %v", err)
	}
}

func TestTwoReconcilersRepairOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const each = 10
	for i := range 3 * each {
		created := w.create(demo)
		switch i % 3 {
		case 0:
			w.loseJob(created.ID)
		case 1:
			w.exec(`update tasks set root_id = $1 where id = $2`, w.root, created.ID)
			w.park(created.ID)
			w.rested(created.ID, time.Hour)
		case 2:
			w.run(created.ID, "finished", w.root)
			if _, err := w.tasks.Cancel(t.Context(), created.Key, "ann"); err != nil {
				t.Fatal(err)
			}
			w.exec(`update jobs set state = 'cancelled', finished_at = now() where kind = 'retire' and task_id = $1`, created.ID)
		}
	}
	var all sync.WaitGroup
	for range 4 {
		rec := w.reconciler()
		all.Go(func() {
			if err := rec.Tick(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := w.log.repaired(); len(got) != 3*each {
		t.Errorf("%d repairs of %d: %q", len(got), 3*each, got)
	}
	for what, sql := range map[string]string{
		"live jobs": `select count(*)::text from jobs where state = 'queued'`,
		"events":    `select count(*)::text from task_events where kind in ('revived', 'resumed', 'tidied')`,
		"the count": `select total::text from counters where name = 'repaired_total'`,
	} {
		if got := w.text(sql); got != strconv.Itoa(3*each) {
			t.Errorf("%s: %s, want %d", what, got, 3*each)
		}
	}
	if got := w.log.complaints(); len(got) > 0 {
		t.Errorf("told %q", got)
	}
}
