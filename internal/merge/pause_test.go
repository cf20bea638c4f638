package merge

import (
	"testing"

	"orch/internal/queue/pause"
)

// pausing makes a handler that asks for pauses.
func (w *world) pausing(at func(p point)) *Handler {
	w.t.Helper()
	cfg := w.config()
	cfg.At, cfg.Paused = told(at), pause.NewStore(w.pool).RepoPaused
	h, err := NewHandler(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (w *world) pause() {
	w.t.Helper()
	w.exec(`update jobs set repo = $1`, repoName)
	if err := pause.NewStore(w.pool).Pause(w.t.Context(), pause.Pause{Scope: pause.Repo, Name: repoName, Reason: "a freeze", Actor: "me"}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resume() {
	w.t.Helper()
	if resumed, err := pause.NewStore(w.pool).Resume(w.t.Context(), pause.Repo, repoName); err != nil || !resumed {
		w.t.Fatal(resumed, err)
	}
}

func TestPauseGivesTheLeaseBackAndKeepsTheTest(t *testing.T) {
	t.Parallel()
	for stop, want := range map[point]struct {
		step  string
		tests int // when it is over
	}{
		pointEntered: {"queued", 1}, pointTesting: {"testing", 1}, pointTested: {"ready", 1}, pointReady: {"ready", 1},
	} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			main := w.main()
			once := true
			if err := w.run(w.pausing(func(at point) {
				if at == stop && once {
					once = false
					w.pause()
				}
			}), w.mustClaim()); err != nil {
				t.Fatal(err)
			}
			if got := w.step(task) + " " + w.jobState(task); got != want.step+" queued" || w.main() != main {
				t.Errorf("attempt and job are %s", got)
			}
			if got := w.text(`select phase from jobs where task_id = $1`, task); got != pause.WaitingForRepo(repoName) {
				t.Errorf("it waits for %q", got)
			}
			w.clean()
			w.exec(`update jobs set run_at = now() - interval '1 day'`) // it has lasted
			w.resume()
			if due := w.dueIn(task); due.Seconds() < -60 {
				t.Errorf("the wait since counts: due in %s", due)
			}
			w.drain(w.pausing(nil))
			w.landedOnce(task, "a")
			if got := len(w.tester.commits()); got != want.tests {
				t.Errorf("tested %d times, want %d", got, want.tests)
			}
		})
	}
}

func TestPauseAfterTheIntentLands(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{pointIntended, pointLanding, pointMoved, pointLanded} {
		t.Run(string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			w.drain(w.pausing(func(at point) {
				if at == stop {
					w.pause()
				}
			}))
			w.landedOnce(task, "a")
		})
	}
}

// A freeze that outlasts the line's patience doesn't change the order of the line.
func TestLineKeepsItsOrderThroughAPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	_, release := w.occupied()
	first, second := w.add(map[string]string{"b": "b"}), w.add(map[string]string{"c": "c"})
	w.drain(w.handler(nil))
	w.pause()
	release()
	w.exec(`update jobs set run_at = now() - interval '2 hours' where task_id = $1`, first)
	w.exec(`update jobs set run_at = now() - interval '3 hours' where task_id = $1`, second)
	w.resume()
	w.exec(`update jobs set run_at = now() - interval '1 s' where task_id = $1`, second) // it is claimed first
	w.drain(w.pausing(nil))
	w.landedOnce(first, "b")
	w.landedOnce(second, "c")
	if got := w.text(`select string_agg(task_id::text, ' ' order by id) from task_events where kind = 'landed' and task_id in ($1, $2)`, first, second); got != w.text(`select $1::bigint || ' ' || $2::bigint`, first, second) {
		t.Errorf("landed in the order %s", got)
	}
}
