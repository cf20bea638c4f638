package outcome_test

import (
	"strings"
	"testing"
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/transcript"
	"orch/internal/transcript/report"
)

func TestClassOfEachOutcome(t *testing.T) {
	t.Parallel()
	for o, want := range map[outcome.Outcome]outcome.Class{
		outcome.OK: outcome.None, outcome.AgentFailed: outcome.Spent, outcome.SetupFailed: outcome.Spent, outcome.Timeout: outcome.Spent,
		outcome.Stalled: outcome.Spent, outcome.Auth: outcome.Never, outcome.Quota: outcome.Given, outcome.RateLimited: outcome.Given,
		outcome.NeedsInput: outcome.Answer, outcome.Killed: outcome.Spent, outcome.Crashed: outcome.Spent, outcome.NotFound: outcome.Never,
		outcome.Orphaned: outcome.Given, outcome.Interrupted: outcome.Given, outcome.Cancelled: outcome.Given,
		outcome.NeverStarted: outcome.Given, "of tomorrow": outcome.Spent,
	} {
		if got := o.Class(); got != want {
			t.Errorf("%s: %s, want %s", o, got, want)
		}
		paused := o == outcome.Auth || o == outcome.NotFound || o == outcome.Quota || o == outcome.RateLimited
		if o.Pauses() != paused {
			t.Errorf("%s pauses the agent: %v", o, o.Pauses())
		}
	}
}

func TestPausesWithoutAnEndDoubleUpToABound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		outcome outcome.Outcome
		before  int
		want    time.Duration
	}{
		{outcome.Quota, 0, 15 * time.Minute},
		{outcome.Quota, 2, time.Hour},
		{outcome.Quota, 5, 6 * time.Hour},
		{outcome.Quota, 1 << 40, 6 * time.Hour},
		{outcome.RateLimited, 0, time.Minute},
		{outcome.RateLimited, 3, 8 * time.Minute},
		{outcome.RateLimited, 4, 15 * time.Minute},
	} {
		if got := tt.outcome.Wait(tt.before); got != tt.want {
			t.Errorf("%s after %d: %s, want %s", tt.outcome, tt.before, got, tt.want)
		}
	}
}

func TestCodesMatchAtDigitBoundaries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]outcome.Outcome{
		"unexpected status 401 Unauthorized": outcome.Auth,
		`{"status":429,"error":{}}`:          outcome.RateLimited,
		"last status: 429.":                  outcome.RateLimited,
		"(429)":                              outcome.RateLimited,
		"402: pay":                           outcome.Quota,
		"402913 tokens":                      outcome.AgentFailed,
		"HTTP 4011":                          outcome.AgentFailed,
		"port 4290":                          outcome.AgentFailed,
		"127.0.0.1:429":                      outcome.AgentFailed,
		"1,429 bytes":                        outcome.AgentFailed,
		"took 0.429 s":                       outcome.AgentFailed,
		"took 429ms":                         outcome.AgentFailed,
		"request id: req_429":                outcome.AgentFailed,
		"550e8400-e29b-429-a716":             outcome.AgentFailed,
		"$402 spent":                         outcome.AgentFailed,
		"/v1/401/x":                          outcome.AgentFailed,
	} {
		said := transcript.Said{End: transcript.EndError, Error: &transcript.Error{Text: text}}
		if got := outcome.Judge(transcript.Codex, code(1), said, nil, now, nil); got.Outcome != want {
			t.Errorf("%q: %s, want %s", text, got.Outcome, want)
		}
	}
}

func TestGateRunsAreJudgedByTheirEndAlone(t *testing.T) {
	t.Parallel()
	const printed = `{"orch":{"status":"needs_input","question":"?"}}` + "\nHTTP 429 Too Many Requests\n" + outcome.SetupFailedMark + "\n"
	said := transcript.Said{
		End: transcript.EndError, Error: &transcript.Error{Status: 401}, Question: "?", Denied: []string{"Bash"},
		Report: &report.Report{Status: "quota"},
	}
	for n, want := range map[int]outcome.Outcome{0: outcome.OK, 1: outcome.AgentFailed, 125: outcome.AgentFailed, 127: outcome.AgentFailed, 137: outcome.Killed} {
		if got := outcome.Judge(transcript.None, code(n), said, []byte(printed), now, nil); got != (outcome.Judgement{Outcome: want}) {
			t.Errorf("exit code %d: %+v, want %s", n, got, want)
		}
	}
}

func TestATornFirstLineIsNotRead(t *testing.T) {
	t.Parallel()
	tail := `"output":"HTTP 429 Too Many Requests"}` + "\n" + strings.Repeat("x", outcome.TailBytes)
	if got := outcome.Judge(transcript.Command, code(1), transcript.Said{}, []byte(tail), now, nil); got.Outcome != outcome.AgentFailed {
		t.Errorf("%+v", got)
	}
	tail = "{" + strings.Repeat("HTTP 429 Too Many Requests ", outcome.TailBytes/20)
	if got := outcome.Judge(transcript.Command, code(1), transcript.Said{}, []byte(tail[1:]), now, nil); got.Outcome != outcome.AgentFailed {
		t.Errorf("%+v", got)
	}
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<14)
	said := transcript.Said{End: transcript.EndError, Error: &transcript.Error{Text: long}}
	if got := outcome.Judge(transcript.Codex, code(1), said, nil, now, nil); len(got.Detail) > 2<<10 || got.Detail == "" {
		t.Errorf("%d bytes of detail", len(got.Detail))
	}
	said = transcript.Said{End: transcript.EndOK, Begun: true, Question: "x" + long}
	if got := outcome.Judge(transcript.Claude, code(0), said, nil, now, nil); len(got.Question) > 4<<10 || got.Question == "" {
		t.Errorf("%d bytes of question", len(got.Question))
	}
}

// A run that ended while orch was down is judged hours later, and what it said counts from when it was said.
func TestATimeToWaitCountsFromTheEndOfTheRun(t *testing.T) {
	t.Parallel()
	exit := code(1)
	exit.FinishedAt = now.Add(-2 * time.Hour)
	said := transcript.Said{End: transcript.EndError, Error: &transcript.Error{Status: 429, RetryAfter: 3 * time.Hour}}
	got := outcome.Judge(transcript.Codex, exit, said, nil, now, nil)
	if want := now.Add(time.Hour); got.Outcome != outcome.RateLimited || !got.ResetAt.Equal(want) {
		t.Errorf("%+v, want %v", got, want)
	}
	said.Error.RetryAfter = time.Hour // over already
	if got := outcome.Judge(transcript.Codex, exit, said, nil, now, nil); !got.ResetAt.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v, want in a minute", got)
	}
}

func TestAnExitIsJudgedWithoutAnythingElse(t *testing.T) {
	t.Parallel()
	for _, f := range []transcript.Format{"", "claude", "codex", "gemini", "opencode", "aider", "command", "of tomorrow"} {
		if got := outcome.Judge(f, process.Exit{}, transcript.Said{}, nil, now, nil); got.Outcome != outcome.Crashed && got.Outcome != outcome.AgentFailed {
			t.Errorf("%s: %+v", f, got)
		}
	}
}
