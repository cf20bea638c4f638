package words_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/cli/words"
)

func TestRun(t *testing.T) {
	t.Parallel()
	id, before := uuid.UUID{15: 1}, uuid.UUID{15: 2}
	reset := time.Now().Add(72 * time.Hour)
	for name, c := range map[string]struct {
		run  api.Run
		want []string
	}{
		"gate":   {api.Run{ID: id, Purpose: "gate", State: api.RunRunning}, []string{"run 00000000-0000-0000-0000-000000000001: gate, running"}},
		"killed": {api.Run{ID: id, Purpose: "merge", Ended: new("interrupted")}, []string{"run 00000000-0000-0000-0000-000000000001: merge, interrupted"}},
		"running": {
			api.Run{ID: id, Purpose: "agent", State: api.RunRunning, Host: "h", Pid: new(7), ShimPid: new(6), Here: &api.RunHere{
				Argv: []string{"claude", "-p", "it's \x1b[2J\n", ""}, WorkingDirectory: "/w", Directory: "/r", FirstPort: new(20000), Ports: 20,
				TimeoutS: new(3600.0), StallTimeoutS: new(600.0), LogFirst: 3, LogEnd: 12,
			}},
			[]string{
				"run 00000000-0000-0000-0000-000000000001: agent, running", "  pid 7 under shim 6 on h", `  started claude -p 'it'\''s [2J ' ''`, "  in /w",
				"  may take 1h00m in all, 10m00s without output", "  has the ports 20000 to 20019", "  has written 12 bytes, the first 3 of them are gone, in /r",
			},
		},
		"ended": {
			api.Run{ID: id, Purpose: "gate", Outcome: new("killed"), Signal: new("SIGKILL"), UserMs: new(int64(1500)), SystemMs: new(int64(250)), MaxRssBytes: new(int64(3 << 20))},
			[]string{"run 00000000-0000-0000-0000-000000000001: gate, killed (signal SIGKILL)", "  took 1.8s of processor time and up to 3 MB of memory"},
		},
		"agent": {
			api.Run{
				ID: id, Purpose: "agent", Agent: "coder", Preset: "claude", Outcome: new("quota"), ExitCode: new(1), Turns: new(3), CostUsd: new(1.25),
				InputTokens: new(int64(12000)), OutputTokens: new(int64(345)), SessionID: new("s-1"), ResumedFrom: &before, Detail: "you've hit\x1b[2J your limit\nand more",
				Summary: " ", ResetAt: &reset,
			},
			[]string{
				"run 00000000-0000-0000-0000-000000000001: agent coder (claude), quota (exit code 1), 3 turns, 1.25 USD, 12k tokens",
				"  goes on with the session of run 00000000-0000-0000-0000-000000000002", "  session s-1", "  because: you've hit[2J your limit",
				"  its limit is over at " + reset.Format("2006-01-02 15:04:05"),
			},
		},
	} {
		if got := words.Run(c.run); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestJobSaysWhatItsAgentDoes(t *testing.T) {
	t.Parallel()
	job := api.Job{State: api.JobRunning, Attempt: 1, MaxAttempts: 3, Phase: new("following")}
	for said, want := range map[string]string{
		`{"tool": "Bash\n", "turns": 3, "cost_usd": 0.421, "input_tokens": 20000}`: ", the agent works with Bash, 3 turns, 0.42 USD, 20k tokens; attempt 1 of 3",
		`{}`:             ", the agent works; attempt 1 of 3",
		`{"turns": "x"}`: ", the agent works; attempt 1 of 3",
	} {
		raw := json.RawMessage(said)
		job.Progress = &raw
		if got := words.Job(job); got != want {
			t.Errorf("%s: %q", said, got)
		}
	}
	raw := json.RawMessage(`{"turns": 3}`)
	job.Progress, job.Phase = &raw, new("gates")
	if got := words.Job(job); got != ", gates are checked; attempt 1 of 3" {
		t.Errorf("after its end: %q", got)
	}
}
