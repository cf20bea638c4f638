package roster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/queue/pause"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testagent"
)

var works = testagent.Turn{Kind: testagent.Works}

const withFallback = `agents:
  coder: {preset: claude, command: [DIR/coder], fallback: spare}
  spare: {preset: codex, command: [DIR/spare]}`

// One task meets the limit; another one doesn't even try. When it is over both go on, without anybody's doing.
func TestQuotaPausesTheAgentForAllTasksAndGoesOnByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Quota}, works) // it says: for an hour
	first, second := w.add(), w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if waits, job := w.waitsFor(first), w.job(first); waits != "agent_paused:coder" || job.Attempt != 0 || time.Until(job.RunAt) < lookAgain-time.Minute {
		t.Errorf("the first waits for %q until %s, attempt %d", waits, job.RunAt, job.Attempt)
	}
	var snooze *queue.SnoozeError
	if err := w.work(); !errors.As(err, &snooze) || w.waitsFor(second) != "agent_paused:coder" || snooze.After > lookAgain {
		t.Fatalf("the second: %v", err)
	}
	if pauses := w.pauses(); len(pauses) != 1 || pauses[0].Code != "quota" || pauses[0].Actor != task.System || pauses[0].Until == nil || !strings.Contains(pauses[0].Reason, "its quota is used up") {
		t.Errorf("pauses %+v", pauses)
	}
	if len(w.calls(p)) != 1 {
		t.Errorf("started %d times while it was paused", len(w.calls(p)))
	}
	w.after(lookAgain)
	if err := w.work(); !errors.As(err, &snooze) || len(w.calls(p)) != 1 {
		t.Fatalf("it looked, and didn't wait on: %v", err)
	}
	w.after(time.Hour)
	for range 2 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	if w.get(first).Stage != flow.Deploy || w.get(second).Stage != flow.Deploy {
		t.Errorf("%+v, %+v", w.get(first), w.get(second))
	}
}

// A night without quota costs neither attempts nor runs, however often it is tried.
func TestQuotaNightSpendsNoRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	turns := make([]testagent.Turn, 0, 23)
	for range 22 {
		turns = append(turns, testagent.Turn{Kind: testagent.RateLimited})
	}
	p := w.program("coder", "claude", append(turns, works)...)
	added := w.add()
	for range 22 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
		w.after(8 * 24 * time.Hour)
	}
	if job := w.job(added); job.Attempt != 0 || job.Recoveries != 0 {
		t.Errorf("attempt %d, %d recoveries", job.Attempt, job.Recoveries)
	}
	w.through(added)
	if n := len(w.calls(p)); n != 23 {
		t.Errorf("started %d times", n)
	}
}

// A limit without a time is waited for, longer each time that it is met in a row.
func TestRateLimitWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	w.program("coder", "claude", testagent.Turn{Kind: testagent.RateLimited}, testagent.Turn{Kind: testagent.RateLimited}, works)
	added := w.add()
	var waits []time.Duration
	for range 2 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, time.Until(w.job(added).RunAt))
		if pauses := w.pauses(); len(pauses) != 1 || pauses[0].Code != "rate_limited" {
			t.Errorf("pauses %+v", pauses)
		}
		w.after(time.Hour)
	}
	if waits[0] < 30*time.Second || waits[0] > 10*time.Minute || waits[1] < waits[0]+30*time.Second {
		t.Errorf("waited for %s", waits)
	}
	w.through(added)
}

func TestFallbackTakesOver(t *testing.T) {
	t.Parallel()
	for _, kind := range []testagent.Kind{testagent.Quota, testagent.Auth} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withFallback)
			w.program("coder", "claude", testagent.Turn{Kind: kind, Lasts: time.Hour})
			spare := w.program("spare", "codex", works)
			added := w.add()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if job := w.job(added); job.Attempt != 0 || job.Phase != nil {
				t.Errorf("%+v", job)
			}
			w.through(added) // at once
			if calls := w.calls(spare); len(calls) != 1 || calls[0].Args[0] != "exec" || !strings.Contains(calls[0].Prompt, "# Do it") {
				t.Errorf("%+v", calls)
			}
			other := w.add()
			w.through(other)
			if n := w.count(`select count(*) from runs where agent = 'coder'`); n != 1 {
				t.Errorf("the paused agent was started %d times", n)
			}
		})
	}
}

