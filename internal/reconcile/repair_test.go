package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/agent/ledger"
	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testgit"
)

func TestTaskWhoseJobWasCancelledGoesOn(t *testing.T) {
	t.Parallel()
	for stage, want := range map[string]string{
		"development": "stage queued", "deploy": "merge queued",
		"a stage that the pipeline has lost": "stage queued", // its handler tells
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			lost, fine := w.create(demo), w.create(demo)
			w.exec(`update tasks set stage = $2 where id = $1`, lost.ID, stage)
			w.loseJob(lost.ID)
			w.tick()
			w.tick()
			if got := w.job(lost.ID); got != want {
				t.Errorf("its job is %q, want %q", got, want)
			}
			if got := w.events(lost.ID) + ", " + w.events(fine.ID); got != "created revived, created" {
				t.Error(got)
			}
			w.repaired("job_missing demo-1")
		})
	}
}

// A repository that only another host's configuration has is that host's to judge.
func TestTaskOfARepositoryThatIsServedElsewhereGetsItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := w.create(demo)
	w.loseJob(lost.ID)
	w.pipeline = func(task.Task) (flow.Pipeline, error) { return flow.Pipeline{}, task.ErrUnknownPipeline }
	w.tick()
	if got := w.job(lost.ID) + " " + string(w.get(lost.ID).State); got != "stage queued active" {
		t.Error(got)
	}
}

// The job of a task is gone, and somebody is just giving it another one.
func TestTaskThatIsBeingGivenAJobGetsNoSecondOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	moved := w.create(demo)
	w.loseJob(moved.ID)
	ticked := make(chan error, 1)
	err := db.InTx(t.Context(), w.pool, func(tx pgx.Tx) error {
		held, is, err := w.tasks.HoldTx(t.Context(), tx, moved.At())
		if err != nil || !is {
			return fmt.Errorf("held %v: %w", is, err)
		}
		go func() { ticked <- w.rec.Tick(context.WithoutCancel(t.Context())) }()
		queuetest.Until(t, "the reconciler waits for the task", func() bool {
			return w.text(`select count(*)::text from pg_locks where not granted and database = (select oid from pg_database where datname = current_database())
				or not granted and locktype = 'transactionid'`) != "0"
		})
		return w.tasks.EnqueueTx(t.Context(), tx, held, flow.Stage{Name: held.Stage})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := queuetest.Wait(t, "the tick", ticked); err != nil {
		t.Fatal(err)
	}
	if got := w.job(moved.ID) + ", " + w.events(moved.ID); got != "stage queued, created" {
		t.Error(got)
	}
	w.repaired("")
}

func TestOpenIntentOfABlockedTaskIsResolved(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"merge:intended", "merge:moved", "merge:landed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			landing := w.landing(true, func(work *testgit.Repo) { work.Commit("work", map[string]string{"a": "a\n"}) })
			w.dieAt(point)
			if got := w.get(landing.ID); got.State != task.Blocked || got.ReasonCode != queue.CodeCrashLoop {
				t.Fatalf("the task is %s for %s", got.State, got.ReasonCode)
			}
			w.tick()
			w.repaired("") // it has just stopped
			w.rested(landing.ID, 2*time.Minute)
			w.tick()
			w.tick()
			w.repaired("intent_open demo-1")
			w.merge()
			if got := w.get(landing.ID); got.State != task.Done {
				t.Errorf("the task is %s: %s", got.State, got.Reason)
			}
			if got := w.repo.Git("log", "--format=%s", "main", "--", "a"); got != "work" {
				t.Errorf("main has %q", got)
			}
		})
	}
}

