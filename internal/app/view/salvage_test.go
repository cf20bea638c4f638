package view_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"orch/internal/app/place"
	"orch/internal/app/view"
	"orch/internal/git/gitcmd"
	"orch/internal/httpapi"
	"orch/internal/queue/queuetest"
	"orch/internal/root"
	"orch/internal/task"
	"orch/internal/testdb"
	"orch/internal/testgit"
)

// What is kept of a task is where its data root is, and nowhere else; of a task that lost its root it is what was published.
func TestRestoreTask(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, auto := sourcesOn(t, pool)
	data, err := root.Bind(t.Context(), filepath.Join(t.TempDir(), "data"), pool, root.Config{Testing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	program, err := gitcmd.New(t.Context(), gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sources.Root, sources.Places = data.ID(), place.New(place.Config{Root: data, Git: program, Forge: sources.Forge})
	tasks := view.Tasks{Sources: sources}
	created := taskWithJob(t, sources, "T")
	restore := func(r httpapi.Restore) (string, error) {
		restored, err := tasks.RestoreTask(t.Context(), created.Key, "ann", r)
		return restored.Branch, err
	}
	if _, err := restore(httpapi.Restore{}); refusal(err) != "no_salvage" {
		t.Errorf("nothing is kept: %v", err)
	}
	known, err := sources.Tasks.Get(t.Context(), created.Key)
	if err != nil {
		t.Fatal(err)
	}
	w, err := sources.Places.Prepare(t.Context(), known, false)
	if err != nil {
		t.Fatal(err)
	}
	testgit.Open(t, w.Dir).Write(map[string]string{"left": "behind\n"})
	if err := sources.Places.Salvage(t.Context(), known, true); err != nil {
		t.Fatal(err)
	}
	branch, err := restore(httpapi.Restore{})
	if err != nil || auto.Git("show", branch+":left") != "behind" {
		t.Fatalf("%q, %v", branch, err)
	}
	if _, err := restore(httpapi.Restore{Salvage: 2}); refusal(err) != "no_salvage" {
		t.Errorf("a number that isn't: %v", err)
	}
	if _, err := restore(httpapi.Restore{Branch: "main"}); refusal(err) != "branch_taken" {
		t.Errorf("a branch that is: %v", err)
	}
	if _, err := restore(httpapi.Restore{Branch: "a..b"}); refusal(err) != "ref_refused" {
		t.Errorf("no branch: %v", err)
	}
	events, err := sources.Tasks.EventsOf(t.Context(), known.ID, task.EventRestored)
	if err != nil || len(events) != 1 || events[0].Actor != "ann" || !strings.Contains(events[0].Reason, branch) {
		t.Errorf("told %+v, %v", events, err)
	}
	other := queuetest.Root(t, pool)
	if _, err := pool.Exec(t.Context(), `update tasks set root_id = $1`, other); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(httpapi.Restore{}); refusal(err) != "task_elsewhere" {
		t.Errorf("of another root: %v", err)
	}
	if _, err := tasks.Salvages(t.Context(), created.Key); refusal(err) != "task_elsewhere" {
		t.Errorf("of another root: %v", err)
	}
	if _, err := tasks.Salvages(t.Context(), "nope-1"); refusal(err) != "not_found" {
		t.Errorf("of no task: %v", err)
	}
}

// refusal is the code of what was refused.
func refusal(err error) string {
	if refused, ok := errors.AsType[*httpapi.RefusedError](err); ok {
		return refused.Code
	}
	return ""
}
