package merge

import (
	"testing"

	"github.com/google/uuid"
)

// Whose job is due, and only waits for a free worker, is in the group of who was claimed first: the first landing after a pause
// isn't alone.
func TestGroupHasThoseWhoseJobsAreDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	counted := &counting{Forge: w.forge}
	w.forge, w.batch = counted, 8
	var tasks []int64
	for _, name := range []string{"a", "b", "c"} {
		task := w.add(map[string]string{name: name})
		w.tasks.head[task] = w.branch(task)
		tasks = append(tasks, task)
	}
	w.pause()
	w.resume()
	w.drain(w.pausing(nil))
	w.landedAll(tasks, "a", "b", "c")
	if len(counted.moves) != 1 || len(w.tester.commits()) != 1 {
		t.Errorf("%d moves, tested %v", len(counted.moves), w.tester.commits())
	}
	if got := w.text(`select count(*) from merge_attempts`); got != "3" {
		t.Errorf("%s attempts for three tasks", got)
	}
}

// Who isn't to be claimed here, or not yet, gets no place in the line by it: it would hold up others for nothing.
func TestOnlyWhatMayBeClaimedHereJoinsTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.batch = 8
	var tasks []int64
	for _, name := range []string{"a", "later", "elsewhere", "cancelled", "blocked", "other target"} {
		task := w.add(map[string]string{name: name})
		w.tasks.head[task] = w.branch(task)
		tasks = append(tasks, task)
	}
	w.exec(`update jobs set run_at = now() + interval '1 hour' where task_id = $1`, tasks[1])
	w.exec(`update jobs set pinned_root = $2 where task_id = $1`, tasks[2], uuid.New())
	w.exec(`update jobs set cancel_requested_at = now() where task_id = $1`, tasks[3])
	w.exec(`update tasks set state = 'blocked', reason_code = 'x', reason = 'x' where id = $1`, tasks[4])
	w.exec(`update tasks set base_branch = 'other' where id = $1`, tasks[5])
	if err := w.run(w.handler(nil), w.mustClaim()); err != nil {
		t.Fatal(err)
	}
	w.landedOnce(tasks[0], "a")
	if got := w.text(`select string_agg(task_id::text, ' ') from merge_attempts`); got != w.text(`select $1::bigint`, tasks[0]) {
		t.Errorf("attempts of %s", got)
	}
}
