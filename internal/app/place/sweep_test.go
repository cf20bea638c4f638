package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
	"orch/internal/queue/queuetest"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// yard is a site whose tasks are in the database.
type yard struct {
	*site

	pool    *pgxpool.Pool
	store   *task.Store
	sweeper *Sweeper
	living  map[int64]int
}

func newYard(t *testing.T) *yard {
	t.Helper()
	pool := testdb.New(t)
	y := &yard{site: newSiteOn(t, pool), pool: pool, living: map[int64]int{}}
	var err error
	if y.store, err = task.NewStore(pool, task.StoreConfig{Pipelines: task.Pipelines{flow.Short("default", "coder", "true")}}); err != nil {
		t.Fatal(err)
	}
	y.sweeper = NewSweeper(SweepConfig{
		Places: y.Places, Tasks: y.store, Jobs: queue.New(pool, queue.Config{}), Age: time.Hour,
		LivingRuns: func(_ context.Context, id int64) (int, error) { return y.living[id], nil },
	})
	return y
}

func (y *yard) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := y.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// add makes a task of this root with a workspace in which something lies; set are columns that it has, and it has no job.
func (y *yard) add(t *testing.T, set string) task.Task {
	t.Helper()
	added, err := y.store.Create(t.Context(), task.Add{
		Repo: "demo", Location: y.task.Location, Title: "T", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	y.exec(t, `delete from jobs where task_id = $1`, added.ID)
	y.exec(t, `update tasks set root_id = $2 where id = $1`, added.ID, y.root.ID())
	if set != "" {
		y.exec(t, `update tasks set `+set+` where id = $1`, added.ID)
	}
	w, err := y.Prepare(t.Context(), added, false)
	if err != nil {
		t.Fatal(err)
	}
	testgit.Open(t, w.Dir).Write(map[string]string{"left": "of " + added.Key + "\n"})
	return added
}

func (y *yard) sweep(t *testing.T) {
	t.Helper()
	if err := y.sweeper.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// retired counts the clean-ups that were queued for a task.
func (y *yard) retired(t *testing.T, of task.Task) (n int) {
	t.Helper()
	if err := y.pool.QueryRow(t.Context(), `select count(*) from jobs where kind = 'retire' and task_id = $1`, of.ID).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (y *yard) there(of task.Task) bool {
	_, err := os.Lstat(y.Dir(of))
	return err == nil
}

const asks = `state = 'blocked', reason_code = 'needs_input'`

// A task that has ended, or that waits for a person, has its workspace cleaned up, whatever became of the job for it.
func TestSweep_RetiresWhatNobodyComesBackTo(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	want := map[int64]int{}
	var all []task.Task
	for set, n := range map[string]int{
		`state = 'done', finished_at = now()`: 1, `state = 'cancelled', finished_at = now()`: 1,
		`state = 'blocked', reason_code = 'crashed'`: 1, `state = 'waiting', waiting_for = 'person_lands'`: 1,
		"": 0, asks: 0, `state = 'waiting', waiting_for = 'forge'`: 0,
	} {
		added := y.add(t, set)
		want[added.ID] = n
		all = append(all, added)
	}
	for range 2 {
		y.sweep(t)
	}
	for _, added := range all {
		if got := y.retired(t, added); got != want[added.ID] || !y.there(added) {
			t.Errorf("%s was retired %d times, want %d", added.Key, got, want[added.ID])
		}
	}
}

// Questions may stay unanswered for weeks: their workspaces don't.
func TestSweep_BoundsWhatWaitsForAnswers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	old := y.add(t, asks+`, updated_at = now() - interval '2 hours'`)
	older := y.add(t, asks+`, updated_at = now() - interval '50 minutes'`)
	newer := y.add(t, asks+`, updated_at = now() - interval '5 minutes'`)
	state := func() string {
		return fmt.Sprint(y.retired(t, old), y.retired(t, older), y.retired(t, newer))
	}
	if y.sweep(t); state() != "1 0 0" {
		t.Errorf("by age: %s", state())
	}
	y.exec(t, `delete from jobs`)
	if err := errors.Join(y.Remove(t.Context(), old), os.WriteFile(filepath.Join(y.Dir(older), "large"), make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	y.sweeper.Size = 1 << 20
	if y.sweep(t); state() != "0 1 0" {
		t.Errorf("by size: %s", state())
	}
}

// A task that another data root took over leaves its work here; it is kept, and published where people look for it.
func TestSweep_GivesUpWhatGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	gone, busy := y.add(t, ""), y.add(t, "")
	y.exec(t, `update tasks set root_id = $1`, queuetest.Root(t, y.pool))
	y.living[busy.ID] = 1
	for range 2 {
		y.sweep(t)
	}
	if y.there(gone) || !y.there(busy) {
		t.Errorf("there: %v, and the one with a run: %v", y.there(gone), y.there(busy))
	}
	if got := testgit.Open(t, gone.Location).Git("show", "refs/orch/salvage/"+gone.Key+"/1:left"); got != "of "+gone.Key {
		t.Errorf("published %q", got)
	}
	if told, err := y.store.EventsOf(t.Context(), gone.ID, task.EventSalvaged); err != nil || len(told) != 1 {
		t.Errorf("told %v, %v", told, err)
	}
}

func TestSweep_RemovesHalvesAndLeavesWhatItDoesntKnow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	working, asking := y.add(t, ""), y.add(t, asks)
	unknown := filepath.Join(y.root.WorkspacesDir(), "demo", "other-7")
	halves := []string{".new", ".old", ".file"}
	for _, half := range halves {
		testgit.Open(t, filepath.Join(filepath.Dir(y.Dir(working)), "."+working.Key+half)).Write(map[string]string{"x": "x"})
	}
	for _, dir := range []string{unknown, y.Checkout(working, "k"), y.Checkout(asking, "k")} {
		testgit.Open(t, dir).Write(map[string]string{"x": "x"})
	}
	var told strings.Builder
	y.sweeper.Logger = slog.New(slog.NewTextHandler(&told, nil))
	for range 2 {
		y.sweep(t)
	}
	for _, half := range halves {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(y.Dir(working)), "."+working.Key+half)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", half, err)
		}
	}
	for dir, want := range map[string]bool{unknown: true, y.Checkout(working, "k"): true, y.Checkout(asking, "k"): false, y.Dir(working): true, y.Dir(asking): true} {
		if _, err := os.Lstat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if n := strings.Count(told.String(), "other-7"); n != 1 {
		t.Errorf("told %d times: %s", n, told.String())
	}
}
