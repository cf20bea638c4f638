package merge

import (
	"testing"

	"orch/internal/git"
	"orch/internal/testgit"
)

// Work that changes nothing has nothing to land, whatever has become of its target. That isn't what is upstream already.
func TestWorkThatChangesNothingIsNotLanded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work  func(work *testgit.Repo)
		bring map[string]string // onto the target meanwhile
		want  string
	}{
		"an empty commit":                   {work: func(work *testgit.Repo) { work.Git("commit", "-q", "--allow-empty", "-m", "nothing") }, want: "nothing"},
		"an empty commit, the target moved": {work: func(work *testgit.Repo) { work.Git("commit", "-q", "--allow-empty", "-m", "nothing") }, bring: map[string]string{"b": "b"}, want: "nothing"},
		"there and back again": {work: func(work *testgit.Repo) {
			work.Commit("there", map[string]string{"a": "a"})
			work.Git("revert", "--no-edit", "HEAD")
		}, want: "nothing"},
		"the same change": {work: func(work *testgit.Repo) { work.Commit("work", map[string]string{"a": "a"}) }, bring: map[string]string{"a": "a"}, want: "upstream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.addWith(c.work)
			if c.bring != nil {
				w.push(c.bring)
			}
			main := w.main()
			w.drain(w.handler(nil))
			if got := w.state(task) + " " + w.step(task) + " " + w.text(`select kind from task_events where task_id = $1 order by id desc limit 1`, task); got != "done finalised "+c.want {
				t.Errorf("task, attempt and event are %s", got)
			}
			commit := w.text(`select coalesce(landed_commit, '') from tasks where id = $1`, task)
			if w.main() != main || len(w.tester.commits()) > 0 || (commit == "") != (c.want == "nothing") {
				t.Errorf("it was tested or landed, as %q", commit)
			}
			w.clean()
		})
	}
}

// A person lands what was made ready, a merge commit whose parent the branch is: its work is upstream.
func TestMergedByAPersonIsUpstream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	w.land = false
	published := &publishing{Forge: w.forge, w: w, commits: map[string]string{}}
	w.forge = published
	task := w.add(map[string]string{"a": "a"})
	w.push(map[string]string{"theirs": "t"})
	cfg := w.config()
	cfg.Catalog = withMethod{w, string(git.Merge)}
	h, err := NewHandler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.drain(h)
	ready := published.commits["refs/heads/orch/"+w.key(task)]
	w.repo.Git("update-ref", "refs/heads/main", ready)
	w.enqueue(task)
	w.drain(h)
	if got := w.state(task) + " " + w.text(`select kind from task_events where task_id = $1 order by id desc limit 1`, task) +
		" " + w.text(`select coalesce(landed_commit, '') from tasks where id = $1`, task); got != "done upstream "+ready {
		t.Errorf("task, event and commit are %s, want %s", got, ready)
	}
}
