package merge

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"orch/internal/forge"
	"orch/internal/merge/problem"
)

// counting notes the landings that moved a target.
type counting struct {
	forge.Forge

	mu    sync.Mutex
	moves []forge.Landing
}

func (c *counting) Land(ctx context.Context, repo forge.Repo, l forge.Landing) (forge.LandResult, error) {
	result, err := c.Forge.Land(ctx, repo, l)
	if err == nil && !result.Already {
		c.mu.Lock()
		c.moves = append(c.moves, l)
		c.mu.Unlock()
	}
	return result, err
}

// lineUp makes tasks of which each adds the files, and lets them stand in line behind a landing, which is done then.
func (w *world) lineUp(files ...map[string]string) (tasks []int64) {
	w.t.Helper()
	w.batch = 8
	_, release := w.occupied()
	for _, f := range files {
		task := w.add(f)
		w.tasks.head[task] = w.branch(task)
		tasks = append(tasks, task)
	}
	w.drain(w.handler(nil))
	release()
	return tasks
}

// named are files that have their names in them, one for each task.
func named(names ...string) []map[string]string {
	var files []map[string]string
	for _, name := range names {
		files = append(files, map[string]string{name: name})
	}
	return files
}

// landedAll checks that each task, whose file has its name, landed once.
func (w *world) landedAll(tasks []int64, names ...string) {
	w.t.Helper()
	for i, task := range tasks {
		w.landedOnce(task, names[i])
	}
}

func TestGroupLandsInOneMove(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, bare bool) {
		t.Helper()
		w := newWorld(t, bare)
		counted := &counting{Forge: w.forge}
		w.forge = counted
		tasks := w.lineUp(named("a", "b", "c")...)
		before := w.main()
		w.drain(w.handler(nil))
		w.landedAll(tasks, "a", "b", "c")
		if len(counted.moves) != 2 {
			t.Fatalf("main was moved %d times, want once for the first and once for the group", len(counted.moves))
		}
		group := counted.moves[1]
		if group.Old != before || group.New != w.main() || len(group.Verify) != 3 {
			t.Errorf("landed %+v, main is %s", group, w.main())
		}
		if tested := w.tester.commits(); len(tested) != 2 || tested[1] != w.main() {
			t.Errorf("tested %v", tested)
		}
		if got := w.text(`select count(distinct evidence_id) || ' ' || count(distinct group_id) from merge_attempts where group_id is not null`); got != "1 1" {
			t.Errorf("evidence and groups of the members: %s", got)
		}
		if got := w.repo.Git("for-each-ref", "refs/orch/head", "refs/orch/land"); got != "" {
			t.Errorf("left in the repository: %s", got)
		}
	})
}

// A red one is found by halves; each half is tested on the target as it is by then, and the green ones land.
func TestRedGroupIsTestedOnceMoreThenHalved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.tester.command = "! test -f c"
	tasks := w.lineUp(named("a", "b", "c", "d")...)
	w.drain(w.handler(nil))
	w.landedAll([]int64{tasks[0], tasks[1], tasks[3]}, "a", "b", "d")
	w.returned(tasks[2], problem.TestRed, "failed")
	tested := w.tester.commits()
	// the first; four, once more; two; the other two, once more; one red, one green
	if len(tested) != 8 || tested[1] != tested[2] || tested[4] != tested[5] {
		t.Errorf("tested %d: %v", len(tested), tested)
	}
	if w.repo.Git("rev-parse", tested[7]+"~1") != tested[3] || w.main() != tested[7] {
		t.Errorf("main is %s, tested %v", w.main(), tested)
	}
}

// What was red for a passing cause isn't halved.
func TestGroupThatIsGreenTheSecondTimeLandsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	counted := &counting{Forge: w.forge}
	w.forge = counted
	tasks := w.lineUp(named("a", "b")...)
	flaky := w.t.TempDir() + "/flaky"
	w.tester.during = func(context.Context) error {
		w.tester.command = "test -e " + flaky + " || { touch " + flaky + "; false; }"
		return nil
	}
	w.drain(w.handler(nil))
	w.landedAll(tasks, "a", "b")
	if len(counted.moves) != 2 || len(w.tester.commits()) != 3 {
		t.Errorf("%d moves, tested %v", len(counted.moves), w.tester.commits())
	}
}

