package reaper_test

import (
	"testing"
	"time"

	"orch/internal/process/runtest"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/reaper"
	"orch/internal/testdb"
)

// older makes a job one that was granted long ago, by the database's clock.
func (w *world) older(id int64) {
	w.t.Helper()
	w.exec(`update jobs set started_at = started_at - interval '3 hours' where id = $1`, id)
}

func TestHandlerThatIsStuckWithoutARunIsFoundByTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.plain(w.worker()).Job().ID
	w.older(id)
	r := w.reaper()
	w.tick(r, 1)
	w.pass(59 * time.Minute)
	w.tick(r, 3)
	w.jobIs(id, "running attempt 1 recoveries 0")
	w.pass(2 * time.Minute)
	w.tick(r, 1)
	w.jobIs(id, "queued attempt 1 recoveries 0")
	w.reapedAre("ceiling queued")
}

// The clock of the database's machine is set: what began a moment ago seems to have gone on for hours.
func TestHandlerIsNotTakenForAClockThatJumped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.worker()
	plain, j := w.plain(worker).Job().ID, w.agentJob(worker)
	j.letGo()
	w.exec(`update jobs set phase = 'gates'`)
	r := w.reaper()
	w.tick(r, 2)
	w.exec(`update jobs set started_at = started_at - interval '5 hours'`)
	w.exec(`update runs set finished_at = finished_at - interval '5 hours'`)
	w.tick(r, 5)
	w.jobIs(plain, "running attempt 1 recoveries 0")
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.reapedAre()
}

// A machine that slept, or a database whose clock was put back: it takes both.
func TestHandlerIsNotTakenForTheBootClockAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.plain(w.worker()).Job().ID
	r := w.reaper()
	w.tick(r, 1)
	w.pass(5 * time.Hour)
	w.tick(r, 3)
	w.jobIs(id, "running attempt 1 recoveries 0")
}

// What it does now is what counts: another grant, or what comes after a run, has its time to itself.
func TestAnotherPhaseHasItsTimeToItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.worker()
	l := w.plain(worker)
	w.older(l.Job().ID)
	r := w.reaper()
	w.tick(r, 1)
	w.pass(50 * time.Minute)
	if err := l.Release(t.Context(), queue.Release{}); err != nil {
		t.Fatal(err)
	}
	id := w.claim(worker).Job().ID
	w.older(id)
	w.tick(r, 1)
	w.pass(50 * time.Minute)
	w.tick(r, 3)
	w.jobIs(id, "running attempt 1 recoveries 0")
	w.pass(11 * time.Minute)
	w.tick(r, 1)
	w.jobIs(id, "queued attempt 1 recoveries 0")
}

// Else a database that is away for a moment each hour would keep a stuck handler for ever.
func TestTickThatSawNothingForgetsNoAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.plain(w.worker()).Job().ID
	w.older(id)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(w.pool))
	r := w.reaper(func(c *reaper.Config) { c.Queue = through(queuetest.Pool(t, proxy.Config())) })
	w.tick(r, 1)
	w.pass(50 * time.Minute)
	proxy.Set(queuetest.Refuse, "")
	for range 2 {
		if err := r.Tick(runtest.Bound(t)); err == nil {
			t.Fatal("the tick went well")
		}
	}
	proxy.Set(queuetest.Pass, "")
	w.tick(r, 1)
	w.jobIs(id, "running attempt 1 recoveries 0")
	w.pass(11 * time.Minute)
	w.tick(r, 1)
	w.jobIs(id, "queued attempt 1 recoveries 0")
}
