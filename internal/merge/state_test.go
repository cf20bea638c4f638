package merge

import (
	"bytes"
	"time"
)

// step is the step of the task's newest attempt.
func (w *world) step(task int64) string {
	w.t.Helper()
	return w.text(`select step from merge_attempts where task_id = $1 order by id desc limit 1`, task)
}

func (w *world) lastError(task int64) string {
	w.t.Helper()
	return w.text(`select last_error from merge_attempts where task_id = $1 order by id desc limit 1`, task)
}

func (w *world) state(task int64) string {
	w.t.Helper()
	return w.text(`select state from tasks where id = $1`, task)
}

func (w *world) jobState(task int64) string {
	w.t.Helper()
	return w.text(`select state from jobs where task_id = $1 and kind = 'merge' order by id desc limit 1`, task)
}

// dueIn is when the task's merge job is due, from now.
func (w *world) dueIn(task int64) time.Duration {
	w.t.Helper()
	var seconds float64
	w.row(&seconds, `select extract(epoch from run_at - clock_timestamp())::float8 from jobs
		where task_id = $1 and kind = 'merge' order by id desc limit 1`, task)
	return time.Duration(seconds * float64(time.Second))
}

// landedOnce checks that the task landed, exactly once, with its merge lease free and nothing left behind.
func (w *world) landedOnce(task int64, files ...string) {
	w.t.Helper()
	if got := w.state(task); got != "done" {
		w.t.Errorf("task is %s, want done (step %s, last error %q)", got, w.step(task), w.lastError(task))
	}
	if got := w.text(`select count(*) from task_events where task_id = $1 and kind = 'landed'`, task); got != "1" {
		w.t.Errorf("landed %s times, want once", got)
	}
	commit := w.text(`select landed_commit from tasks where id = $1`, task)
	if _, err := w.repo.Try("merge-base", "--is-ancestor", commit, "main"); err != nil {
		w.t.Errorf("commit %s is not in main", commit)
	}
	for _, file := range files {
		if got := w.repo.Git("log", "--oneline", "main", "--", file); len(bytes.Split([]byte(got), []byte("\n"))) != 1 {
			w.t.Errorf("%s was touched more than once: %s", file, got)
		}
		if got, want := w.repo.Git("show", commit+":"+file), file; got != want {
			w.t.Errorf("%s at the landed commit is %q, want %q", file, got, want)
		}
	}
	w.clean()
}

// clean checks that the merge lease is free, no land ref is left and a checkout shows what main is.
func (w *world) clean() {
	w.t.Helper()
	leases, err := w.leases.Leases(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(leases) > 0 {
		w.t.Errorf("merge lease is still held: %+v", leases)
	}
	if w.repo.Git("rev-parse", "--is-bare-repository") == "false" {
		if got := w.repo.Git("status", "--porcelain"); got != "" {
			w.t.Errorf("the checkout differs from main: %s", got)
		}
	}
}
