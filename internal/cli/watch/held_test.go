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
