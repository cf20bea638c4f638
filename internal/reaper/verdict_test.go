package reaper_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"orch/internal/process"
	"orch/internal/reaper"
)

func TestEachEvidenceHasItsVerdict(t *testing.T) {
	t.Parallel()
	const under, over = 59 * time.Minute, 61 * time.Minute
	alive, gone, unknown := process.Alive, process.Dead, process.Unknown
	release := func(why reaper.Reason, counted bool) reaper.Verdict {
		return reaper.Verdict{Do: reaper.Release, Reason: why, Counted: counted}
	}
	spend := func(why reaper.Reason, counted bool) reaper.Verdict {
		return reaper.Verdict{Do: reaper.Spend, Reason: why, Counted: counted}
	}
	leave, suspect := reaper.Verdict{Do: reaper.Leave}, reaper.Verdict{Do: reaper.Suspect}
	end := reaper.Verdict{Do: reaper.End, Reason: reaper.ReasonCeiling}
	at := func(e reaper.Evidence, elapsed time.Duration) reaper.Evidence { e.Elapsed = elapsed; return e }
	here := func(worker process.Verdict, run reaper.Life) reaper.Evidence {
		return reaper.Evidence{Worker: worker, Run: run, Own: true, Here: true, Following: true}
	}
	own := func(worker process.Verdict, run reaper.Life) reaper.Evidence {
		return reaper.Evidence{Worker: worker, Run: run, Own: true, Following: true}
	}
	other := func(worker process.Verdict, run reaper.Life) reaper.Evidence {
		return reaper.Evidence{Worker: worker, Run: run, Following: true}
	}
	expired := func(e reaper.Evidence) reaper.Evidence { e.Expired = true; return e }
	for _, row := range []struct {
		name string
		e    reaper.Evidence
		want reaper.Verdict
	}{
		// Its worker's process is dead.
		{"no run", reaper.Evidence{Worker: gone}, release(reaper.ReasonWorkerDead, false)},
		{"its run lives", here(gone, reaper.RunAlive), release(reaper.ReasonWorkerDead, false)},
		{"its run lives past the ceiling", at(here(gone, reaper.RunAlive), over), release(reaper.ReasonWorkerDead, false)},
		{"its run has finished", here(gone, reaper.RunFinished), release(reaper.ReasonWorkerDead, false)},
		{"its run is dead too", here(gone, reaper.RunDead), release(reaper.ReasonWorkerDead, false)},
		{"its run is unknown", other(gone, reaper.RunUnknown), release(reaper.ReasonWorkerDead, false)},
		{"its run was interrupted", own(gone, reaper.RunInterrupted), release(reaper.ReasonWorkerDead, false)},
		{"its lease has run out too", expired(here(gone, reaper.RunAlive)), release(reaper.ReasonWorkerDead, false)},
		// The run is dead without a record.
		{"dead run under a living worker", here(alive, reaper.RunDead), spend(reaper.ReasonProcessDead, true)},
		{"dead run under a lost lease", expired(here(alive, reaper.RunDead)), spend(reaper.ReasonProcessDead, true)},
		{"dead run, worker unknown", here(unknown, reaper.RunDead), spend(reaper.ReasonProcessDead, true)},
		{"dead run of another place", own(alive, reaper.RunDead), suspect},
		{"interrupted run, its end not noted yet", own(unknown, reaper.RunInterrupted), suspect},
		{"interrupted run under a lost lease", expired(own(unknown, reaper.RunInterrupted)), release(reaper.ReasonExpired, true)},
		// The run lives.
		{"living run", here(alive, reaper.RunAlive), leave},
		{"living run just below the ceiling", at(here(alive, reaper.RunAlive), under), leave},
		{"living run past the ceiling", at(here(alive, reaper.RunAlive), over), end},
		{"the same under a lost lease", expired(at(here(alive, reaper.RunAlive), over)), end},
		{"living run past the ceiling, of another pid namespace", at(own(alive, reaper.RunAlive), over), leave},
		{"living run under a lost lease", expired(here(alive, reaper.RunAlive)), release(reaper.ReasonExpired, true)},
		// The run has finished.
		{"finished run, its handler follows", here(alive, reaper.RunFinished), release(reaper.ReasonRunFinished, true)},
		{"finished run of another host, its handler follows", other(unknown, reaper.RunFinished), release(reaper.ReasonRunFinished, true)},
		{"finished run, its handler has gone on", reaper.Evidence{Worker: alive, Run: reaper.RunFinished, Own: true, Here: true}, leave},
		{"finished run, its handler has gone on and is stuck", at(reaper.Evidence{Worker: alive, Run: reaper.RunFinished, Own: true, Here: true}, over), release(reaper.ReasonCeiling, false)},
		{"the same under a lost lease", expired(at(here(alive, reaper.RunFinished), over)), release(reaper.ReasonExpired, true)},
		{"finished run under a lost lease", expired(here(alive, reaper.RunFinished)), release(reaper.ReasonExpired, true)},
		// The run can't be judged.
		{"unknown run", own(alive, reaper.RunUnknown), suspect},
		{"unknown run past the ceiling", at(own(alive, reaper.RunUnknown), over), spend(reaper.ReasonCeiling, false)},
		{"unknown run past the ceiling, of another root", at(other(unknown, reaper.RunUnknown), over), suspect},
		{"unknown run under a lost lease", expired(other(unknown, reaper.RunUnknown)), release(reaper.ReasonExpired, true)},
		{"unknown run past the ceiling under a lost lease, of another root", expired(at(other(unknown, reaper.RunUnknown), over)), release(reaper.ReasonExpired, true)},
		// There is none.
		{"no run, worker lives", reaper.Evidence{Worker: alive}, leave},
		{"no run, worker can't be seen but beats", reaper.Evidence{Worker: unknown}, leave},
		{"no run, lease lost", reaper.Evidence{Worker: unknown, Expired: true}, release(reaper.ReasonExpired, true)},
		{"no run, worker stopped", reaper.Evidence{Worker: alive, Expired: true}, release(reaper.ReasonExpired, true)},
		{"no run, nothing happens", at(reaper.Evidence{Worker: alive}, over), spend(reaper.ReasonCeiling, false)},
		{"no run, nothing happens and the lease is lost", expired(at(reaper.Evidence{Worker: alive}, over)), release(reaper.ReasonExpired, true)},
	} {
		row.e.Ceiling = time.Hour
		if got := reaper.Judge(row.e); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.name, got, row.want)
		}
	}
}

