package merge

import (
	"strings"
	"testing"

	"orch/internal/merge/problem"
	"orch/internal/testgit"
)

// What a person took off the target doesn't come back with work that was begun on it: its author brings it onto what is there.
func TestWhatWasTakenOffTheTargetDoesntComeBack(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"rebase", "merge", "squash"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			cfg := w.config()
			cfg.Catalog = withMethod{w, method}
			h, err := NewHandler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			before := w.main()
			gone := w.push(map[string]string{"secret": "s"})
			if err := w.openMirror().Fetch(t.Context(), w.repo.Dir); err != nil { // as the author's workspace was made
				t.Fatal(err)
			}
			task := w.add(map[string]string{"a": "a"})
			w.repo.Git("update-ref", "refs/heads/main", before)
			now := w.push(map[string]string{"instead": "i"})
			w.drain(h)
			w.returned(task, problem.Conflict, "git rebase --onto "+now+" "+gone)
			if w.main() != now {
				t.Errorf("main is %s, want %s", w.main(), now)
			}
			own := w.addWith(func(work *testgit.Repo) {
				work.Git("fetch", "-q", w.mirror, "orch/"+w.key(task))
				work.Git("cherry-pick", "FETCH_HEAD")
			})
			w.drain(h)
			w.landedOnce(own, "a")
			if got := w.repo.Git("ls-tree", "--name-only", "main"); strings.Contains(got, "secret") {
				t.Errorf("main has %q", got)
			}
		})
	}
}

// A commit that was made anew, with the same change, brings nothing back.
func TestTargetWhoseLastCommitIsReworded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	w.push(map[string]string{"b": "b"})
	if err := w.openMirror().Fetch(t.Context(), w.repo.Dir); err != nil {
		t.Fatal(err)
	}
	task := w.add(map[string]string{"a": "a"})
	w.repo.Git("commit", "-q", "--amend", "-m", "reworded")
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
}

// Only what is gone for good counts, and only for whose work stands on it.
func TestGroupLeavesOutWhoBringsBackWhatWasTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	before := w.main()
	w.batch = 8
	add := func(name string) int64 {
		task := w.add(map[string]string{name: name})
		w.tasks.head[task] = w.branch(task)
		return task
	}
	first := add("a")
	w.push(map[string]string{"secret": "s"})
	if err := w.openMirror().Fetch(t.Context(), w.repo.Dir); err != nil {
		t.Fatal(err)
	}
	second, third := add("b"), add("c")
	w.exec(`update jobs set priority = -1 where task_id = $1`, second)
	w.repo.Git("update-ref", "refs/heads/main", before)
	w.tasks.head[third] = w.rebased(third, before)
	w.drain(w.handler(nil))
	w.landedAll([]int64{first, third}, "a", "c")
	w.returned(second, problem.Conflict, "took it back")
	if got := len(w.tester.commits()); got != 1 {
		t.Errorf("%d tests", got)
	}
}

// rebased brings the last commit of a task's branch onto another one.
func (w *world) rebased(task int64, onto string) string {
	w.t.Helper()
	work := w.clone()
	work.Git("fetch", "-q", w.mirror, "orch/"+w.key(task))
	work.Git("checkout", "-q", onto)
	work.Git("cherry-pick", "FETCH_HEAD")
	work.Git("push", "-q", "-f", w.mirror, "HEAD:refs/heads/orch/"+w.key(task))
	return work.Head()
}
