package roster

import (
	"testing"
	"time"

	"orch/internal/app/catalog"
	"orch/internal/task"
	"orch/internal/task/flow"
)

// own adds a task that brings its agent along.
func (w *world) own(command string) task.Task {
	w.t.Helper()
	t, err := w.store.Create(w.ctx, task.Add{
		Repo: "demo", Location: "/srv/demo", Title: "Do it", Source: "cli", BaseBranch: "main", Pipeline: "default", Land: true,
		Overrides: catalog.Adhoc{Path: "/srv/demo", AgentCommand: command},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// Tasks that bring their agents along have programs that don't know each other, though all are called the same.
func TestWhatATasksOwnAgentMetHoldsBackNoOtherTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	waits := w.own("echo Error: insufficient_quota; exit 1")
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if job := w.job(waits); job.Attempt != 0 || time.Until(job.RunAt) < 10*time.Minute || len(w.pauses()) != 0 {
		t.Errorf("attempt %d, again in %s, pauses %+v", job.Attempt, time.Until(job.RunAt), w.pauses())
	}
	refused := w.own("echo Invalid API key; exit 1")
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.blockedFor(refused, "auth", "its key is refused")
	other := w.own("true")
	if err := w.work(); err != nil || w.get(other).Stage != flow.Deploy {
		t.Errorf("%v, %+v", err, w.get(other))
	}
}
