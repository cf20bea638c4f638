package reaper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/agent"
	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/queue"
	"orch/internal/reaper"
	"orch/internal/task"
)

func TestJobOfADeadWorkerIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.plain(w.worker(dead(t)))
	w.tick(w.reaper(), 1)
	w.jobIs(l.Job().ID, "queued attempt 0 recoveries 1")
	w.reapedAre("worker_dead queued")
}

func TestLivingRunOfADeadWorkerIsFollowedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker(dead(t)))
	w.tick(w.reaper(), 5)
	w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
	j.agentIs(process.Alive)
	w.reapedAre() // it was given on
	if said := w.log.of("job taken from its worker, its run is gone on with"); len(said) != 1 || said[0]["reason"] != "worker_dead" {
		t.Errorf("log: %v", said)
	}
	j.letGo()
	if res := j.consume(w.worker()); res.RunID != j.run || *res.Exit.Code != 5 {
		t.Errorf("%+v", res)
	}
	w.is("runs", "1", `select count(*)::text from runs`)
}

// A success that is found late goes through the path of every success, once.
func TestFinishedRunOfADeadWorkerIsConsumedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker(dead(t)))
	j.letGo()
	r := w.reaper()
	w.tick(r, 3)
	w.jobIs(j.id, "queued attempt 0 recoveries 1 pinned")
	w.runIs(j.run, "finished agent_failed")
	if res := j.consume(w.worker()); res.RunID != j.run {
		t.Errorf("%+v", res)
	}
	w.tick(r, 3)
	w.is("job", "succeeded", `select state::text from jobs where id = $1`, j.id)
	w.reapedAre("worker_dead queued")
}

func TestFinishedRunUnderAStuckHandlerIsConsumedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.letGo()
	r := w.reaper()
	w.tick(r, 5) // noted, and too fresh: the phase may be old
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.longGranted(j.id)
	w.exec(`update runs set finished_at = finished_at - interval '2 minutes'`)
	w.tick(w.reaper(), 1) // one that has just been started has seen it once
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.tick(r, 1)
	w.jobIs(j.id, "queued attempt 0 recoveries 1 pinned")
	w.runIs(j.run, "finished agent_failed")
	w.reapedAre("run_finished queued")
	if err := j.lease.Tx(t.Context(), func(pgx.Tx) error { return nil }); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("a late write of the stuck handler: %v", err)
	}
	if res := j.consume(w.worker()); res.RunID != j.run {
		t.Errorf("%+v", res)
	}
	w.is("runs", "1", `select count(*)::text from runs`)
}

func TestHandlerThatHasGoneOnFromItsRunIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.letGo()
	r := w.reaper()
	w.tick(r, 1)
	w.longGranted(j.id)
	w.exec(`update runs set finished_at = finished_at - interval '2 minutes'`)
	w.exec(`update jobs set phase = 'gates'`)
	w.tick(r, 5)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
}

// It was claimed a moment ago, for a run that ended long before: its phase is older than what it does.
func TestFreshGrantOfAnOldRunHasItsPhaseToItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	j := w.agentJob(gone)
	j.letGo()
	r := w.reaper()
	w.tick(r, 1)
	w.exec(`update runs set finished_at = finished_at - interval '10 minutes'`)
	j.lease = w.claim(w.worker())
	w.exec(`update jobs set phase = 'following' where id = $1`, j.id)
	w.tick(r, 5)
	w.jobIs(j.id, "running attempt 1 recoveries 1 pinned")
	w.longGranted(j.id)
	w.tick(r, 2)
	w.jobIs(j.id, "queued attempt 0 recoveries 2 pinned")
}

func TestDeadAgentUnderAStuckHandlerSpendsOneAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.killShim()
	r := w.reaper()
	w.tick(r, 1)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	j.agentIs(process.Alive)
	w.tick(r, 1)
	w.jobIs(j.id, "queued attempt 1 recoveries 0")
	j.agentIs(process.Dead) // what the shim left was ended first
	w.runIs(j.run, "finished crashed consumed")
	w.reapedAre("process_dead queued")
	w.exec(`update jobs set run_at = clock_timestamp()`)
	first := j.run
	j.start(w.claim(w.worker()))
	if j.run == first {
		t.Error("the dead run was gone on with")
	}
	w.jobIs(j.id, "running attempt 2 recoveries 0 pinned")
}

