package stage

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task"
)

func (w *world) clean() error {
	w.t.Helper()
	w.due()
	return w.run(w.retire, w.mustClaim(task.KindRetire))
}

func (w *world) there(t task.Task) bool {
	_, err := os.Stat(w.places.Dir(t))
	return err == nil
}

func TestRetire_SalvagesWhatACancelledTaskLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitWrong + ` && echo new > untracked`}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
		t.Fatal(err)
	}
	if err := w.clean(); err != nil {
		t.Fatal(err)
	}
	ref := "refs/orch/salvage/demo-1/1"
	if w.places.published(ref, "answer") != "41" || w.places.published(ref, "untracked") != "new" {
		t.Error("the salvage isn't in the repository")
	}
	var data map[string]any
	event := w.lastEvent(added.ID, task.EventRetired)
	if err := json.Unmarshal(event.Data, &data); err != nil || data["salvage_ref"] != ref || data["salvage_commit"] == "" {
		t.Errorf("%s, %v", event.Data, err)
	}
	if w.there(added) || w.retires(added.ID) != 0 {
		t.Error("the workspace, or the job, is still there")
	}
}

func TestRetire_LandedTask(t *testing.T) {
	t.Parallel()
	for name, dirty := range map[string]bool{"clean": false, "dirty": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agents.scripts = []string{commitRight}
			added := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if dirty {
				if out, err := shell(w.places.Dir(added), "echo left > behind"); err != nil {
					t.Fatal(out)
				}
			}
			w.land(w.mustClaim(task.KindMerge), w.get(added.ID).At())
			if err := w.clean(); err != nil {
				t.Fatal(err)
			}
			if got := w.places.published("refs/orch/salvage/demo-1/1", "behind") == "left"; got != dirty || w.there(added) {
				t.Errorf("salvaged: %v, there: %v", got, w.there(added))
			}
			if kinds := w.kinds(added.ID); strings.Contains(kinds, "salvaged") != dirty || !strings.HasSuffix(kinds, "retired") {
				t.Error(kinds)
			}
		})
	}
}

// A crash between salvage and removal, or after it: the repetition keeps the first salvage.
func TestRetire_IsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
		t.Fatal(err)
	}
	broken := *w.retire
	broken.cfg.Remains = removesAndCrashes{w.places}
	if err := w.run(&broken, w.mustClaim(task.KindRetire)); err == nil {
		t.Fatal("no crash")
	}
	if w.there(added) {
		t.Fatal("not removed")
	}
	if err := w.clean(); err != nil {
		t.Fatal(err)
	}
	kinds := w.kinds(added.ID)
	if strings.Count(kinds, "salvaged") != 1 || strings.Count(kinds, "retired") != 1 {
		t.Error(kinds)
	}
	if !strings.Contains(string(w.lastEvent(added.ID, task.EventRetired).Data), "refs/orch/salvage/demo-1/1") {
		t.Errorf("%s", w.lastEvent(added.ID, task.EventRetired).Data)
	}
}

type removesAndCrashes struct{ *places }

func (r removesAndCrashes) Remove(ctx context.Context, t task.Task) error {
	return errors.Join(r.places.Remove(ctx, t), errors.New("crash"))
}

func TestRetire_PublishFailsAndNothingIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
		t.Fatal(err)
	}
	w.places.failing = errors.New("the repository is away")
	for since, pause := range []time.Duration{30 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		if since > 0 {
			w.exec(`update jobs set waiting_since = clock_timestamp() - make_interval(secs => $1) where kind = 'retire'`, pause.Seconds())
		}
		if pause == 10*time.Minute {
			w.exec(`update jobs set waiting_since = clock_timestamp() - interval '1 day' where kind = 'retire'`)
		}
		var snooze *queue.SnoozeError
		if err := w.clean(); !errors.As(err, &snooze) || snooze.WaitingFor != "publish" || snooze.After < pause || snooze.After > pause+pause/4 {
			t.Fatalf("%v, %+v", err, snooze)
		}
	}
	if n := w.count(`select attempt from jobs where kind = 'retire'`); n != 0 || !w.there(added) || strings.Count(w.kinds(added.ID), "retire_failed") != 1 {
		t.Errorf("%d attempts, %s", n, w.kinds(added.ID))
	}
	w.places.failing = nil
	if err := w.clean(); err != nil || w.there(added) || w.places.published("refs/orch/salvage/demo-1/1", "answer") != "42" {
		t.Errorf("%v, %s", err, w.kinds(added.ID))
	}
	if strings.Count(w.kinds(added.ID), "salvaged") != 1 {
		t.Error(w.kinds(added.ID))
	}
}

