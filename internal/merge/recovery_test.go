package merge

import (
	"context"
	"errors"
	"testing"

	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// points are the step boundaries of a landing, in order.
func points() []point {
	return []point{
		pointEntered, pointPreparing, pointReplayed, pointTesting, pointTested, pointReady, pointIntended,
		pointLanding, pointMoved, pointLanded, pointRefreshed, pointFinalised,
	}
}

type withMethod struct {
	Catalog

	method string
}

func (c withMethod) Definition(ctx context.Context, t Task) (Definition, error) {
	d, err := c.Catalog.Definition(ctx, t)
	d.Method = c.method
	return d, err
}

func TestCrashAtEachStep(t *testing.T) {
	t.Parallel()
	for _, stop := range points() {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			flavours(t, func(t *testing.T, bare bool) {
				t.Helper()
				w := newWorld(t, bare)
				task := w.add(map[string]string{"a": "a"})
				if !w.crash(w.mustClaim(), stop) {
					t.Fatalf("%s was never reached", stop)
				}
				w.drain(w.handler(nil))
				w.landedOnce(task, "a")
			})
		})
	}
}

func TestCrashAtOneStepAfterTheOther(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, bare bool) {
		t.Helper()
		w := newWorld(t, bare)
		task := w.add(map[string]string{"a": "a"})
		for _, stop := range points() {
			if l := w.claim(); l != nil {
				w.crash(l, stop)
			}
		}
		w.drain(w.handler(nil))
		w.landedOnce(task, "a")
	})
}

// After a crash with the intent written, someone else moved the base: what was tested must not land.
func TestCrashThenBaseMoves(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointReady, pointIntended, pointLanding} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			if !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			theirs := w.push(map[string]string{"theirs": "t"})
			w.drain(w.handler(nil))
			w.landedOnce(task, "a")
			if got := w.repo.Git("rev-parse", "main~1"); got != theirs {
				t.Errorf("landed on %s, not on the person's %s", got, theirs)
			}
		})
	}
}

// A landing that was recorded nowhere, buried under someone else's commit, is still found.
func TestCrashAfterTheMoveIsFoundUnderLaterCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	if !w.crash(w.mustClaim(), pointMoved) {
		t.Fatal("never moved")
	}
	landed := w.main()
	theirs := w.push(map[string]string{"theirs": "t"})
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
	if w.main() != theirs || w.text(`select landed_commit from tasks where id = $1`, task) != landed {
		t.Errorf("main is %s, want the person's %s", w.main(), theirs)
	}
}

// A green test is not run again after a crash when nothing that counts has changed.
func TestCrashKeepsTheTest(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointReady, pointIntended, pointLanding, pointMoved} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			w.crash(w.mustClaim(), stop)
			w.drain(w.handler(nil))
			w.landedOnce(task, "a")
			if got := len(w.tester.commits()); got != 1 {
				t.Errorf("tested %d times, want once", got)
			}
		})
	}
}

func TestChangedDefinitionIsTestedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	w.crash(w.mustClaim(), pointReady)
	w.tester.command = "false"
	w.drain(w.handler(nil))
	w.returned(task, problem.TestRed, "false failed")
}

// A holder that was frozen at any step, lost both leases, and wakes up after its successor has finished changes
// nothing.
func TestStaleHolder(t *testing.T) {
	t.Parallel()
	for _, stop := range points() {
		if stop == pointFinalised {
			continue // it holds nothing any more
		}
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			flavours(t, func(t *testing.T, bare bool) {
				t.Helper()
				w := newWorld(t, bare)
				task := w.add(map[string]string{"a": "a"})
				wake, err := w.freeze(w.mustClaim(), stop)
				w.drain(w.handler(nil))
				w.landedOnce(task, "a")
				before := w.facts(task)
				close(wake)
				if err := <-err; !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("the stale holder ended with %v, want a lost lease", err)
				}
				if after := w.facts(task); after != before {
					t.Errorf("the stale holder changed\n%s\nto\n%s", before, after)
				}
				w.landedOnce(task, "a")
			})
		})
	}
}

// The same, but its successor is still at work and has the base moved under it: the stale holder must not land what
// it tested on the old base.
func TestStaleHolderAgainstMovedBase(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointTested, pointReady, pointIntended, pointLanding} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			wake, err := w.freeze(w.mustClaim(), stop)
			theirs := w.push(map[string]string{"theirs": "t"})
			close(wake)
			if err := <-err; !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("the stale holder ended with %v, want a lost lease", err)
			}
			if w.main() != theirs {
				t.Errorf("main is %s, want %s", w.main(), theirs)
			}
			w.drain(w.handler(nil))
			w.landedOnce(task, "a")
		})
	}
}

// freeze runs a handler up to a point, where it stays until wake is closed; its job goes back to the queue meanwhile.
func (w *world) freeze(l *queue.Lease, stop point) (wake chan struct{}, ended chan error) {
	w.t.Helper()
	wake, ended = make(chan struct{}), make(chan error, 1)
	frozen := make(chan struct{})
	once := true
	h := w.handler(func(at point) {
		if at == stop && once {
			once = false
			close(frozen)
			<-wake
		}
	})
	go func() { ended <- w.run(h, l) }()
	select {
	case <-frozen:
	case err := <-ended:
		w.t.Fatalf("%s was never reached: %v", stop, err)
	}
	w.reap(l)
	return wake, ended
}

// facts is everything that a stale holder could change.
func (w *world) facts(task int64) string {
	w.t.Helper()
	return w.main() + "\n" +
		w.text(`select to_jsonb(t) from tasks t where id = $1`, task) + "\n" +
		w.text(`select jsonb_agg(to_jsonb(a)) from merge_attempts a where task_id = $1`, task) + "\n" +
		w.text(`select jsonb_agg(to_jsonb(j)) from jobs j where task_id = $1`, task) + "\n" +
		w.text(`select jsonb_agg(to_jsonb(l)) from merge_leases l`) + "\n" +
		w.text(`select count(*) from task_events`)
}

func TestStopDuringTheTest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	other := w.add(map[string]string{"b": "b"})
	w.tester.during = func(context.Context) error { return queue.ErrStopping }
	if err := w.run(w.handler(nil), w.mustClaim()); !errors.Is(err, queue.ErrStopping) {
		t.Errorf("handler ended with %v", err)
	}
	if got := w.step(task) + " " + w.jobState(task); got != "testing queued" {
		t.Errorf("attempt and job are %s", got)
	}
	w.clean()
	w.tester.during = nil
	// The one that was stopped keeps its place: what comes first now only looks.
	w.exec(`update jobs set run_at = now() + interval '1 minute' where task_id = $1`, task)
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
	if due := w.dueIn(other); due > 0 {
		w.t.Errorf("the other was not woken: due in %s", due)
	}
	w.landedOnce(other, "b")
}