func TestBranchThatAPersonLandedEndsItsTask(t *testing.T) {
	t.Parallel()
	// Two commits that change the same line: replayed one by one they conflict with what both came to.
	twice := func(work *testgit.Repo) {
		work.Commit("first", map[string]string{"shared": "two\n"})
		work.Commit("second", map[string]string{"shared": "three\n"})
	}
	meanwhile := func(p *testgit.Repo) { p.Commit("meanwhile", map[string]string{"b": "b\n"}) }
	for name, land := range map[string]func(p *testgit.Repo, branch string){
		"fast-forward": func(p *testgit.Repo, branch string) { p.Git("merge", "-q", "--ff-only", branch) },
		"merge": func(p *testgit.Repo, branch string) {
			meanwhile(p)
			p.Git("merge", "-q", "--no-ff", "--no-edit", branch)
		},
		"rebase": func(p *testgit.Repo, branch string) {
			meanwhile(p)
			p.Git("cherry-pick", branch+"~1", branch)
		},
		"squash": func(p *testgit.Repo, branch string) {
			meanwhile(p)
			p.Git("merge", "-q", "--squash", branch)
			p.Git("commit", "-q", "-m", "both at once")
		},
		"squash, and main went on": func(p *testgit.Repo, branch string) {
			p.Git("merge", "-q", "--squash", branch)
			p.Git("commit", "-q", "-m", "both at once")
			meanwhile(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ready := w.landing(false, twice)
			w.merge()
			if got := w.get(ready.ID); !got.Ready() {
				t.Fatalf("the task is %s: %s", got.State, got.Reason)
			}
			person := w.clone()
			meanwhile := w.clone()
			meanwhile.Commit("another's", map[string]string{"c": "c\n"})
			meanwhile.Git("push", "-q", "origin", "HEAD:main")
			w.tick()
			w.repaired("")
			person.Git("pull", "-q")
			if name == "fast-forward" { // which needs a branch that isn't behind
				person.Git("checkout", "-q", "-B", "main", "HEAD~1")
			}
			land(person, "origin/"+ready.Branch)
			person.Git("push", "-q", "--force", "origin", "HEAD:main")
			w.tick()
			w.tick()
			w.repaired("landed_outside demo-1")
			main := w.repo.Git("rev-parse", "main")
			w.merge()
			w.tick()
			if got := w.get(ready.ID); got.State != task.Done || w.repo.Git("rev-parse", "main") != main {
				t.Errorf("the task is %s (%s), main moved: %v", got.State, got.Reason, w.repo.Git("rev-parse", "main") != main)
			}
			w.repaired("landed_outside demo-1")
		})
	}
}

func TestBranchThatAPersonLandedAndTookBackStaysTheirs(t *testing.T) {
	t.Parallel()
	for name, land := range map[string]func(p *testgit.Repo, branch string){
		"fast-forward": func(p *testgit.Repo, branch string) {
			p.Git("merge", "-q", "--ff-only", branch)
			p.Git("revert", "--no-edit", "HEAD")
		},
		"merge": func(p *testgit.Repo, branch string) {
			p.Git("merge", "-q", "--no-ff", "--no-edit", branch)
			p.Git("revert", "--no-edit", "-m", "1", "HEAD")
		},
		"squash": func(p *testgit.Repo, branch string) {
			p.Git("merge", "-q", "--squash", branch)
			p.Git("commit", "-q", "-m", "squashed")
			p.Git("revert", "--no-edit", "HEAD")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ready := w.landing(false, func(work *testgit.Repo) { work.Commit("work", map[string]string{"a": "a\n"}) })
			w.merge()
			person := w.clone()
			land(person, "origin/"+ready.Branch)
			person.Git("push", "-q", "origin", "HEAD:main")
			w.tick()
			w.repaired("")
			if got := w.get(ready.ID); !got.Ready() {
				t.Fatalf("the task is %s: %s", got.State, got.Reason)
			}
			person.Git("revert", "--no-edit", "HEAD") // the change is wanted after all
			person.Git("push", "-q", "origin", "HEAD:main")
			w.tick()
			w.repaired("landed_outside demo-1")
		})
	}
}

func TestParkedLandingGoesOnWhenItsCauseIsGone(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testgit.New(t, map[string]string{"README": "demo\n"}))
	landing := w.landing(true, func(work *testgit.Repo) { work.Commit("work", map[string]string{"a": "a\n"}) })
	w.repo.Write(map[string]string{"README": "changed\n"})
	w.merge()
	if got := w.get(landing.ID); got.State != task.Blocked || got.ReasonCode != "checkout_dirty" {
		t.Fatalf("the task is %s for %s", got.State, got.ReasonCode)
	}
	w.rested(landing.ID, time.Hour)
	w.tick()
	w.repaired("") // it is dirty still
	w.repo.Git("checkout", "-q", "README")
	w.rested(landing.ID, time.Minute)
	w.tick()
	w.repaired("") // and it has just stopped
	w.rested(landing.ID, time.Hour)
	w.tick()
	w.repaired("parked_cleared demo-1")
	w.merge()
	if got := w.get(landing.ID); got.State != task.Done || w.repo.Read("a") != "a\n" {
		t.Errorf("the task is %s: %s", got.State, got.Reason)
	}
}

