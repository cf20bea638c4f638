package roster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"orch/internal/queue"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testagent"
)

// leaves is work that isn't done when the program ends.
const leaves = `echo half > half`

func TestAnswerResumesTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Asks, Work: leaves}, testagent.Turn{Kind: testagent.Works, Work: `test -f half && touch found`})
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if asking := w.get(added); asking.ReasonCode != task.CodeNeedsInput || !strings.Contains(asking.Reason, testagent.Question) {
		t.Fatalf("%+v", asking)
	}
	if _, err := w.store.Answer(t.Context(), added.Key, "me", "to the left"); err != nil {
		t.Fatal(err)
	}
	w.through(added)
	calls := w.calls(p)
	if len(calls) != 2 || resumed(calls[1]) != calls[0].Session {
		t.Fatalf("%+v", calls)
	}
	if prompt := calls[1].Prompt; !strings.Contains(prompt, "Answer: to the left") || !strings.Contains(prompt, "is as you left it") || strings.Contains(prompt, "Please") {
		t.Error(prompt)
	}
	if _, err := os.Stat(filepath.Join(w.Dir(added), "found")); err != nil {
		t.Errorf("the workspace isn't as it was left: %v", err)
	}
	if n := w.count(`select count(*) from runs r join runs b on b.id = r.resumed_from where b.session_id = $1`, calls[0].Session); n != 1 {
		t.Error("what was resumed isn't noted")
	}
}

func TestRetryResumesInTheSameTree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.NoResult, Work: leaves}, testagent.Turn{Kind: testagent.Works, Work: `test -f half && touch found`})
	added := w.add()
	if err := w.work(); err != nil || w.job(added).Attempt != 1 {
		t.Fatal(err)
	}
	w.due()
	w.through(added)
	calls := w.calls(p)
	if len(calls) != 2 || resumed(calls[1]) != calls[0].Session || !strings.Contains(calls[1].Prompt, "ended before the work was done") {
		t.Fatalf("%+v", calls)
	}
	if _, err := os.Stat(filepath.Join(w.Dir(added), "found")); err != nil {
		t.Errorf("the workspace isn't as it was left: %v", err)
	}
}

// A red gate is the next round: the agent gets the whole prompt, with what the gate said, in a clean workspace.
func TestNewRoundStartsAfresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Works, Work: leaves}, works)
	added := w.add()
	w.red = true
	if err := w.work(); err != nil || w.get(added).Round != 2 {
		t.Fatal(err)
	}
	w.through(added)
	calls := w.calls(p)
	if resumed(calls[1]) != "" || calls[1].Session == calls[0].Session || !strings.Contains(calls[1].Prompt, "the gate is red") || !strings.Contains(calls[1].Prompt, "Please") {
		t.Errorf("%+v", calls[1])
	}
	if _, err := os.Stat(filepath.Join(w.Dir(added), "half")); err == nil {
		t.Error("the workspace is as it was left")
	}
}

// The workspace was cleared away meanwhile: the agent is told, as it believes in files that are gone.
func TestResumedAgentIsToldThatItsWorkspaceIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Asks}, works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(w.Dir(added)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Answer(t.Context(), added.Key, "me", "to the left"); err != nil {
		t.Fatal(err)
	}
	w.through(added)
	if call := w.calls(p)[1]; resumed(call) == "" || !strings.Contains(call.Prompt, "was made anew since") {
		t.Errorf("%+v", call)
	}
}

// The program doesn't know its session any more: the next attempt begins anew, with the whole prompt.
func TestLostSessionStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.NoResult}, works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	sessions, err := filepath.Glob(filepath.Join(w.dir, ".coder", "sessions", "*"))
	if err != nil || len(sessions) != 1 {
		t.Fatal(sessions, err)
	}
	if err := os.RemoveAll(sessions[0]); err != nil {
		t.Fatal(err)
	}
	w.due()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	w.due()
	w.through(added)
	calls := w.calls(p)
	if len(calls) != 3 || resumed(calls[1]) == "" || resumed(calls[2]) != "" || !strings.Contains(calls[2].Prompt, "Please") {
		t.Errorf("%+v", calls)
	}
}

// An agent that can't go on with a session gets everything again, with the answer.
func TestAnswerWithoutASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `agents: {coder: {preset: aider, command: [DIR/coder]}}`)
	p := w.program("coder", "aider", testagent.Turn{Kind: testagent.Asks, Work: leaves}, works)
	added := w.add()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Answer(t.Context(), added.Key, "me", "to the left"); err != nil {
		t.Fatalf("%v, %+v", err, w.get(added))
	}
	w.through(added)
	if call := w.calls(p)[1]; !strings.Contains(call.Prompt, "Please") || !strings.Contains(call.Prompt, "Answer: to the left") || !slices.Contains(call.Args, "--message-file") {
		t.Errorf("%+v", call)
	}
}

// An edit takes away the agent of a living run: it is followed to its end all the same.
func TestLivingRunIsFollowedThoughItsAgentIsGoneFromTheConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, oneAgent)
	end := filepath.Join(w.dir, "go")
	p := w.program("coder", "claude", testagent.Turn{Kind: testagent.Works, Hold: end})
	added, answer := w.add(), make(chan error, 1)
	l := w.claim()
	go func() { answer <- w.do(l) }()
	w.until("the agent works", func() bool { return len(w.calls(p)) == 1 })
	l.BeginStop()
	if err := <-answer; !errors.Is(err, queue.ErrStopping) {
		t.Fatal(err)
	}
	w.configure(`agents: {other: {preset: command, command: "false"}}`)
	l = w.claim()
	go func() { answer <- w.do(l) }()
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil || w.get(added).Stage != flow.Deploy || len(w.calls(p)) != 1 {
		t.Errorf("%v, %+v, %d starts", err, w.get(added), len(w.calls(p)))
	}
	if events, err := w.store.EventsOf(t.Context(), added.ID, task.EventRunFinished); err != nil || len(events) != 1 || !strings.Contains(string(events[0].Data), `"agent": "coder"`) {
		t.Errorf("%+v, %v", events, err)
	}
}
