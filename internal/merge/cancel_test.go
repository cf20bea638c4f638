package merge

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

func TestCancelBeforeTheIntent(t *testing.T) {
	t.Parallel()
	for _, stop := range points()[:6] {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			main := w.main()
			// The job isn't told: its next beat would.
			err := w.run(w.handler(func(at point) {
				if at == stop {
					if err := w.cancel(t.Context(), task); err != nil {
						t.Errorf("cancel at %s: %v", at, err)
					}
				}
			}), w.mustClaim())
			if !errors.Is(err, queue.ErrCancelRequested) {
				t.Errorf("handler ended with %v", err)
			}
			if got := w.state(task) + " " + w.step(task) + " " + w.jobState(task); got != "cancelled returned cancelled" {
				t.Errorf("task, attempt and job are %s", got)
			}
			if w.main() != main {
				t.Error("a cancelled task landed")
			}
			w.clean()
		})
	}
}

func TestCancelAfterTheIntentIsRefused(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointLanding, pointMoved, pointLanded, pointRefreshed} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			w.drain(w.handler(func(at point) {
				if at == stop {
					if err := w.cancel(t.Context(), task); !errors.Is(err, errTooLate) {
						t.Errorf("cancel at %s was answered %v", at, err)
					}
				}
			}))
			w.landedOnce(task, "a")
		})
	}
}

// A cancel of the bare job, or a stop, that comes after the intent doesn't tear the landing apart.
func TestCancelledContextAfterTheIntent(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointLanding, pointMoved, pointLanded, pointRefreshed} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			task := w.add(map[string]string{"a": "a"})
			l := w.mustClaim()
			err := w.run(w.handler(func(at point) {
				if at == stop {
					l.RequestCancel()
				}
			}), l)
			if err != nil {
				t.Errorf("landing: %v", err)
			}
			w.landedOnce(task, "a")
		})
	}
}

func TestCancelDuringTheTest(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"job_is_told": true, "job_is_not_told_yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			main := w.main()
			l := w.mustClaim()
			w.tester.during = func(ctx context.Context) error {
				if err := w.cancel(ctx, task); err != nil || !told {
					return err
				}
				l.RequestCancel() // as the worker does on its next beat
				<-ctx.Done()
				return context.Cause(ctx)
			}
			if err := w.run(w.handler(nil), l); !errors.Is(err, queue.ErrCancelRequested) {
				t.Errorf("handler ended with %v", err)
			}
			if got := w.step(task) + " " + w.lastError(task) + " " + w.jobState(task); got != "returned cancelled cancelled" {
				t.Errorf("attempt and job are %s", got)
			}
			if got := w.text(`select error_code from jobs where task_id = $1`, task); got != "" {
				t.Errorf("the job failed with %s", got)
			}
			if w.main() != main {
				t.Error("a cancelled task landed")
			}
			w.clean()
		})
	}
}

// A cancel of the job alone: nobody has closed the attempt.
func TestCancelOfTheJobDuringTheTest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	l := w.mustClaim()
	w.tester.during = func(ctx context.Context) error {
		l.RequestCancel()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := w.run(w.handler(nil), l); !errors.Is(err, queue.ErrCancelRequested) {
		t.Errorf("handler ended with %v", err)
	}
	if got := w.step(task) + " " + w.lastError(task) + " " + w.jobState(task); got != "returned cancelled cancelled" {
		t.Errorf("attempt and job are %s", got)
	}
	w.clean()
}

