package stage

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
	for range 3 {
		var failure *queue.Failure
		if err := w.clean(); !errors.As(err, &failure) || failure.Code != "publish" {
			t.Fatal(err)
		}
	}
	if !w.there(added) || !strings.HasSuffix(w.kinds(added.ID), "retire_failed") {
		t.Error(w.kinds(added.ID))
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
