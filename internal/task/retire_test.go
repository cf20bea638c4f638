package task

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
)

func (w *world) clean() error {
	w.t.Helper()
	w.due()
	return w.run(w.retire, w.mustClaim(KindRetire))
}

func (w *world) there(t Task) bool {
	_, err := os.Stat(w.places.Dir(t))
	return err == nil
}

func TestRetire_SalvagesWhatACancelledTaskLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitWrong + ` && echo new > untracked`}
	task := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), task.Key, "me"); err != nil {
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
	event := w.lastEvent(task.ID, EventRetired)
	if err := json.Unmarshal(event.Data, &data); err != nil || data["salvage_ref"] != ref || data["salvage_commit"] == "" {
		t.Errorf("%s, %v", event.Data, err)
	}
	if w.there(task) || w.retires(task.ID) != 0 {
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
			task := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if dirty {
				if out, err := shell(w.places.Dir(task), "echo left > behind"); err != nil {
					t.Fatal(out)
				}
			}
			w.move(w.mustClaim(KindMerge), w.land(w.get(task.ID).At(), Landing{Commit: "abc"}))
			if err := w.clean(); err != nil {
				t.Fatal(err)
			}
			if got := w.places.published("refs/orch/salvage/demo-1/1", "behind") == "left"; got != dirty || w.there(task) {
				t.Errorf("salvaged: %v, there: %v", got, w.there(task))
			}
			if kinds := w.kinds(task.ID); strings.Contains(kinds, "salvaged") != dirty || !strings.HasSuffix(kinds, "retired") {
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
	task := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), task.Key, "me"); err != nil {
		t.Fatal(err)
	}
	broken := *w.retire
	broken.cfg.Remains = removesAndCrashes{w.places}
	if err := w.run(&broken, w.mustClaim(KindRetire)); err == nil {
		t.Fatal("no crash")
	}
	if w.there(task) {
		t.Fatal("not removed")
	}
	if err := w.clean(); err != nil {
		t.Fatal(err)
	}
	kinds := w.kinds(task.ID)
	if strings.Count(kinds, "salvaged") != 1 || strings.Count(kinds, "retired") != 1 {
		t.Error(kinds)
	}
	if !strings.Contains(string(w.lastEvent(task.ID, EventRetired).Data), "refs/orch/salvage/demo-1/1") {
		t.Errorf("%s", w.lastEvent(task.ID, EventRetired).Data)
	}
}

type removesAndCrashes struct{ *places }

func (r removesAndCrashes) Remove(ctx context.Context, t Task) error {
	return errors.Join(r.places.Remove(ctx, t), errors.New("crash"))
}

func TestRetire_PublishFailsAndNothingIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	task := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), task.Key, "me"); err != nil {
		t.Fatal(err)
	}
	w.places.failing = errors.New("the repository is away")
	for range 3 {
		var failure *queue.Failure
		if err := w.clean(); !errors.As(err, &failure) || failure.Code != "publish" {
			t.Fatal(err)
		}
	}
	if !w.there(task) || !strings.HasSuffix(w.kinds(task.ID), "retire_failed") {
		t.Error(w.kinds(task.ID))
	}
}

func TestRetire_LeavesATaskAloneThatGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome auth", commitRight}
	task := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Retry(t.Context(), task.Key, "me", ""); err != nil {
		t.Fatal(err)
	}
	if err := w.clean(); err != nil || !w.there(task) || strings.Contains(w.kinds(task.ID), "retired") {
		t.Errorf("%v, %s", err, w.kinds(task.ID))
	}
}

// A task that was cancelled while a job of it hasn't ended: the clean-up waits for that.
func TestRetire_RestsWhileAJobLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	task := w.create()
	l := w.mustClaim(KindStage)
	if err := insertRun(t.Context(), l, uuid.New(), "agent", "agent:development:1", task); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), task.Key, "me"); err != nil {
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
	if err := w.clean(); err != nil || w.unconsumed() != 0 || !strings.HasSuffix(w.kinds(task.ID), "retired") {
		t.Errorf("%v, %s", err, w.kinds(task.ID))
	}
}
