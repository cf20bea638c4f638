package reaper_test

import (
	"context"
	"errors"
	"testing"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/reaper"
	"orch/internal/testdb"
)

func TestFirstTickTouchesOnlyJobsOfDeadProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.otherRoot()
	gone, living, unseen := w.worker(dead(t)), w.worker(), w.worker(elsewhere(other))
	sameMachine := w.worker(dead(t), func(worker *queue.Worker) { worker.RootID = other })
	rebooted := w.worker(func(worker *queue.Worker) { worker.BootID = "earlier" })
	otherRebooted := w.worker(func(worker *queue.Worker) { worker.BootID, worker.RootID = "earlier", other })
	jobs := map[string]int64{}
	for name, worker := range map[string]queue.Worker{
		"dead": gone, "living": living, "on another machine": unseen, "dead, of another root": sameMachine,
		"of an earlier boot": rebooted, "of an earlier boot, of another root": otherRebooted,
	} {
		jobs[name] = w.plain(worker).Job().ID
	}
	j := w.agentJob(gone)
	stuck := w.agentJob(living)
	stuck.killShim()
	w.expire(jobs["living"])
	w.expire(jobs["on another machine"])
	r := w.reaper(func(c *reaper.Config) {
		never := func(context.Context) error { t.Error("the first tick did more than that"); return nil }
		c.Recover, c.Hosts = never, never
	})
	for range 5 {
		if err := r.FirstTick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.jobIs(jobs["dead"], "queued attempt 0 recoveries 1")
	w.jobIs(jobs["dead, of another root"], "queued attempt 0 recoveries 1")
	w.jobIs(jobs["of an earlier boot"], "queued attempt 0 recoveries 1")
	w.jobIs(jobs["living"], "running attempt 1 recoveries 0")
	w.jobIs(jobs["on another machine"], "running attempt 1 recoveries 0")
	w.jobIs(jobs["of an earlier boot, of another root"], "running attempt 1 recoveries 0")
	w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
	w.jobIs(stuck.id, "running attempt 1 recoveries 0 pinned")
	j.agentIs(process.Alive)
	stuck.agentIs(process.Alive)
	w.is("workers that are noted as gone", "3", `select count(*)::text from workers where stopped_at is not null`)
}

// The reclaim of leases begins each of its looks with a first tick, between the ticks.
func TestOutageIsToldOnceWhoeverBeginsAFirstTick(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(w.pool))
	r := w.reaper(func(c *reaper.Config) { c.Queue = through(queuetest.Pool(t, proxy.Config())) })
	proxy.Set(queuetest.Refuse, "")
	for range 3 {
		if err := errors.Join(r.FirstTick(runtest.Bound(t)), r.Tick(runtest.Bound(t))); err == nil {
			t.Fatal("the ticks went well")
		}
	}
	if said := w.log.of("part of the reaper's tick not done, tried again"); len(said) != 3 { // dead workers, jobs and workers, once each
		t.Errorf("log: %v", said)
	}
	proxy.Set(queuetest.Pass, "")
	w.tick(r, 1)
	if s := r.Snapshot(); s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

// Else a daemon that is stuck would never be seen to be.
func TestFirstTickOfSomebodyElseIsNoSignOfLifeOfTheDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.plain(w.worker(dead(t))).Job().ID
	r := w.reaper(func(c *reaper.Config) { c.Beat = func() { t.Error("a sign of life") } })
	if err := r.FirstTick(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.jobIs(id, "queued attempt 0 recoveries 1")
}

func TestFirstTickNamesTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	finished, living := w.agentJob(gone), w.agentJob(gone)
	finished.letGo()
	if err := w.runs.Recover(runtest.Bound(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.reaper().FirstTick(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.jobIs(living.id, "queued attempt 0 recoveries 0 pinned")
	w.is("the last one", "worker_dead coder", `select data->>'reason' || ' ' || coalesce(data->>'agent', 'nobody') from latest where name = 'last_reaped'`)
	for _, msg := range []string{"job reaped", "job taken from its worker, its run is gone on with"} {
		if said := w.log.of(msg); len(said) != 1 || said[0]["agent"] != "coder" {
			t.Errorf("log: %v", said)
		}
	}
}