func TestGroupSurvivesACrashAtEachStep(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{
		pointClaimed, pointGrouped, pointTesting, pointTested, pointReady, pointIntended, pointLanding, pointMoved, pointLanded,
		pointRefreshed, pointRefreshNoted, pointFinalised,
	} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, stop == pointIntended || stop == pointMoved)
			counted := &counting{Forge: w.forge}
			w.forge = counted
			tasks := w.lineUp(named("a", "b", "c")...)
			if !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			w.drain(w.handler(nil))
			w.landedAll(tasks, "a", "b", "c")
			if len(counted.moves) != 2 {
				t.Errorf("%d moves", len(counted.moves))
			}
		})
	}
}

// Whoever of the group comes first after a crash brings the intent of all to its end.
func TestMateResolvesTheIntentOfTheGroup(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointMoved, pointLanded} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			counted := &counting{Forge: w.forge}
			w.forge = counted
			tasks := w.lineUp(named("a", "b", "c")...)
			if !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			w.exec(`update jobs set run_at = now() + interval '1 hour', pinned_root = gen_random_uuid() where task_id = $1`, tasks[0])
			w.exec(`update jobs set run_at = now() where task_id in ($1, $2)`, tasks[1], tasks[2])
			// The one whose host is away is before them for as long as it may come back.
			w.exec(`update merge_attempts set last_error = 'away', next_look_at = now() + interval '1 hour' where task_id = $1`, tasks[0])
			w.drain(w.handler(nil))
			w.landedAll(tasks[1:], "b", "c")
			w.exec(`update jobs set run_at = now(), pinned_root = null where task_id = $1`, tasks[0])
			w.drain(w.handler(nil))
			w.landedAll(tasks, "a", "b", "c")
			if len(counted.moves) != 2 || len(w.tester.commits()) != 2 {
				t.Errorf("%d moves, tested %v", len(counted.moves), w.tester.commits())
			}
		})
	}
}

func TestHalvedGroupSurvivesACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.tester.command = "! test -f c"
	tasks := w.lineUp(named("a", "b", "c")...)
	if !w.crash(w.mustClaim(), pointHalved) {
		t.Fatal("never halved")
	}
	w.drain(w.handler(nil))
	w.landedAll(tasks[:2], "a", "b")
	w.returned(tasks[2], problem.TestRed, "failed")
	if got := len(w.tester.commits()); got != 5 { // the first; three, once more; two; the red one
		t.Errorf("tested %d times", got)
	}
}

func TestMemberThatConflictsWithAMateWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	counted := &counting{Forge: w.forge}
	w.forge = counted
	tasks := w.lineUp(
		map[string]string{"a": "a", "shared": "one\nmine\nthree\n"}, map[string]string{"shared": "one\ntheirs\nthree\n"},
		map[string]string{"c": "c"},
	)
	w.drain(w.handler(nil))
	w.landedOnce(tasks[0], "a")
	w.landedOnce(tasks[2], "c")
	w.returned(tasks[1], problem.Conflict, "shared")
	if len(counted.moves) != 2 {
		t.Errorf("%d moves", len(counted.moves))
	}
}

func TestMemberCancelledBeforeTheGroupsIntentDropsOut(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointGrouped, pointTested, pointReady} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			tasks := w.lineUp(named("a", "b", "c")...)
			once := sync.Once{}
			w.drain(w.handler(func(at point) {
				if at == stop {
					once.Do(func() {
						if err := w.cancel(t.Context(), tasks[1]); err != nil {
							t.Errorf("cancel: %v", err)
						}
					})
				}
			}))
			w.landedOnce(tasks[0], "a")
			w.landedOnce(tasks[2], "c")
			if got := w.state(tasks[1]) + " " + w.step(tasks[1]); got != "cancelled returned" {
				t.Errorf("the cancelled one is %s", got)
			}
			if _, err := w.repo.Try("show", "main:b"); err == nil {
				t.Error("the work of a cancelled task landed")
			}
			if tested := w.tester.commits(); tested[len(tested)-1] != w.main() {
				t.Errorf("tested %v, main is %s", tested, w.main())
			}
		})
	}
}