// lookedAt counts the looks at repositories.
type lookedAt struct {
	forge.Forge

	times int
}

func (l *lookedAt) Check(ctx context.Context, repo forge.Repo) (forge.Checked, error) {
	l.times++
	return l.Forge.Check(ctx, repo)
}

func TestParkedLandingsOfOneRepositoryAreOneLookAtIt(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testgit.New(t, map[string]string{"README": "demo\n"}))
	counted := &lookedAt{Forge: w.forge}
	w.forge, w.fresh = counted, time.Hour
	rec := w.reconciler()
	w.repo.Write(map[string]string{"README": "changed\n"})
	for range 3 {
		parked := w.create(demo)
		w.park(parked.ID)
		w.rested(parked.ID, time.Hour)
	}
	w.exec(`update tasks set root_id = $1`, w.root)
	for range 2 {
		if err := rec.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if counted.times != 1 {
		t.Errorf("the repository was looked at %d times", counted.times)
	}
	w.repaired("")
}

// park stops the task once more for something that no look at the repository finds.
func (w *world) park(id int64) {
	w.t.Helper()
	w.loseJob(id)
	w.exec(`insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, method, step, last_error, finished_at)
		values ($1, 1, 1, 'demo', 'main', 'b', 'rebase', 'parked', 'publish_failed', now())`, id)
	w.exec(`update tasks set state = 'blocked', reason_code = 'publish_failed', stage = 'deploy' where id = $1`, id)
}

func TestCauseThatStaysIsNotTriedAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	parked := w.create(demo)
	w.exec(`update tasks set root_id = $1`, w.root)
	var want []string
	resumed := func(after time.Duration, is bool) {
		t.Helper()
		w.park(parked.ID)
		w.rested(parked.ID, after-time.Minute)
		w.tick()
		w.repaired(strings.Join(want, ", "))
		w.rested(parked.ID, after+time.Minute)
		w.tick()
		if is {
			want = append(want, "parked_cleared demo-1")
		}
		w.repaired(strings.Join(want, ", "))
	}
	for _, after := range []int{10, 20, 40, 80, 160, 320} {
		resumed(time.Duration(after)*time.Minute, true)
	}
	resumed(30*24*time.Hour, false)
	if _, err := w.tasks.Retry(t.Context(), parked.Key, "ann", ""); err != nil { // a person has looked at it
		t.Fatal(err)
	}
	resumed(10*time.Minute, true)
}

func TestRunsOfACancelledRetirementAreConsumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ended := w.create(demo)
	w.run(ended.ID, "finished", w.root)
	if _, err := w.tasks.Cancel(t.Context(), ended.Key, "ann"); err != nil {
		t.Fatal(err)
	}
	w.tick()
	w.repaired("") // its clean-up is on its way
	w.exec(`update jobs set state = 'cancelled', finished_at = now() where kind = 'retire'`)
	w.tick()
	w.tick()
	w.repaired("runs_left demo-1")
	err := db.InTx(t.Context(), w.pool, func(tx pgx.Tx) error { // the clean-up's end
		if _, err := tx.Exec(t.Context(), `update jobs set state = 'succeeded', finished_at = now() - interval '1 day' where kind = 'retire' and state = 'queued'`); err != nil {
			return err
		}
		return ledger.ConsumeAllTx(t.Context(), tx, ended.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.tick()
	w.repaired("runs_left demo-1")
}

// run adds a run of a task that nobody has consumed.
func (w *world) run(taskID int64, state string, root any) {
	w.t.Helper()
	w.exec(`insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host, boot_id, pid_namespace, finished_at, ended)
		values (gen_random_uuid(), $1, 1, 1, 'agent', gen_random_uuid()::text, 'development', 1, 1, 'coder', $2, $3, 'here', 'boot', 'ns',
			case when $2 = 'finished' then now() end, case when $2 = 'finished' then 'exited' end)`, taskID, state, root)
}