func TestLastAttemptFailsBlocksAndAlertsTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	w.exec(`update jobs set max_attempts = 1`)
	j.killShim()
	broken := true
	r := w.reaper(func(c *reaper.Config) {
		c.OnReapTx = func(ctx context.Context, tx pgx.Tx, r reaper.Reaped) error {
			if broken {
				return errors.New("no alert")
			}
			_, err := queue.EnqueueTx(ctx, tx, queue.Insert{Kind: "alert", Lane: "system", DedupeKey: r.Reason + r.Outcome})
			return err
		}
	})
	w.tick(r, 1)
	if err := r.Tick(t.Context()); err == nil {
		t.Error("the tick went well")
	}
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.runIs(j.run, "finished crashed") // which is a fact
	w.is("task", "active", `select state::text from tasks`)
	w.is("counted", "", `select (select total::text from counters where name = 'reaped_total')`)
	// Its run has ended by now: the handler that comes next would do as well. The reaper finds it again.
	broken = false
	w.longGranted(j.id)
	w.exec(`update runs set finished_at = finished_at - interval '2 minutes'`)
	w.tick(r, 2)
	w.jobIs(j.id, "queued attempt 0 recoveries 1 pinned")
	w.is("alert", "run_finishedqueued", `select dedupe_key from jobs where kind = 'alert'`)

	w2 := newWorld(t)
	j = w2.agentJob(w2.worker())
	w2.exec(`update jobs set max_attempts = 1`)
	j.killShim()
	w2.tick(w2.reaper(func(c *reaper.Config) {
		c.OnReapTx = func(ctx context.Context, tx pgx.Tx, r reaper.Reaped) error {
			_, err := queue.EnqueueTx(ctx, tx, queue.Insert{Kind: "alert", Lane: "system", DedupeKey: r.Reason + " " + r.Outcome})
			return err
		}
	}), 2)
	w2.jobIs(j.id, "failed attempt 1 recoveries 0")
	w2.runIs(j.run, "finished crashed consumed")
	w2.is("task", "blocked crashed", `select state || ' ' || reason_code from tasks`)
	w2.is("alert", "process_dead failed", `select dedupe_key from jobs where kind = 'alert'`)
	w2.is("counted", "1", `select total::text from counters where name = 'reaped_total'`)
}

func TestLeaseThatRanOutIsGivenOnAfterTwoTicks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.worker(elsewhere(w.otherRoot()))
	plain := w.plain(other).Job().ID
	j := w.agentJob(w.worker())
	r := w.reaper()
	w.tick(r, 5) // a worker that can't be seen, but beats
	w.jobIs(plain, "running attempt 1 recoveries 0")
	w.expire(plain)
	w.expire(j.id)
	w.tick(r, 1)
	w.jobIs(plain, "running attempt 1 recoveries 0")
	w.tick(r, 1)
	w.jobIs(plain, "queued attempt 0 recoveries 1")
	w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
	j.agentIs(process.Alive)
	w.reapedAre("lease_expired queued")
}

func TestATickOfAliveBeginsTheCountAnew(t *testing.T) {
	t.Parallel()
	t.Run("a beat", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		id := w.plain(w.worker()).Job().ID
		r := w.reaper()
		for range 3 {
			w.expire(id)
			w.tick(r, 1)
			w.renew(id)
			w.tick(r, 1)
		}
		w.expire(id)
		w.tick(r, 1)
		w.jobIs(id, "running attempt 1 recoveries 0")
		w.tick(r, 1)
		w.jobIs(id, "queued attempt 0 recoveries 1")
	})
	t.Run("unknown in between", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		j := w.agentJob(w.worker())
		j.killShim()
		r := w.reaper()
		for range 3 {
			w.tick(r, 1)
			back := j.hideLock()
			w.tick(r, 1)
			back()
		}
		w.tick(r, 1)
		w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
		w.tick(r, 1)
		w.jobIs(j.id, "queued attempt 1 recoveries 0")
	})
	t.Run("another grant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		l := w.plain(w.worker())
		r := w.reaper()
		w.expire(l.Job().ID)
		w.tick(r, 1)
		if err := l.Release(t.Context(), queue.Release{}); err != nil {
			t.Fatal(err)
		}
		l = w.claim(w.worker())
		w.expire(l.Job().ID)
		w.tick(r, 1)
		w.jobIs(l.Job().ID, "running attempt 1 recoveries 0")
	})
	t.Run("another process", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		id := w.plain(w.worker()).Job().ID
		w.expire(id)
		for range 4 {
			w.tick(w.reaper(), 1)
		}
		w.jobIs(id, "running attempt 1 recoveries 0")
	})
}

