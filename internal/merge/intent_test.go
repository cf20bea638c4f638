package merge

import (
	"context"
	"errors"
	"testing"

	"orch/internal/forge"
)

// losing is a catalogue that has lost the repository, or knows it as something else.
type losing struct {
	*world

	lost   bool
	target string
}

var errUnknownRepo = errors.New("no repository is called demo")

func (c *losing) Definition(ctx context.Context, t Task) (Definition, error) {
	if c.lost {
		return Definition{}, errUnknownRepo
	}
	d, err := c.world.Definition(ctx, t)
	if c.target != "" {
		d.Target = c.target
	}
	return d, err
}

// with makes a handler with that catalogue.
func (w *world) with(c Catalog) *Handler {
	w.t.Helper()
	cfg := w.config()
	cfg.Catalog = c
	h, err := NewHandler(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// An open intent is brought to its end although the configuration doesn't have the repository any more.
func TestIntentNeedsNoCatalogue(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointLanding, pointMoved, pointLanded, pointRefreshed} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			flavours(t, func(t *testing.T, bare bool) {
				t.Helper()
				w := newWorld(t, bare)
				task := w.add(map[string]string{"a": "a"})
				if !w.crash(w.mustClaim(), stop) {
					t.Fatalf("%s was never reached", stop)
				}
				w.drain(w.with(&losing{world: w, lost: true}))
				w.landedOnce(task, "a")
				if got := len(w.tester.commits()); got != 1 {
					t.Errorf("tested %d times, want once", got)
				}
			})
		})
	}
}

// Not even a job that comes back with a cancel leaves an intent open.
func TestIntentIsResolvedUnderACancelledContext(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointMoved, pointLanded} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, false)
			task := w.add(map[string]string{"a": "a"})
			if !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			l := w.mustClaim()
			l.RequestCancel()
			if err := w.run(w.handler(nil), l); err != nil {
				t.Errorf("landing: %v", err)
			}
			w.landedOnce(task, "a")
		})
	}
}

// What wasn't landed begins anew, and that needs the configuration; the task can be cancelled meanwhile.
func TestIntentThatDidNotLandNeedsTheCatalogue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	if !w.crash(w.mustClaim(), pointIntended) {
		t.Fatal("no intent")
	}
	theirs := w.push(map[string]string{"theirs": "t"})
	if err := w.run(w.with(&losing{world: w, lost: true}), w.mustClaim()); !errors.Is(err, errUnknownRepo) {
		t.Errorf("handler ended with %v", err)
	}
	if got := w.step(task) + " " + w.lastError(task); got != "queued base_moved" {
		t.Errorf("attempt is %s", got)
	}
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
	if got := w.repo.Git("rev-parse", "main~1"); got != theirs {
		t.Errorf("landed on %s, not on the person's %s", got, theirs)
	}
}

// The lease of one target is no right to land on another that the configuration names by now.
func TestIntentThatDidNotLandFollowsTheTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	w.repo.Git("branch", "next", "main")
	if !w.crash(w.mustClaim(), pointIntended) {
		t.Fatal("no intent")
	}
	theirs := w.push(map[string]string{"theirs": "t"})
	w.drain(w.with(&losing{world: w, target: "next"}))
	if w.main() != theirs {
		t.Errorf("main is %s, want %s", w.main(), theirs)
	}
	landed := w.text(`select landed_commit from tasks where id = $1`, task)
	if next := w.repo.Git("rev-parse", "next"); w.state(task) != "done" || landed != next {
		t.Errorf("task is %s, landed %s, next is %s", w.state(task), landed, next)
	}
	if got := w.text(`select repo || ' ' || target from merge_attempts where task_id = $1`, task); got != "demo next" {
		t.Errorf("attempt is of %s", got)
	}
	w.clean()
}

// blind is a repository that doesn't say what is in its history.
type blind struct {
	forge.Forge

	err error
}

func (b *blind) Landed(ctx context.Context, repo forge.Repo, target, commit string) (bool, error) {
	if b.err != nil {
		return false, b.err
	}
	return b.Forge.Landed(ctx, repo, target, commit)
}

// However often the look fails, an intent stays one: its task can't be cancelled, and what may have landed isn't landed
// again, not even when somebody has taken it back meanwhile.
func TestUnresolvedIntentIsNeverParked(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointMoved} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			away := &blind{Forge: w.forge, err: errors.New("the repository is away")}
			w.forge = away
			cfg := w.config()
			cfg.MaxLater = 2
			h, err := NewHandler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			task := w.add(map[string]string{"a": "a"})
			if !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			for range 2 {
				w.exec(`update jobs set run_at = now() where task_id = $1`, task)
				w.drain(h)
			}
			if got := w.step(task) + " " + w.lastError(task) + " " + w.state(task) + " " + w.jobState(task); got != "landing look_failed blocked succeeded" {
				t.Errorf("attempt, task and job are %s", got)
			}
			if err := w.cancel(t.Context(), task); !errors.Is(err, errTooLate) {
				t.Errorf("cancelled a task that may have landed: %v", err)
			}
			w.clean()

			away.err = nil
			next := w.add(map[string]string{"b": "b"}) // the line goes on
			w.drain(h)
			w.landedOnce(next, "b")
			if stop == pointMoved {
				clone := w.clone()
				clone.Git("rm", "-q", "a")
				clone.Git("commit", "-q", "-m", "take it back")
				clone.Git("push", "-q", "origin", "HEAD:main")
			}
			main := w.main()
			w.exec(`update tasks set state = 'active', reason_code = null, reason = null, finished_at = null where id = $1`, task)
			w.enqueue(task)
			w.drain(h)
			w.landedOnce(task)
			if moved := w.main() != main; moved != (stop == pointIntended) {
				t.Errorf("main moved: %t", moved)
			}
		})
	}
}
