package watch

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"orch/api"
	"orch/internal/cli/terminal"
)

// Without a terminal there is no progress line: a wait of hours must not look like a hang.
func TestWhatATaskWaitsForIsToldOnce(t *testing.T) {
	t.Parallel()
	phase, code, until := "agent_paused:coder", "quota", time.Now().Add(time.Hour)
	waits := api.TaskDetail{
		Task:   api.Task{Key: "app-1", State: api.TaskActive, Stage: "development"},
		Job:    &api.Job{State: api.JobQueued, Phase: &phase, RunAt: until},
		Paused: []api.Pause{{Scope: api.PauseAgent, Name: "coder", Code: &code, Reason: "its quota is used up", Until: &until}},
	}
	var out bytes.Buffer
	shown := NewPlain(terminal.New(&out))
	for range 4 {
		shown.Now(waits)
	}
	budget := "budget_day"
	waits.Job.Phase, waits.Paused = &budget, nil
	shown.Now(waits)
	shown.Now(waits)
	waits.Job.State = api.JobRunning
	shown.Now(waits)
	shown.Close()
	if text := out.String(); strings.Count(text, "agent coder is paused: its quota is used up, until") != 1 || !strings.Contains(text, "`orch resume --agent coder`") ||
		strings.Count(text, "Today's budget is used up") != 1 {
		t.Error(text)
	}
}

func TestWhatATaskNeedsOfAPersonIsToldOnce(t *testing.T) {
	t.Parallel()
	phase, reason := "checkout_dirty", "a checkout has changes"
	waits := api.TaskDetail{
		Task: api.Task{Key: "app-1", State: api.TaskActive, Stage: "deploy", NeedsYou: true, WaitingFor: &phase, Reason: &reason},
		Job:  &api.Job{State: api.JobQueued, Phase: &phase},
	}
	var out bytes.Buffer
	shown := NewPlain(terminal.New(&out))
	for n := range 6 { // it is tried again all the same
		again := waits
		if n%3 == 2 {
			again.Task.NeedsYou, again.Task.WaitingFor, again.Task.Reason = false, nil, nil
			again.Job = &api.Job{State: api.JobRunning}
		}
		again.Job.RunAt = time.Now().Add(time.Duration(n) * time.Minute)
		shown.Now(again)
	}
	shown.Close()
	if text := out.String(); strings.Count(text, "waits: for you: a checkout has changes. Then it goes on by itself.") != 1 || strings.Contains(text, "looked at again") {
		t.Error(text)
	}
	if now := doing(waits); !strings.HasSuffix(now, "needs you: checkout dirty") {
		t.Error(now)
	}
}