// Whatever else is the case.
func TestNoVerdictHarmsALivingRunWithinItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := reaper.Evidence{
			Worker:  rapid.SampledFrom([]process.Verdict{process.Alive, process.Dead, process.Unknown}).Draw(t, "worker"),
			Expired: rapid.Bool().Draw(t, "expired"), Own: rapid.Bool().Draw(t, "own"), Here: rapid.Bool().Draw(t, "here"),
			Run: rapid.SampledFrom([]reaper.Life{
				reaper.RunNone, reaper.RunAlive, reaper.RunFinished, reaper.RunDead, reaper.RunInterrupted, reaper.RunUnknown,
			}).Draw(t, "run"),
			Following: rapid.Bool().Draw(t, "following"), Ceiling: time.Hour,
			Elapsed: time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "elapsed")),
		}
		v := reaper.Judge(e)
		past := e.Elapsed > e.Ceiling
		if (e.Run == reaper.RunAlive || e.Run == reaper.RunUnknown) && !past && (v.Do == reaper.Spend || v.Do == reaper.End) {
			t.Fatalf("%+v: %+v", e, v)
		}
		if v.Do == reaper.Spend && e.Run != reaper.RunNone && !e.Own && !e.Here || v.Do == reaper.End && !e.Here {
			t.Fatalf("of another place: %+v: %+v", e, v)
		}
		if (v.Do == reaper.Spend || v.Do == reaper.Release) && !v.Counted && e.Worker != process.Dead && !past {
			t.Fatalf("at once: %+v: %+v", e, v)
		}
	})
}
