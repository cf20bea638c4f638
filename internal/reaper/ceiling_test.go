package reaper_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/internal/agent"
	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/reaper"
)

// It is stuck between its run's end and the first gate, where no run of another kind bounds it.
func TestHandlerThatIsStuckAfterItsRunIsFoundByTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	j.letGo()
	r := w.reaper()
	w.tick(r, 1)
	w.exec(`update jobs set phase = 'gates', started_at = started_at - interval '5 hours'`)
	w.exec(`update runs set finished_at = finished_at - interval '3 hours'`)
	w.tick(r, 1)
	w.pass(59 * time.Minute)
	w.tick(r, 5)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.pass(2 * time.Minute)
	w.tick(r, 1)
	w.jobIs(j.id, "queued attempt 0 recoveries 1 pinned")
	w.reapedAre("ceiling queued")
	if res := j.consume(w.worker()); res.RunID != j.run {
		t.Errorf("%+v", res)
	}
}

func TestUnknownIsNeverReapedBelowTheCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	back := j.hideLock()
	r := w.reaper()
	w.tick(r, 20)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	if s := r.Snapshot(); s.Suspects != 1 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	// Of another root it isn't even past it: its host's reaper, or its host's death, decides.
	j.aged(2 * time.Hour)
	w.tick(w.reaper(func(c *reaper.Config) { c.RootID = w.otherRoot(); c.Recover = nil }), 5)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	w.tick(r, 1)
	w.jobIs(j.id, "queued attempt 1 recoveries 0")
	w.runIs(j.run, "finished orphaned consumed")
	w.reapedAre("ceiling queued")
	back()
}

func TestLivingRunPastTheCeilingIsEndedWithItsGroup(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]bool{"its shim works": false, "its shim is stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *agent.Config) { c.KillPatience = 500 * time.Millisecond })
			j := w.agentJob(w.worker(), func(p *agent.Program) {
				p.Argv = []string{"sh", "-c", `setsid sh -c 'echo $$ > child; exec sleep 1000' & ` + waiting}
			})
			child := runtest.PIDIn(t, filepath.Join(j.work, "child"))
			r := w.reaper()
			w.tick(r, 3)
			j.agentIs(process.Alive)
			if stopped {
				st, err := j.shim.State()
				if err = errors.Join(err, unix.Kill(st.PIDs.Shim.PID, unix.SIGSTOP)); err != nil {
					t.Fatal(err)
				}
			}
			j.aged(2 * time.Hour)
			w.tick(r, 1)
			j.agentIs(process.Dead)
			if v := process.Probe(child); v != process.Dead {
				t.Errorf("its child is %s", v)
			}
			w.runIs(j.run, "finished timeout")
			w.jobIs(j.id, "running attempt 1 recoveries 0 pinned") // its handler's
			if said := w.log.of("run ended, it is past its ceiling"); len(said) != 1 || said[0]["reason"] != "ceiling" {
				t.Errorf("log: %v", said)
			}
		})
	}
}

func TestRunHasItsOwnCeilingAboveItsTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker(), func(p *agent.Program) { p.Timeout = 7 * 24 * time.Hour })
	j.aged(6 * 24 * time.Hour)
	r := w.reaper()
	w.tick(r, 3)
	j.agentIs(process.Alive)
	j.aged(2 * 24 * time.Hour)
	w.tick(r, 1)
	j.agentIs(process.Dead)
}

// The clock of the database's machine is set, and all that runs seems to have run for hours.
func TestLivingRunIsNotEndedForAClockThatJumped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	w.exec(`update runs set created_at = created_at - interval '5 hours', started_at = started_at - interval '5 hours'`)
	w.tick(w.reaper(), 3)
	j.agentIs(process.Alive)
	w.runIs(j.run, "running")
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
}

func TestLivingRunOfAnotherRootPastTheCeilingIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.agentJob(w.worker())
	w.exec(`update runs set started_at = started_at - interval '2 hours'`)
	w.tick(w.reaper(func(c *reaper.Config) { c.RootID = w.otherRoot(); c.Recover = nil }), 5)
	w.jobIs(j.id, "running attempt 1 recoveries 0 pinned")
	j.agentIs(process.Alive)
}

// hideLock makes the run's lock one that can't be examined.
func (j *agentJob) hideLock() (back func()) {
	j.w.t.Helper()
	lock := filepath.Join(j.w.dir, j.run.String(), "lock")
	if err := errors.Join(os.Rename(lock, lock+".away"), os.Symlink("lock", lock)); err != nil {
		j.w.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(lock+".away", lock); err != nil {
			j.w.t.Fatal(err)
		}
	}
}