// A mate whose task is elsewhere by the intent, without anyone having closed its attempt, is left to its own job.
func TestMemberThatMovedOnDropsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tasks := w.lineUp(named("a", "b", "c")...)
	once := sync.Once{}
	w.drain(w.handler(func(at point) {
		if at == pointReady {
			once.Do(func() { w.exec(`update tasks set state = 'waiting', waiting_for = 'person' where id = $1`, tasks[1]) })
		}
	}))
	w.landedOnce(tasks[0], "a")
	w.landedOnce(tasks[2], "c")
	if _, err := w.repo.Try("show", "main:b"); err == nil {
		t.Error("the work of a task that waits landed")
	}
}

func TestWithdrawnGroupIntentIsWithdrawnForAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tasks := w.lineUp(named("a", "b", "c")...)
	w.forge = &answering{Forge: w.forge, err: &forge.ProblemError{Code: forge.CodeRefused, Message: "no"}}
	main := w.main()
	if err := w.run(w.handler(nil), w.mustClaim()); err != nil {
		t.Fatal(err)
	}
	if got := w.text(`select string_agg(step, ' ' order by id) from merge_attempts where finished_at is null`); got != "ready ready ready" || w.main() != main {
		t.Errorf("attempts are %s, main moved: %t", got, w.main() != main)
	}
	if err := w.cancel(t.Context(), tasks[1]); err != nil {
		t.Errorf("cancel of a mate: %v", err)
	}
	w.exec(`update jobs set run_at = now() where state = 'queued'`)
	w.drain(w.handler(nil))
	w.landedOnce(tasks[0], "a")
	w.landedOnce(tasks[2], "c")
	if _, err := w.repo.Try("show", "main:b"); err == nil {
		t.Error("the work of a cancelled task landed")
	}
}

func TestCancelOfAMateAfterTheIntentIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tasks := w.lineUp(named("a", "b")...)
	w.drain(w.handler(func(at point) {
		if at == pointLanding {
			if err := w.cancel(t.Context(), tasks[1]); !errors.Is(err, errTooLate) {
				t.Errorf("cancel was answered %v", err)
			}
		}
	}))
	w.landedAll(tasks, "a", "b")
}

func TestGroupEvidenceIsReusedByARedrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	tasks := w.lineUp(named("a", "b", "c")...)
	if !w.crash(w.mustClaim(), pointReady) {
		t.Fatal("never ready")
	}
	late := w.add(map[string]string{"d": "d"})
	w.tasks.head[late] = w.branch(late)
	w.drain(w.handler(nil))
	w.landedAll(append(tasks, late), "a", "b", "c", "d")
	if got := len(w.tester.commits()); got != 3 { // the first, the group, the late one
		t.Errorf("tested %d times", got)
	}
}

func TestBaseMovedAfterAGreenGroupTestsItWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	counted := &counting{Forge: w.forge}
	w.forge = counted
	tasks := w.lineUp(named("a", "b", "c")...)
	once := sync.Once{}
	w.drain(w.handler(func(at point) {
		if at == pointLanding {
			once.Do(func() { w.push(map[string]string{"theirs": "t"}) })
		}
	}))
	w.landedAll(tasks, "a", "b", "c")
	if len(counted.moves) != 2 || len(w.tester.commits()) != 3 {
		t.Errorf("%d moves, tested %v", len(counted.moves), w.tester.commits())
	}
	if got := w.text(`select string_agg(coalesce(group_most, 0) || ':' || moved, ' ' order by id) from merge_attempts where id > 1`); strings.Trim(got, "01: ") != "" {
		t.Errorf("sizes and moves are %s", got)
	}
}

// What was offered of a mate may be taken away or changed by anybody: the group lands without being bound to it.
func TestGroupLandsAlthoughTheOfferOfAMateIsGone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, ref string){
		"gone":    func(w *world, ref string) { w.repo.Git("update-ref", "-d", ref) },
		"another": func(w *world, ref string) { w.repo.Git("update-ref", ref, w.main()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			tasks := w.lineUp(named("a", "b")...)
			change(w, "refs/orch/head/"+w.key(tasks[1]))
			w.drain(w.handler(nil))
			w.landedAll(tasks, "a", "b")
			if got := w.text(`select max(moved) from merge_attempts`); got != "0" {
				t.Errorf("counted %s moves", got)
			}
		})
	}
}
