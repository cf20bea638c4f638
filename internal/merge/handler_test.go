package merge

import (
	"strings"
	"testing"
	"time"

	"orch/internal/merge/problem"
	"orch/internal/testgit"
)

// flavours runs a test on a bare repository and on one that has the target checked out.
func flavours(t *testing.T, test func(t *testing.T, bare bool)) {
	t.Helper()
	for name, bare := range map[string]bool{"bare": true, "checked_out": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, bare)
		})
	}
}

func TestLand(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, bare bool) {
		t.Helper()
		w := newWorld(t, bare)
		w.tester.command = "test -f a"
		task := w.add(map[string]string{"a": "a"})
		before := w.main()
		w.drain(w.handler(nil))
		w.landedOnce(task, "a")
		if got := w.tester.commits(); len(got) != 1 || got[0] != w.main() {
			t.Errorf("tested %v, landed %s", got, w.main())
		}
		if got := w.repo.Git("rev-parse", "main~1"); got != before {
			t.Errorf("landed on %s, want %s", got, before)
		}
		if _, err := w.openMirror().Ref(t.Context(), "refs/orch/land/"+w.key(task)); err == nil {
			t.Error("the land ref is left behind")
		}
	})
}

func TestSecondTaskIsTestedOnTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	first := w.add(map[string]string{"a": "a"})
	second := w.add(map[string]string{"b": "b"})
	w.drain(w.handler(nil))
	w.landedOnce(first, "a")
	w.landedOnce(second, "b")
	tested := w.tester.commits()
	if len(tested) != 2 || w.repo.Git("rev-parse", tested[1]+"~1") != tested[0] || w.main() != tested[1] {
		t.Errorf("tested %v, main is %s", tested, w.main())
	}
}

func TestGreenAloneRedTogether(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, bare bool) {
		t.Helper()
		w := newWorld(t, bare)
		w.tester.command = "if test -f a && test -f b; then echo they clash; exit 1; fi"
		first := w.add(map[string]string{"a": "a"})
		second := w.add(map[string]string{"b": "b"})
		w.drain(w.handler(nil))
		w.landedOnce(first, "a")
		main := w.main()
		w.returned(second, problem.TestRed, "they clash")
		if w.main() != main {
			t.Error("a red commit moved main")
		}
	})
}

// returned checks that the task went back to its author with the given feedback.
func (w *world) returned(task int64, code, feedback string) {
	w.t.Helper()
	if got := w.step(task) + " " + w.lastError(task); got != "returned "+code {
		w.t.Errorf("attempt is %s, want returned %s", got, code)
	}
	if got := w.text(`select stage || ' ' || round from tasks where id = $1`, task); got != "development 2" {
		w.t.Errorf("task is at %s", got)
	}
	if got := w.text(`select feedback from tasks where id = $1`, task); !strings.Contains(got, feedback) {
		w.t.Errorf("feedback %q doesn't tell %q", got, feedback)
	}
	if got := w.text(`select count(*) from jobs where task_id = $1 and kind = 'stage' and state = 'queued'`, task); got != "1" {
		w.t.Errorf("%s stage jobs are queued, want 1", got)
	}
	w.clean()
}

func TestConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	task := w.add(map[string]string{"shared": "one\nmine\nthree\n"})
	head := w.push(map[string]string{"shared": "one\ntheirs\nthree\n"})
	w.drain(w.handler(nil))
	w.returned(task, problem.Conflict, "shared")
	if w.main() != head || len(w.tester.commits()) > 0 {
		t.Error("a conflict was tested or landed")
	}
}

func TestAlreadyUpstream(t *testing.T) {
	t.Parallel()
	for name, bring := range map[string]func(w *world, work string){
		"by_hand": func(w *world, _ string) { w.push(map[string]string{"a": "a", "more": "m"}) },
		"merged": func(w *world, branch string) {
			clone := w.clone()
			clone.Git("fetch", "-q", w.mirror, branch)
			clone.Git("merge", "-q", "--no-ff", "--no-edit", "FETCH_HEAD")
			clone.Git("push", "-q", "origin", "HEAD:main")
		},
		// Commit by commit the work conflicts with what its commits came to.
		"squashed": func(w *world, _ string) {
			w.push(map[string]string{"a": "a", "shared": "one\nnew\nthree\n", "more": "m"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.addWith(func(work *testgit.Repo) {
				work.Commit("work", map[string]string{"a": "a"})
				if name == "squashed" {
					work.Commit("more", map[string]string{"shared": "one\nold\nthree\n"})
					work.Commit("again", map[string]string{"shared": "one\nnew\nthree\n"})
				}
			})
			bring(w, "refs/heads/orch/"+w.key(task))
			main := w.main()
			w.drain(w.handler(nil))
			if got := w.state(task) + " " + w.step(task); got != "done finalised" {
				t.Errorf("task and attempt are %s", got)
			}
			if w.main() != main || len(w.tester.commits()) > 0 {
				t.Error("what was upstream already was tested or landed")
			}
			w.clean()
		})
	}
}

func TestBaseMovesBetweenTestAndLanding(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointTested, pointReady, pointIntended, pointLanding} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			flavours(t, func(t *testing.T, bare bool) {
				t.Helper()
				w := newWorld(t, bare)
				task := w.add(map[string]string{"a": "a"})
				theirs := ""
				w.drain(w.handler(func(at point) {
					if at == stop && theirs == "" {
						theirs = w.push(map[string]string{"theirs": "t"})
					}
				}))
				w.landedOnce(task, "a")
				if got := w.repo.Git("rev-parse", "main~1"); got != theirs {
					t.Errorf("landed on %s, not on the person's %s", got, theirs)
				}
				if tested := w.tester.commits(); len(tested) != 2 || tested[1] != w.main() {
					t.Errorf("tested %v, main is %s", tested, w.main())
				}
			})
		})
	}
}