func TestRunsOfAPidNamespaceThatIsGoneAreInterruptedWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	gone := false
	namespaceGone := func(ctx context.Context, _ process.Identity) (bool, error) { return gone, ctx.Err() }
	w := newWorld(t, func(c *agent.Config) { c.NamespaceGone = namespaceGone })
	container := w.worker(func(worker *queue.Worker) { worker.PIDNamespace = "pid:[1]" })
	j := w.agentJob(container)
	j.killShim()
	j.moved(func(id *process.Identity) { id.PIDNamespace = "pid:[1]" })
	r := w.reaper(func(c *reaper.Config) { c.NamespaceGone = namespaceGone })
	w.tick(r, 5) // it may be at work there
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	gone = true
	w.tick(r, 1)
	w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
	w.runIs(j.run, "finished interrupted")
	if res := j.consume(w.worker()); res.Outcome != outcome.Interrupted || res.Outcome.Class() != outcome.Given {
		t.Errorf("%+v", res)
	}
}

func TestCrashLoopUnderAFinishedRunEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker(dead(t)))
	r := w.reaper()
	for range 20 { // while it lives there is none
		w.tick(r, 1)
		w.jobIs(j.id, "queued attempt 0 recoveries 0 pinned")
		w.claim(w.worker(dead(t)))
	}
	j.letGo()
	if err := w.runs.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range queue.MaxRecoveries {
		w.tick(r, 1)
		w.claim(w.worker(dead(t)))
	}
	w.tick(r, 1)
	w.jobIs(j.id, "failed attempt 1 recoveries 5 pinned")
	w.is("task", "blocked crash_loop", `select state || ' ' || reason_code from tasks`)
}

func TestCancelOfAJobOfTheDeadComesTrue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := w.plain(w.worker(dead(t))).Job().ID
	j := w.agentJob(w.worker())
	j.killShim()
	for _, id := range []int64{plain, j.id} {
		if _, err := w.queue.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	w.tick(w.reaper(), 2)
	w.jobIs(plain, "cancelled attempt 0 recoveries 1")
	w.jobIs(j.id, "cancelled attempt 1 recoveries 0")
	w.reapedAre("worker_dead cancelled", "process_dead cancelled")
}

func TestAReapIsToldInFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.killShim()
	r := w.reaper()
	w.tick(r, 2)
	tk, err := w.tasks.ByID(t.Context(), j.task)
	if err != nil {
		t.Fatal(err)
	}
	said := w.log.of("job reaped")
	if len(said) != 1 {
		t.Fatalf("log: %v", said)
	}
	line := said[0]
	for key, want := range map[string]any{
		"level": "WARN", "job_id": float64(j.id), "run_id": j.run.String(), "task": tk.Key, "repo": "demo", "branch": tk.Branch,
		"host": w.self.Host, "kind": task.KindStage, "agent": "coder", "reason": "process_dead", "outcome": "queued",
	} {
		if line[key] != want {
			t.Errorf("%s: %v, want %v", key, line[key], want)
		}
	}
	st, err := j.shim.State()
	if err != nil || line["pid"] != float64(st.PIDs.Agent.PID) {
		t.Errorf("pid %v, agent %d, %v", line["pid"], st.PIDs.Agent.PID, err)
	}
	w.is("last one", "coder queued process_dead", `select data ->> 'agent' || ' ' || (data ->> 'outcome') || ' ' || (data ->> 'reason')
		from latest where name = 'last_reaped' and (data ->> 'job_id')::bigint = $1 and at > now() - interval '1 hour'`, j.id)
	w.is("counted", "1", `select total::text from counters where name = 'reaped_total'`)
	if got := w.reaped; len(got) != 1 || got[0].Task != tk.Key || got[0].Epoch != 1 || *got[0].RunID != j.run || got[0].Branch != tk.Branch {
		t.Errorf("%+v", got)
	}
	if s := r.Snapshot(); !s.Enabled || s.LastRun.IsZero() || s.MaxRunning != time.Hour || s.DeadTicks != 2 {
		t.Errorf("%+v", s)
	}
}

func TestHealthyTicksSayNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.plain(w.worker())
	w.agentJob(w.worker())
	before := len(w.log.all)
	w.tick(w.reaper(), 20)
	if said := w.log.all[before:]; len(said) > 0 {
		t.Errorf("log: %v", said)
	}
	w.is("counters", "", `select (select string_agg(name, ' ') from counters)`)
}
