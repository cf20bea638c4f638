package merge

import (
	"strings"
	"testing"

	"orch/internal/merge/problem"
)

// branch is the commit of the task's branch in the mirror.
func (w *world) branch(task int64) string {
	w.t.Helper()
	head, err := w.openMirror().Ref(w.t.Context(), "refs/heads/orch/"+w.key(task))
	if err != nil {
		w.t.Fatal(err)
	}
	return head
}

// rewrite puts another commit on the task's branch, as the mirror has it.
func (w *world) rewrite(task int64, files map[string]string) string {
	w.t.Helper()
	clone := w.clone()
	head := clone.Commit("another's", files)
	clone.Git("push", "-q", "--force", w.mirror, "HEAD:refs/heads/orch/"+w.key(task))
	return head
}

func TestHeadThatPassedTheGatesLands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	w.tasks.head[task] = w.branch(task)
	w.drain(w.handler(nil))
	w.landedOnce(task, "a")
}

func TestBranchThatDidNotPassTheGates(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]point{"from_the_start": "", "after_the_test": pointTested, "after_a_crash": pointReady} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			task := w.add(map[string]string{"a": "a"})
			passed := w.branch(task)
			w.tasks.head[task] = passed
			main := w.main()
			if stop != "" && !w.crash(w.mustClaim(), stop) {
				t.Fatalf("%s was never reached", stop)
			}
			changed := w.rewrite(task, map[string]string{"evil": "e"})
			tested := len(w.tester.commits())
			cfg := w.config()
			cfg.MaxRefused = 2
			h, err := NewHandler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w.drain(h)
			if got := w.lastError(task) + " " + w.state(task) + " " + w.jobState(task); got != "branch_changed active queued" {
				t.Errorf("attempt, task and job are %s", got)
			}
			if due := w.dueIn(task); due < w.config().RetryMin/2 {
				t.Errorf("due in %s", due)
			}
			w.exec(`update jobs set run_at = now() where task_id = $1`, task)
			w.drain(h)
			if got := w.step(task) + " " + w.state(task) + " " + w.jobState(task); got != "parked blocked succeeded" {
				t.Errorf("attempt, task and job are %s", got)
			}
			reason := w.text(`select reason_code || ': ' || reason from tasks where id = $1`, task)
			if !strings.HasPrefix(reason, problem.Branch+": ") || !strings.Contains(reason, passed) || !strings.Contains(reason, changed) {
				t.Errorf("blocked with %q", reason)
			}
			if w.main() != main || len(w.tester.commits()) != tested {
				t.Error("a commit that didn't pass the gates was tested or landed")
			}
			w.clean()
		})
	}
}

// A branch that was set back to what the target has isn't taken for work that is upstream already.
func TestBranchThatWasSetBackIsNotUpstream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	task := w.add(map[string]string{"a": "a"})
	passed := w.branch(task)
	w.tasks.head[task] = passed
	w.clone().Git("push", "-q", "--force", w.mirror, "HEAD:refs/heads/orch/"+w.key(task))
	h := w.handler(nil)
	w.drain(h)
	if got := w.lastError(task) + " " + w.state(task); got != "branch_changed active" {
		t.Errorf("attempt and task are %s", got)
	}
	m := w.openMirror()
	if err := m.SetRef(t.Context(), "refs/heads/orch/"+w.key(task), passed, ""); err != nil {
		t.Fatal(err)
	}
	w.exec(`update jobs set run_at = now() where task_id = $1`, task)
	w.drain(h)
	w.landedOnce(task, "a")
}

// Publishing moves the branch to what orch made of the commit that passed. That is no foreign change, however often
// the target moves and the landing begins anew.
func TestPublishedBranchIsOfTheHeadThatPassed(t *testing.T) {
	t.Parallel()
	for _, stop := range []point{"", pointPreparing, pointReplayed, pointTesting, pointPublished} {
		t.Run("crash_"+string(stop), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			w.land = false
			w.forge = &publishing{Forge: w.forge, w: w, commits: map[string]string{}}
			task := w.add(map[string]string{"a": "a"})
			passed := w.branch(task)
			w.tasks.head[task] = passed
			for _, file := range []string{"one", "two", "three"} {
				w.push(map[string]string{file: file})
				w.exec(`update tasks set state = 'active', waiting_for = null where id = $1`, task)
				if file != "one" {
					w.enqueue(task)
					if stop != "" && !w.crash(w.mustClaim(), stop) {
						t.Fatalf("%s was never reached", stop)
					}
				}
				w.drain(w.handler(nil))
				if got := w.state(task) + " " + w.step(task) + " " + w.lastError(task); got != "waiting ready " {
					t.Fatalf("task and attempt are %s", got)
				}
				ready := w.branch(task)
				if ready == passed || w.repo.Git("rev-parse", ready+"~1") != w.main() {
					t.Fatalf("ready is %s", ready)
				}
			}
			if got := w.text(`select head_sha from merge_attempts where task_id = $1`, task); got != passed {
				t.Errorf("head is %s, want %s", got, passed)
			}
			w.repo.Git("update-ref", "refs/heads/main", w.branch(task)) // the person lands it
			w.enqueue(task)
			w.drain(w.handler(nil))
			if got := w.state(task) + " " + w.step(task); got != "done finalised" {
				t.Errorf("task and attempt are %s after the person landed it", got)
			}
		})
	}
}