// What earlier rounds left behind is published too, whatever became of the task, and once.
func TestRetire_SalvagesOfEarlierRounds(t *testing.T) {
	t.Parallel()
	for name, landed := range map[string]bool{"landed": true, "cancelled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agents.scripts = []string{commitWrong + ` && echo first > untracked`, commitRight}
			added := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if err := w.places.Salvage(t.Context(), added, true); err != nil { // as the next round's Prepare does
				t.Fatal(err)
			}
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if landed {
				w.land(w.mustClaim(task.KindMerge), w.get(added.ID).At())
			} else if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
				t.Fatal(err)
			}
			// A crash before anything is noted, then one after the removal.
			unnoted, broken := *w.retire, *w.retire
			unnoted.cfg.Publisher = publishesAndCrashes{w.places}
			broken.cfg.Remains = removesAndCrashes{w.places}
			for _, h := range []*RetireHandler{&unnoted, &broken} {
				w.due()
				if err := w.run(h, w.mustClaim(task.KindRetire)); err == nil {
					t.Fatal("no crash")
				}
			}
			if err := w.clean(); err != nil || w.there(added) {
				t.Fatal(err)
			}
			want := map[bool]int{true: 1, false: 2}[landed]
			if kinds := w.kinds(added.ID); strings.Count(kinds, "salvaged") != want || !strings.HasSuffix(kinds, "retired") {
				t.Error(kinds)
			}
			if w.places.published("refs/orch/salvage/demo-1/1", "untracked") != "first" {
				t.Error("the first round's isn't in the repository")
			}
			if !landed && w.places.published("refs/orch/salvage/demo-1/2", "answer") != "42" {
				t.Error("the last round's isn't in the repository")
			}
		})
	}
}

type publishesAndCrashes struct{ *places }

func (p publishesAndCrashes) Publish(ctx context.Context, t task.Task, ref string) (string, error) {
	ref, err := p.places.Publish(ctx, t, ref)
	return ref, errors.Join(err, errors.New("crash"))
}

// A clean-up that rests is the next one's too: what was made meanwhile is kept, although this job has salvaged before.
func TestRetire_RestsWhileTheTaskGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitWrong + "; exit 1", commitRight, "outcome auth"}
	added := w.create()
	w.exec(`update jobs set max_attempts = 1`)
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	broken := *w.retire
	broken.cfg.Remains = staysAndFails{w.places}
	if err := w.run(&broken, w.mustClaim(task.KindRetire)); err == nil {
		t.Fatal("no failure")
	}
	if _, err := w.store.Retry(t.Context(), added.Key, "me", ""); err != nil {
		t.Fatal(err)
	}
	w.places.blind = errors.New("torn")
	w.exec(`update jobs set max_attempts = 1 where kind = 'stage'`)
	if err := w.work(); err == nil || w.get(added.ID).State != task.Blocked || w.retires(added.ID) != 1 {
		t.Fatal(err)
	}
	if err := w.clean(); err != nil || w.there(added) {
		t.Fatal(err)
	}
	if w.places.published("refs/orch/salvage/demo-1/2", "answer") != "42" || strings.Count(w.kinds(added.ID), "salvaged") != 2 {
		t.Errorf("what was made after the first salvage is lost: %s", w.kinds(added.ID))
	}
}

type staysAndFails struct{ *places }