func TestFallbackIsLeftAgainAfterTheReset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFallback)
	coder := w.program("coder", "claude", testagent.Turn{Kind: testagent.RateLimited}, works)
	spare := w.program("spare", "codex", works)
	first := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.through(first)
	w.after(time.Hour)
	w.through(w.add())
	if len(w.calls(coder)) != 2 || len(w.calls(spare)) != 1 {
		t.Errorf("coder was started %d times, spare %d times", len(w.calls(coder)), len(w.calls(spare)))
	}
}

// The fallback has worked in the workspace meanwhile: what the first agent remembers of it isn't so any more.
func TestSessionIsLeftWhenAnotherAgentHasWorkedSince(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFallback)
	coder := w.program("coder", "claude", testagent.Turn{Kind: testagent.RateLimited}, works)
	w.program("spare", "codex", testagent.Turn{Kind: testagent.NoResult})
	added := w.add()
	for range 2 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	w.after(time.Hour)
	w.through(added)
	if call := w.calls(coder)[1]; resumed(call) != "" || !strings.Contains(call.Prompt, "Please") {
		t.Errorf("%+v", call)
	}
}

// While the whole chain is paused the job waits; who resumes the first agent wakes it.
func TestAllOfTheChainPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withFallback)
	w.program("coder", "claude", works)
	for _, name := range []string{"coder", "spare"} {
		if err := w.pausing.Pause(t.Context(), pause.Pause{Scope: pause.Agent, Name: name, Reason: "holiday", Actor: "me"}); err != nil {
			t.Fatal(err)
		}
	}
	added := w.add()
	var snooze *queue.SnoozeError
	if err := w.work(); !errors.As(err, &snooze) || snooze.After != lookAgain || w.waitsFor(added) != "agent_paused:coder" {
		t.Fatal(err)
	}
	if w.claim() != nil {
		t.Fatal("the job doesn't wait")
	}
	if was, err := w.pausing.Resume(t.Context(), pause.Agent, "coder"); !was || err != nil {
		t.Fatal(was, err)
	}
	w.through(added)
}

// What only a person can put right blocks the task that met it, and nobody else tries before a person has said so.
func TestAuthPausesUntilResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Auth}, works)
	first, second := w.add(), w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	blocked := w.get(first)
	if blocked.State != task.Blocked || blocked.ReasonCode != "auth" || !strings.Contains(blocked.Reason, "paused for all tasks until `orch resume --agent coder`") {
		t.Errorf("%+v", blocked)
	}
	var snooze *queue.SnoozeError
	if err := w.work(); !errors.As(err, &snooze) || len(w.calls(p)) != 1 || w.get(second).State != task.Active {
		t.Fatal(err)
	}
	w.after(8 * 24 * time.Hour)
	if err := w.work(); !errors.As(err, &snooze) || len(w.calls(p)) != 1 {
		t.Fatalf("it is over by itself: %v", err)
	}
	if _, err := w.pausing.Resume(t.Context(), pause.Agent, "coder"); err != nil {
		t.Fatal(err)
	}
	w.through(second)
}

// A program that isn't there is everybody's matter, one that a repository's own script lacks is not.
func TestNotFoundOfOneShellLineStopsNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `agents: {coder: {preset: command, command: "orch-test-no-such-program"}}`)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if job := w.job(added); job.Attempt != 1 || *job.ErrorCode != "agent_failed" || len(w.pauses()) != 0 {
		t.Errorf("attempt %d, %s, pauses %+v", job.Attempt, *job.ErrorCode, w.pauses())
	}
	w.configure(`agents: {coder: {preset: command, command: [DIR/nothing]}}`)
	w.due()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if after := w.get(added); after.State != task.Blocked || after.ReasonCode != "not_found" || len(w.pauses()) != 1 {
		t.Errorf("%+v, pauses %+v", after, w.pauses())
	}
}

// A limit that was over long before anybody looked pauses nothing.
func TestLimitThatIsOverPausesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	w.program("coder", "claude", testagent.Turn{Kind: testagent.RateLimited}, works)
	added := w.add()
	w.crash = true
	if err := w.work(); !errors.Is(err, errCrash) || len(w.pauses()) != 0 {
		t.Fatal(err)
	}
	w.exec(`update runs set reset_at = now() - interval '1 minute'`)
	w.due()
	if err := w.work(); err != nil || len(w.pauses()) != 0 {
		t.Fatalf("%v, pauses %+v", err, w.pauses())
	}
	w.after(time.Minute)
	w.through(added)
}
