package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/process/runtest"
)

func (b *bench) seem(t *testing.T, ids ...uuid.UUID) map[uuid.UUID]Sight {
	t.Helper()
	sights, err := b.runs.Seem(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return sights
}

// shown is what a reaper goes by.
func shown(s Sight) string {
	return fmt.Sprintf("%s %s foreign %v interrupted %v consumed %v", s.Run.State, s.Process, s.Foreign, s.Interrupted, s.Consumed())
}

func TestRunsSeemWhatTheirRowsAndProcessesAre(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := uuid.New()
	b.exec(t, `insert into roots (id, host, path) values ($1, 'there', '/elsewhere')`, other)
	noted := func(key string, script string) uuid.UUID {
		id := b.planted(t, key, script)
		b.exec(t, `update runs set state = 'running', started_at = clock_timestamp() - interval '1 hour' where id = $1`, id)
		return id
	}
	alive, recorded, dead, namespace, boot := noted("alive", waiting), noted("recorded", "exit 3"), noted("dead", waiting), noted("namespace", waiting), noted("boot", waiting)
	for _, id := range []uuid.UUID{dead, namespace, boot} {
		b.killShim(t, id)
	}
	b.moved(t, namespace, otherNamespace)
	b.moved(t, boot, otherBoot)
	intent, lost, away := b.intended(t, "intent"), b.intended(t, "lost"), b.intended(t, "away")
	b.exec(t, `update runs set state = 'running' where id in ($1, $2)`, lost, away)
	b.exec(t, `update runs set pid_namespace = 'pid:[1]' where id = $1`, away)
	elsewhere := b.intended(t, "elsewhere")
	b.exec(t, `update runs set state = 'running', root_id = $2 where id = $1`, elsewhere, other)
	finished, consumed := b.intended(t, "finished"), b.intended(t, "consumed")
	b.exec(t, `update runs set state = 'finished', ended = 'exited', finished_at = clock_timestamp() - interval '1 hour',
		consumed_at = case when id = $2 then now() end where id in ($1, $2)`, finished, consumed)
	unreadable := b.intended(t, "unreadable")
	if err := os.WriteFile(filepath.Join(b.dir, unreadable.String()), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	want := map[uuid.UUID]string{
		alive:      "running alive foreign false interrupted false consumed false",
		recorded:   "running unknown foreign false interrupted false consumed false",
		dead:       "running dead foreign false interrupted false consumed false",
		namespace:  "running unknown foreign true interrupted true consumed false",
		boot:       "running dead foreign true interrupted true consumed false",
		intent:     "intended unknown foreign false interrupted false consumed false",
		lost:       "running dead foreign false interrupted false consumed false",
		away:       "running unknown foreign true interrupted true consumed false",
		elsewhere:  "running unknown foreign true interrupted false consumed false",
		finished:   "finished unknown foreign false interrupted false consumed false",
		consumed:   "finished unknown foreign false interrupted false consumed true",
		unreadable: "intended unknown foreign false interrupted false consumed false",
	}
	ids := []uuid.UUID{uuid.New()}
	for id := range want {
		ids = append(ids, id)
	}
	sights := b.seem(t, ids...)
	for id, want := range want {
		if got := shown(sights[id]); got != want {
			t.Errorf("%s: %s", sights[id].Run.Key, got)
		}
	}
	if len(sights) != len(want) {
		t.Errorf("%d sights", len(sights))
	}
	for id, of := range map[uuid.UUID]time.Duration{alive: sights[alive].RunningFor, finished: sights[finished].FinishedFor} {
		if of < time.Hour || of > 2*time.Hour {
			t.Errorf("%s for %s", sights[id].Run.Key, of)
		}
	}
	if sights[alive].FinishedFor != 0 || sights[finished].RunningFor != 0 || sights[recorded].Status != process.StatusFinished {
		t.Errorf("%+v", sights[recorded])
	}
	if err := os.Remove(filepath.Join(b.dir, unreadable.String())); err != nil {
		t.Fatal(err)
	}
}

func TestTimeoutOfARunIsThatOfItsOwnShim(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.claim(t)
	req := b.request(waiting)
	req.Timeout = 3 * time.Hour
	answers := b.executing(t, l, req)
	run := b.running(t)
	if s := b.seem(t, run.ID)[run.ID]; s.Timeout != 3*time.Hour || s.Process != process.Alive {
		t.Errorf("%+v", s)
	}
	b.letGo(t)
	<-answers
}

// As long as many seem dead at once none is believed, and the pass is told.
func TestManyDeadRunsSeemAMassDeath(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.crowd(t)
	if s := b.seem(t, ids[0])[ids[0]]; s.MassDeath {
		t.Fatal("while all live")
	}
	for _, id := range ids {
		b.killShim(t, id)
	}
	if s := b.seem(t, ids[0])[ids[0]]; !s.MassDeath || s.Process != process.Dead {
		t.Fatalf("%+v", s)
	}
	if err := b.runs.NoteDead(bound(t), ids[0]); !errors.Is(err, ErrMassDeath) {
		t.Fatal(err)
	}
}

// pinned starts a run under a job that its handler has left without letting go of it.
func (b *bench) pinned(t *testing.T, script string) Run {
	t.Helper()
	l := b.claim(t)
	answers := b.executing(t, l, b.request(script))
	run := b.running(t)
	l.BeginStop()
	<-answers
	return run
}

// While somebody has the job, only whoever has looked at its run for long enough says that it is dead.
func TestDeadRunOfARunningJobIsNotedOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.pinned(t, waiting)
	if err := b.runs.NoteDead(bound(t), run.ID); !errors.Is(err, ErrNotDead) {
		t.Fatalf("living: %v", err)
	}
	b.killShim(t, run.ID)
	if err := b.runs.Recover(bound(t)); err != nil {
		t.Fatal(err)
	}
	if v := process.Probe(b.identity(t, run)); b.list(t)[0].State != StateRunning || v != process.Alive {
		t.Fatalf("recovered: program is %s", v)
	}
	if err := b.runs.NoteDead(bound(t), run.ID); err != nil {
		t.Fatal(err)
	}
	got := b.list(t)[0]
	if v := process.Probe(b.identity(t, run)); got.State != StateFinished || *got.Outcome != outcome.Crashed || got.ConsumedAt != nil || v != process.Dead {
		t.Errorf("%+v, program is %s", got, v)
	}
	if err := b.runs.NoteDead(bound(t), run.ID); !errors.Is(err, ErrNotDead) {
		t.Errorf("noted: %v", err)
	}
}

// What ended by itself, or was asked to end, isn't spent on the strength of a dead process.
func TestRunThatDidMoreThanDieIsNotNotedAsDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asked, recorded := b.planted(t, "asked", waiting), b.planted(t, "recorded", "exit 3")
	b.exec(t, `update runs set state = 'running', started_at = now()`)
	if err := os.Symlink(string(process.WhyCancelled), filepath.Join(b.dir, asked.String(), "stop")); err != nil {
		t.Fatal(err)
	}
	b.killShim(t, asked)
	for _, id := range []uuid.UUID{asked, recorded} {
		if err := b.runs.NoteDead(bound(t), id); !errors.Is(err, ErrNotDead) {
			t.Error(err)
		}
	}
	if run, err := b.runs.Get(t.Context(), asked); err != nil || *run.Outcome != outcome.Cancelled {
		t.Errorf("%+v, %v", run, err)
	}
	if err := b.runs.NoteDead(bound(t), uuid.New()); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// One that lives past the ceiling is ended with all that came from it, also when its shim stands still.
func TestRunPastItsCeilingIsEndedWithItsGroup(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"shim at work": false, "shim stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *Config) { c.KillPatience = 50 * time.Millisecond })
			run := b.pinned(t, `trap '' TERM; setsid sh -c 'trap "" TERM; echo $$ > child; sleep 1000' & sleep 1000 & while :; do sleep 1; done`)
			var child process.Identity
			eventually(t, "its child", func() bool {
				var pid int
				raw, err := os.ReadFile(filepath.Join(b.work, "child"))
				if _, scanned := fmt.Sscan(string(raw), &pid); err != nil || scanned != nil {
					return false
				}
				child, err = process.IdentityOf(pid)
				return err == nil
			})
			if stop {
				runtest.Freeze(t, *run.ShimPID)
			}
			if err := b.runs.End(bound(t), run.ID, process.WhyCeiling); err != nil {
				t.Fatal(err)
			}
			got := b.list(t)[0]
			if got.State != StateFinished || *got.Ended != string(process.WhyCeiling) || *got.Outcome != outcome.Timeout || got.Outcome.Class() != outcome.Spent {
				t.Errorf("%+v", got)
			}
			for what, id := range map[string]process.Identity{"program": b.identity(t, run), "child": child} {
				if v := process.Probe(id); v != process.Dead {
					t.Errorf("%s is %s", what, v)
				}
			}
			if err := b.runs.End(bound(t), run.ID, process.WhyCancelled); err != nil || *b.list(t)[0].Ended != string(process.WhyCeiling) {
				t.Errorf("again: %v", err)
			}
		})
	}
}

func TestRunOfAnotherRootIsNotThisOnesToEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, id := uuid.New(), b.intended(t, "elsewhere")
	b.exec(t, `insert into roots (id, host, path) values ($1, 'there', '/elsewhere')`, other)
	b.exec(t, `update runs set root_id = $1, state = 'running'`, other)
	if err := b.runs.End(t.Context(), id, process.WhyCeiling); !errors.Is(err, ErrElsewhere) {
		t.Error(err)
	}
	if err := b.runs.NoteDead(t.Context(), id); !errors.Is(err, ErrElsewhere) {
		t.Error(err)
	}
}