func (staysAndFails) Remove(context.Context, task.Task) error { return errors.New("busy") }

// Nothing is removed under a living run: it is ended first, whatever ended the task.
func TestRetire_EndsRunsFirst(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w *world, id int64){
		"done": func(w *world, id int64) {
			w.exec(`update tasks set state = 'done', finished_at = now() where id = $1`, id)
		},
		"cancelled": func(w *world, id int64) {
			w.exec(`update tasks set state = 'cancelled', finished_at = now() where id = $1`, id)
		},
		"blocked": func(w *world, id int64) {
			w.exec(`update tasks set state = 'blocked', reason_code = 'x' where id = $1`, id)
		},
		"ready": func(w *world, id int64) {
			w.exec(`update tasks set state = 'waiting', waiting_for = $2 where id = $1`, id, task.PersonLands)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			added := w.create()
			if _, err := w.places.Prepare(t.Context(), added, false); err != nil {
				t.Fatal(err)
			}
			l := w.mustClaim(task.KindStage)
			if err := insertRun(t.Context(), l, uuid.New(), "agent", "agent:development:1", added); err != nil {
				t.Fatal(err)
			}
			w.exec(`update runs set state = 'running', finished_at = null, ended = null`)
			if err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.CompleteTx(t.Context(), tx) }); err != nil {
				t.Fatal(err)
			}
			end(w, added.ID)
			if _, err := w.queue.Enqueue(t.Context(), queue.Insert{
				Kind: task.KindRetire, Lane: task.LaneSystem, Args: task.RetireArgs{TaskID: added.ID}, TaskID: added.ID,
			}); err != nil {
				t.Fatal(err)
			}
			w.unending = errors.New("it doesn't end")
			var snooze *queue.SnoozeError
			if err := w.clean(); !errors.As(err, &snooze) || snooze.WaitingFor != "end_runs" || !w.there(added) {
				t.Fatalf("%v, removed under a living run: %v", err, !w.there(added))
			}
			w.unending = nil
			if err := w.clean(); err != nil || w.there(added) || len(w.ended) != 2 || w.unconsumed() != 0 {
				t.Errorf("%v, ended %v", err, w.ended)
			}
		})
	}
}

func TestRetire_BadArgsEndIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.queue.Enqueue(t.Context(), queue.Insert{Kind: task.KindRetire, Lane: task.LaneSystem, Args: map[string]any{"x": 1}}); err != nil {
		t.Fatal(err)
	}
	var failure *queue.Failure
	if err := w.clean(); !errors.As(err, &failure) || !failure.Terminal {
		t.Error(err)
	}
}

func TestRetire_LeavesATaskAloneThatGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome auth", commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Retry(t.Context(), added.Key, "me", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.clean(); err != nil || !w.there(added) || strings.Contains(w.kinds(added.ID), "retired") {
		t.Errorf("%v, %s", err, w.kinds(added.ID))
	}
}

// A task that was cancelled while a job of it hasn't ended: the clean-up waits for that.
func TestRetire_RestsWhileAJobLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	l := w.mustClaim(task.KindStage)
	if err := insertRun(t.Context(), l, uuid.New(), "agent", "agent:development:1", added); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
		t.Fatal(err)
	}
	// The worker stops; the job stays queued, pinned by its run.
	err := l.Tx(t.Context(), func(tx pgx.Tx) error { return l.ReleaseTx(t.Context(), tx, queue.Release{}) })
	if err != nil {
		t.Fatal(err)
	}
	var snooze *queue.SnoozeError
	if err := w.clean(); !errors.As(err, &snooze) || snooze.After <= 0 {
		t.Fatal(err)
	}
	if err := w.work(); !errors.Is(err, queue.ErrCancelRequested) {
		t.Fatal(err)
	}
	if err := w.clean(); err != nil || w.unconsumed() != 0 || !strings.HasSuffix(w.kinds(added.ID), "retired") {
		t.Errorf("%v, %s", err, w.kinds(added.ID))
	}
}
