package roster

import (
	"errors"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/testagent"
)

// The first agent's limit ends within the hour, its fallback's in a week: nobody waits for a week.
func TestJobGoesOnWithWhicheverOfTheChainIsFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFallback)
	w.program("coder", "claude", testagent.Turn{Kind: testagent.Quota, Lasts: time.Minute}, works)
	w.program("spare", "codex", testagent.Turn{Kind: testagent.Quota, Lasts: 7 * 24 * time.Hour})
	added := w.add()
	for range 2 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	if waits, job := w.waitsFor(added), w.job(added); waits != "agent_paused:coder" || time.Until(job.RunAt) > 2*time.Minute {
		t.Errorf("waits for %q until %s", waits, job.RunAt)
	}
}

// Who resumes the fallback wakes the job as well.
func TestResumedFallbackTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFallback)
	w.program("coder", "claude", works)
	spare := w.program("spare", "codex", works)
	for _, name := range []string{"coder", "spare"} {
		if err := w.pausing.Pause(t.Context(), pause.Pause{Scope: pause.Agent, Name: name, Reason: "holiday", Actor: "me"}); err != nil {
			t.Fatal(err)
		}
	}
	added := w.add()
	var snooze *queue.SnoozeError
	if err := w.work(); !errors.As(err, &snooze) {
		t.Fatal(err)
	}
	if was, err := w.pausing.Resume(t.Context(), pause.Agent, "spare"); !was || err != nil {
		t.Fatal(was, err)
	}
	w.through(added)
	if len(w.calls(spare)) != 1 {
		t.Errorf("%d starts", len(w.calls(spare)))
	}
}