// pinned claims the merge job of the task as one that an earlier grant left pinned by a run of its test.
func (w *world) pinned() *queue.Lease {
	w.t.Helper()
	l := w.mustClaim()
	err := l.Tx(w.t.Context(), func(tx pgx.Tx) error { return l.PinTx(w.t.Context(), tx, uuid.New()) })
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// ending makes a handler, like handler, that counts how often it ended the runs of the task.
func (w *world) ending(task int64, at func(p point)) (h *Handler, ended *int) {
	w.t.Helper()
	ended = new(int)
	cfg := w.config()
	cfg.At = told(at)
	cfg.EndRuns = func(ctx context.Context, id int64) error {
		*ended++
		if id != task {
			w.t.Errorf("the runs of task %d were ended, not of %d", id, task)
		}
		if _, bounded := ctx.Deadline(); !bounded {
			w.t.Error("nothing bounds the end of runs")
		}
		return ctx.Err()
	}
	h, err := NewHandler(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return h, ended
}

func TestRunsThatNobodyFollowsAreEnded(t *testing.T) {
	t.Parallel()
	const cancelled, succeeded = "cancelled", "succeeded"
	type scene struct {
		free  bool                                       // no run pins the job
		begin func(w *world, task int64, l *queue.Lease) // before the handler has the job
		point point                                      // where later happens
		later func(w *world, task int64, l *queue.Lease)
		ended int
		job   string
	}
	cancel := func(w *world, task int64, l *queue.Lease) {
		if err := w.cancel(w.t.Context(), task); err != nil {
			w.t.Errorf("cancel: %v", err)
		}
		l.RequestCancel()
	}
	silently := func(w *world, task int64, _ *queue.Lease) {
		if err := w.cancel(w.t.Context(), task); err != nil {
			w.t.Errorf("cancel: %v", err)
		}
	}
	alone := func(_ *world, _ int64, l *queue.Lease) { l.RequestCancel() }
	moveOn := func(w *world, task int64, _ *queue.Lease) { w.exec(`update tasks set round = 2 where id = $1`, task) }
	for name, s := range map[string]scene{
		"cancelled_before_the_claim":       {begin: cancel, ended: 1, job: cancelled},
		"cancelled_and_not_told":           {begin: silently, ended: 1, job: succeeded},
		"job_cancelled_before_the_claim":   {begin: alone, ended: 1, job: cancelled},
		"moved_on":                         {begin: moveOn, ended: 1, job: succeeded},
		"cancelled_while_preparing":        {point: pointPreparing, later: cancel, ended: 1, job: cancelled},
		"cancelled_untold_while_preparing": {point: pointPreparing, later: silently, ended: 1, job: cancelled},
		"cancelled_without_a_run":          {free: true, begin: cancel, job: cancelled},
		"moved_on_without_a_run":           {free: true, begin: moveOn, job: succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			claim := w.pinned
			if s.free {
				claim = w.mustClaim
			}
			l := claim()
			if s.begin != nil {
				s.begin(w, task, l)
			}
			h, ended := w.ending(task, func(at point) {
				if s.later != nil && at == s.point {
					s.later(w, task, l)
				}
			})
			err := w.run(h, l)
			if want := s.job == cancelled; errors.Is(err, queue.ErrCancelRequested) != want || err != nil && !want {
				t.Errorf("handler ended with %v", err)
			}
			if *ended != s.ended || w.jobState(task) != s.job {
				t.Errorf("runs were ended %d times, want %d; the job is %s, want %s", *ended, s.ended, w.jobState(task), s.job)
			}
			if len(w.tester.commits()) > 0 {
				t.Error("it was tested")
			}
			w.clean()
		})
	}
}

// A run that couldn't be ended keeps a job that only moved on.
func TestRunThatIsNotEndedIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	cfg := w.config()
	broken := errors.New("the run is stubborn")
	cfg.EndRuns = func(context.Context, int64) error { return broken }
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := w.pinned()
	w.exec(`update tasks set round = 2 where id = $1`, task)
	if err := w.run(h, l); !errors.Is(err, broken) || w.jobState(task) != "queued" {
		t.Errorf("handler ended with %v, the job is %s", err, w.jobState(task))
	}
}

// A holder that lost its job ends nobody's runs: its successor follows them.
func TestStaleHolderEndsNoRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	h, ended := w.ending(task, nil)
	l := w.pinned()
	w.reap(l)
	w.exec(`update tasks set round = 2 where id = $1`, task)
	if err := w.run(h, l); !errors.Is(err, queue.ErrLeaseLost) || *ended != 0 {
		t.Errorf("handler ended with %v and ended runs %d times", err, *ended)
	}
}

// A cancel that comes after the task was loaded and before its attempt is open leaves none behind, not even in a busy line.
func TestCancelBeforeTheAttemptOpensLeavesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	task := w.add(map[string]string{"a": "a"})
	l := w.mustClaim()
	cfg := w.config()
	cfg.Catalog = beforeDefinition{w, func() {
		if err := w.cancel(t.Context(), task); err != nil {
			t.Errorf("cancel: %v", err)
		}
	}}
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.run(h, l); !errors.Is(err, queue.ErrCancelRequested) {
		t.Errorf("handler ended with %v", err)
	}
	if got := w.text(`select count(*) from merge_attempts where task_id = $1 and finished_at is null`, task); got != "0" || w.jobState(task) != "cancelled" {
		t.Errorf("%s attempts are open, the job is %s", got, w.jobState(task))
	}
	release()
	w.clean()
}

// beforeDefinition does something when it is asked how to land.
type beforeDefinition struct {
	*world

	do func()
}

func (b beforeDefinition) Definition(ctx context.Context, t Task) (Definition, error) {
	b.do()
	return b.world.Definition(ctx, t)
}