func TestBaseThatNeverRestsParks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	n := 0
	cfg := w.config()
	cfg.MaxMoved = 3
	cfg.At = told(func(at point) {
		if at == pointReady {
			n++
			w.push(map[string]string{"theirs": strings.Repeat("t", n)})
		}
	})
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	next := w.add(map[string]string{"b": "b"})
	w.drain(h)
	if got := w.step(task) + " " + w.lastError(task) + " " + w.state(task); got != "parked base_moved blocked" {
		t.Errorf("attempt and task are %s", got)
	}
	if n != 6 || w.step(next) != "parked" {
		t.Errorf("%d moves of the base; the next task's attempt is %s", n, w.step(next))
	}
	w.clean()
}

func TestDirtyCheckoutWaitsAndKeepsTheTest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	task := w.add(map[string]string{"a": "a"})
	w.repo.Write(map[string]string{"shared": "a person is editing\n"})
	main := w.main()
	h := w.handler(nil)
	w.drain(h)
	if got := w.step(task) + " " + w.lastError(task); got != "ready checkout_dirty" {
		t.Fatalf("attempt is %s", got)
	}
	if due := w.dueIn(task); due < 5*time.Second || w.main() != main {
		t.Errorf("due in %s, main moved: %t", due, w.main() != main)
	}
	if got := w.repo.Read("shared"); got != "a person is editing\n" {
		t.Errorf("the person's work is gone: %q", got)
	}
	if got := w.text(`select step in ('landing', 'landed') from merge_attempts where task_id = $1`, task); got != "false" {
		t.Error("a landing that waits for a person can't be cancelled")
	}
	w.repo.Git("checkout", "-q", "--", "shared")
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	w.drain(h)
	w.landedOnce(task, "a")
	if got := len(w.tester.commits()); got != 1 {
		t.Errorf("tested %d times, want once", got)
	}
}

func TestProblemsPark(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	cfg := w.config()
	cfg.MaxLater = 2
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := w.add(map[string]string{"a": "a"})
	w.repo.Write(map[string]string{"shared": "a person is editing\n"})
	w.drain(h)
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	w.drain(h)
	if got := w.step(task) + " " + w.state(task) + " " + w.jobState(task); got != "parked blocked succeeded" {
		t.Errorf("attempt, task and job are %s", got)
	}
	if got := w.text(`select reason_code from tasks where id = $1`, task); got != "checkout_dirty" {
		t.Errorf("blocked with %s", got)
	}
	w.repo.Git("checkout", "-q", "--", "shared")
	w.clean()
	next := w.add(map[string]string{"b": "b"})
	w.drain(h)
	w.landedOnce(next, "b")
}

func TestManualLanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.land = false
	published := &publishing{Forge: w.forge, w: w, commits: map[string]string{}}
	w.forge = published
	task := w.add(map[string]string{"a": "a"})
	theirs := w.push(map[string]string{"theirs": "t"})
	w.drain(w.handler(nil))
	ready := published.commits["refs/heads/orch/"+w.key(task)]
	if ready == "" || w.main() != theirs || w.repo.Git("rev-parse", ready+"~1") != theirs {
		t.Fatalf("main is %s, published is %v", w.main(), published.commits)
	}
	if got := w.state(task) + " " + w.step(task) + " " + w.jobState(task); got != "waiting ready succeeded" {
		t.Errorf("task, attempt and job are %s", got)
	}
	w.clean()
	if queue, err := w.leases.Queue(t.Context()); err != nil || len(queue) > 0 {
		t.Errorf("merge queue is %v, %v", queue, err)
	}

	w.repo.Git("update-ref", "refs/heads/main", ready) // the person lands it
	w.enqueue(task)
	w.drain(w.handler(nil))
	if got := w.state(task) + " " + w.step(task); got != "done finalised" {
		t.Errorf("task and attempt are %s after the person landed it", got)
	}
	if got := w.text(`select landed_commit from tasks where id = $1`, task); got != ready {
		t.Errorf("landed commit is %s, want %s", got, ready)
	}
	if got := len(w.tester.commits()); got != 1 {
		t.Errorf("tested %d times, want once", got)
	}
}

func TestSupersededJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	main := w.main()
	w.exec(`update tasks set round = 2 where id = $1`, task)
	w.drain(w.handler(nil))
	if w.main() != main || w.jobState(task) != "succeeded" {
		t.Errorf("job is %s, main moved: %t", w.jobState(task), w.main() != main)
	}
}

func TestUnknownMethodParks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	cfg := w.config()
	cfg.MaxRefused = 1
	cfg.Catalog = withMethod{w, "octopus"}
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := w.add(map[string]string{"a": "a"})
	w.drain(h)
	if got := w.step(task) + " " + w.lastError(task); got != "parked "+problem.Method {
		t.Errorf("attempt is %s", got)
	}
}
