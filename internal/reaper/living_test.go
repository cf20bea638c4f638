package reaper_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/reaper"
)

// A living agent's monitor is killed again and again, in each way that a monitor can die, over a thousand ticks.
func TestLivingAgentIsNeverReapedHoweverOftenItsMonitorDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone := w.worker(dead(t))
	living := w.worker()
	j := w.agentJob(gone)
	r := w.reaper(func(c *reaper.Config) { c.Recover = nil }) // which leaves alone what lives
	for n := range 1000 {
		w.tick(r, 1)
		job, err := w.queue.Get(t.Context(), j.id)
		switch {
		case err != nil:
			t.Fatal(err)
		case job.Attempt > 1 || job.Recoveries > 0 || job.RunID == nil || *job.RunID != j.run:
			t.Fatalf("tick %d: %+v", n, job)
		case job.WorkerID != nil:
			continue
		case n%2 == 0:
			w.claim(gone)
		default:
			w.claim(living)
			w.expire(j.id) // stopped, and past its lease
		}
	}
	j.agentIs(process.Alive)
	w.runIs(j.run, "running")
	w.reapedAre()
	w.is("counted", "", `select (select total::text from counters where name = 'reaped_total')`)
	if n := len(w.log.of("job taken from its worker, its run is gone on with")); n < 300 {
		t.Errorf("its monitor died %d times", n)
	}
	j.letGo()
	if _, err := w.pool.Exec(t.Context(), `update jobs set worker_id = $2 where id = $1 and state = 'running'`, j.id, gone.ID); err != nil {
		t.Fatal(err)
	}
	w.tick(r, 1)
	if res := j.consume(w.worker()); res.RunID != j.run || *res.Exit.Code != 5 {
		t.Errorf("%+v", res)
	}
	w.is("runs", "1", `select count(*)::text from runs`)
}

// Its directory is deleted while it works. Nothing of it is lost but its output: it ends by itself, or at its ceiling.
func TestLivingAgentOutlivesItsDirectory(t *testing.T) {
	t.Parallel()
	for name, past := range map[string]bool{"ends by itself": false, "goes on past its ceiling": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			j := w.agentJob(w.worker())
			st, err := j.shim.State()
			if err = errors.Join(err, os.RemoveAll(filepath.Join(w.dir, j.run.String()))); err != nil {
				t.Fatal(err)
			}
			r := w.reaper()
			w.tick(r, 10)
			w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
			w.runIs(j.run, "running")
			if v := process.Probe(st.PIDs.Agent); v != process.Alive {
				t.Fatalf("the agent is %s", v)
			}
			if s := r.Snapshot(); s.Suspects != 0 || s.LastError != "" {
				t.Errorf("%+v", s)
			}
			if !past {
				if err := os.WriteFile(filepath.Join(j.work, "go"), []byte("go\n"), 0); err != nil {
					t.Fatal(err)
				}
				if err := process.WaitGone(runtest.Bound(t), st.PIDs.Shim); err != nil {
					t.Fatal(err)
				}
				w.tick(r, 1)
				w.runIs(j.run, "finished agent_failed")
				return
			}
			w.tick(w.reaper(func(c *reaper.Config) { c.Ceiling = func(context.Context) time.Duration { return time.Nanosecond } }), 1)
			w.runIs(j.run, "finished timeout")
			if v := process.Probe(st.PIDs.Agent); v != process.Dead {
				t.Errorf("the agent is %s", v)
			}
		})
	}
}
