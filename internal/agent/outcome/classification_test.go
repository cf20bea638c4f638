package outcome_test

import (
	"strings"
	"testing"
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/transcript"
)

// now is when the runs of the tests are judged: a Monday, 13:00 UTC.
var now = time.Date(2026, time.June, 22, 13, 0, 0, 0, time.UTC)

func code(n int) process.Exit {
	return process.Exit{Why: process.WhyExited, Code: &n, FinishedAt: now}
}

func signal(name string) process.Exit {
	return process.Exit{Why: process.WhyExited, Signal: name, FinishedAt: now}
}

func because(why process.Why) process.Exit {
	return process.Exit{Why: why, Signal: "SIGTERM", FinishedAt: now}
}

// judge reads an output as the shim does, and judges the run that left it.
func judge(t *testing.T, f transcript.Format, exit process.Exit, output string) outcome.Judgement {
	t.Helper()
	said, err := transcript.Read(f, strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	tail := output
	if len(tail) > outcome.TailBytes {
		tail = tail[len(tail)-outcome.TailBytes:]
	}
	return outcome.Judge(f, exit, said, []byte(tail), now, time.UTC)
}

type row struct {
	name   string
	format transcript.Format
	exit   process.Exit
	output string
	want   outcome.Outcome
	// in is when it goes on, counted from now; zero: nobody knows.
	in time.Duration
	// detail and question have to be parts of the judgement's.
	detail, question string
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := judge(t, tt.format, tt.exit, tt.output)
			if got.Outcome != tt.want {
				t.Fatalf("%s (%s), want %s", got.Outcome, got.Detail, tt.want)
			}
			if want := now.Add(tt.in); tt.in != 0 && !got.ResetAt.Equal(want) || tt.in == 0 && !got.ResetAt.IsZero() {
				t.Errorf("goes on at %v, want %v", got.ResetAt.UTC(), want)
			}
			if !strings.Contains(got.Detail, tt.detail) || !strings.Contains(got.Question, tt.question) {
				t.Errorf("detail %q, question %q; want %q, %q", got.Detail, got.Question, tt.detail, tt.question)
			}
		})
	}
}

func TestClassification(t *testing.T) {
	t.Parallel()
	t.Run("reason", func(t *testing.T) { t.Parallel(); check(t, reasonRows()) })
	t.Run("claude", func(t *testing.T) { t.Parallel(); check(t, claudeRows()) })
	t.Run("codex", func(t *testing.T) { t.Parallel(); check(t, codexRows()) })
	t.Run("gemini", func(t *testing.T) { t.Parallel(); check(t, geminiRows()) })
	t.Run("opencode", func(t *testing.T) { t.Parallel(); check(t, openCodeRows()) })
	t.Run("aider", func(t *testing.T) { t.Parallel(); check(t, aiderRows()) })
	t.Run("command", func(t *testing.T) { t.Parallel(); check(t, commandRows()) })
}

func reasonRows() []row {
	rows := []row{
		{name: "timeout", exit: because(process.WhyTimeout), want: outcome.Timeout},
		{name: "stalled", exit: because(process.WhyStalled), want: outcome.Stalled},
		{name: "cancelled", exit: because(process.WhyCancelled), want: outcome.Cancelled},
		{name: "orphaned", exit: because(process.WhyOrphaned), want: outcome.Orphaned},
		{name: "host dead", exit: because(process.WhyHostDead), want: outcome.Orphaned},
		{name: "interrupted", exit: because(process.WhyInterrupted), want: outcome.Interrupted},
		{name: "never started", exit: because(process.WhyNeverStarted), want: outcome.NeverStarted},
		{name: "shim died", exit: process.Exit{Why: process.WhyShimDead}, want: outcome.Crashed},
	}
	var all []row
	for _, f := range []transcript.Format{
		transcript.None, transcript.Claude, transcript.Codex, transcript.Gemini, transcript.OpenCode, transcript.Aider, transcript.Command,
	} {
		for _, r := range rows {
			r.name, r.format = string(f)+" "+r.name, f
			all = append(all, r)
		}
	}
	return append(all,
		row{
			name: "cancelled stays so after a limit", format: transcript.OpenCode, exit: because(process.WhyCancelled),
			output: openCodeLimit("Monthly usage limit reached"), want: outcome.Cancelled,
		},
		row{
			name: "success, and then it hung", format: transcript.Claude, exit: because(process.WhyStalled),
			output: claudeInit + claudeText + claudeResult(`"subtype":"success","is_error":false,"result":"done"`), want: outcome.OK,
		},
		row{
			name: "stalled while a tool worked after a recovered error", format: transcript.Claude, exit: because(process.WhyStalled),
			output: claudeInit + claudeRetry + claudeText, want: outcome.Stalled,
		},
		row{
			name: "stalled on a broken server", format: transcript.OpenCode, exit: because(process.WhyStalled),
			output: openCodeLimit("boom"), want: outcome.Stalled, detail: "boom",
		},
		row{
			name: "stalled while it tried again", format: transcript.Claude, exit: because(process.WhyStalled),
			output: claudeInit + claudeRetry, want: outcome.Auth,
		},
	)
}

func aiderRows() []row {
	const a = transcript.Aider
	const went = "I'll add a retry for litellm.RateLimitError.\nTokens: 2.1k sent, 345 received. Cost: $0.01 message, $0.02 session.\nApplied edit to foo.py\nCommit 1a2b3c4 feat: retry\n"
	return []row{
		{name: "28 success", format: a, exit: code(0), output: went, want: outcome.OK},
		{
			name: "28 success after retries", format: a, exit: code(0), want: outcome.OK,
			output: "litellm.RateLimitError: no\nThe API provider has rate limited you. Try again later or check your quotas.\nRetrying in 0.2 seconds...\n" + went,
		},
		{
			name: "28 auth", format: a, exit: code(0), want: outcome.Auth,
			output: "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key\nThe API provider is not able to authenticate you. Check your API key.\n",
		},
		{
			name: "28 rate limited", format: a, exit: code(0), want: outcome.RateLimited,
			output: "litellm.RateLimitError: RateLimitError: OpenAIException - slow down\nThe API provider has rate limited you. Try again later or check your quotas.\n",
		},
		{
			name: "28 quota", format: a, exit: code(0), want: outcome.Quota,
			output: "litellm.RateLimitError: OpenAIException - You exceeded your current quota, please check your plan\nThe API provider has rate limited you. Try again later or check your quotas.\n",
		},
		{name: "28 credits", format: a, exit: code(0), output: "Insufficient credits with the API provider. Please add credits.\n", want: outcome.Quota},
		{name: "28 refused after its first answer", format: a, exit: code(0), output: went + "litellm.RateLimitError: no\n", want: outcome.RateLimited},
		{name: "28 clean exit without an answer", format: a, exit: code(0), output: "Aider v0.86\nlitellm.InternalServerError: boom\n", want: outcome.AgentFailed},
		{name: "28 start-up error", format: a, exit: code(1), output: "No such file\n", want: outcome.AgentFailed},
	}
}

func commandRows() []row {
	const c = transcript.Command
	orch := func(fields string) string { return "working\n" + `{"orch":{` + fields + `}}` + "\n" }
	return []row{
		{name: "29 says nothing", format: c, exit: code(0), want: outcome.OK},
		{name: "29 says ok", format: c, exit: code(0), output: orch(`"status":"ok"`), want: outcome.OK},
		{name: "29 says failed", format: c, exit: code(0), output: orch(`"status":"failed","summary":"no compiler"`), want: outcome.AgentFailed, detail: "no compiler"},
		{name: "29 says ok and fails", format: c, exit: code(1), output: orch(`"status":"ok"`), want: outcome.AgentFailed},
		{name: "29 asks", format: c, exit: code(0), output: orch(`"status":"needs_input","question":"Which port?"`), want: outcome.NeedsInput, question: "Which port?"},
		{name: "29 asks and fails", format: c, exit: code(2), output: orch(`"status":"needs_input","question":"Which port?"`), want: outcome.NeedsInput},
		{name: "29 says auth", format: c, exit: code(1), output: orch(`"status":"auth","summary":"key expired"`), want: outcome.Auth, detail: "key expired"},
		{name: "29 says quota", format: c, exit: code(1), output: orch(`"status":"quota","reset_at":"2026-06-22T15:00:00Z"`), want: outcome.Quota, in: 2 * time.Hour},
		{name: "29 says rate limited", format: c, exit: code(0), output: orch(`"status":"rate_limited","reset_at":1782140400`), want: outcome.RateLimited, in: 2 * time.Hour},
		{name: "29 401", format: c, exit: code(1), output: "error: HTTP 401 Unauthorized\n", want: outcome.Auth},
		{name: "29 key", format: c, exit: code(1), output: "Invalid API key\n", want: outcome.Auth},
		{name: "29 429", format: c, exit: code(1), output: "error: HTTP 429 Too Many Requests\nRetry-After: 120\n", want: outcome.RateLimited, in: 2 * time.Minute},
		{name: "29 429 with a time", format: c, exit: code(1), output: "error: HTTP 429, retry in 2 minutes\n", want: outcome.RateLimited, in: 2 * time.Minute},
		{name: "29 usage limit", format: c, exit: code(1), output: "usage limit reached, resets at 15:00\n", want: outcome.Quota, in: 2*time.Hour + time.Minute},
		{name: "29 quota", format: c, exit: code(1), output: "insufficient_quota\n", want: outcome.Quota},
		{name: "29 rate limit", format: c, exit: code(1), output: "Rate limit exceeded\n", want: outcome.RateLimited},
		{name: "29 disk quota", format: c, exit: code(1), output: "write failed: Disk quota exceeded\n", want: outcome.AgentFailed},
		{name: "29 tests", format: c, exit: code(1), output: "429 tests passed, 1 failed\n", want: outcome.AgentFailed},
		{name: "30 tokens", format: c, exit: code(1), output: "error: 402913 tokens\n", want: outcome.AgentFailed},
		{name: "30 a longer code", format: c, exit: code(1), output: "error: HTTP 4011, unauthorized\n", want: outcome.AgentFailed},
		{name: "30 success speaks of limits", format: c, exit: code(0), output: "HTTP 401 Unauthorized\nHTTP 429\nquota exceeded\n", want: outcome.OK},
		{name: "30 JSON isn't read", format: c, exit: code(1), output: `{"tool":"cat","output":"HTTP 429 Too Many Requests"}` + "\n", want: outcome.AgentFailed},
		{
			name: "31 not found", format: c, exit: process.Exit{Why: process.WhyExited, Code: new(127), Unstarted: true, Error: "command not found: nope"},
			want: outcome.NotFound, detail: "nope",
		},
		{
			name: "31 not executable", format: c, exit: process.Exit{Why: process.WhyExited, Code: new(126), Unstarted: true, Error: "permission denied"},
			want: outcome.NotFound,
		},
		{
			name: "31 trouble around a line of the shell", format: c, want: outcome.AgentFailed,
			exit: process.Exit{Why: process.WhyExited, Code: new(127), Error: "output was lost: no space left on device"},
		},
		{name: "31 a line of the shell", format: c, exit: code(127), output: "sh: 1: make: not found\n", want: outcome.AgentFailed},
		{name: "31 after the setup", format: c, exit: code(127), output: "setup done\n" + outcome.NotFoundMark + ": nope: not found\n", want: outcome.NotFound, detail: "nope"},
		{name: "31 setup", format: c, exit: code(125), output: "npm ERR!\n" + outcome.SetupFailedMark + " with exit code 1\n", want: outcome.SetupFailed, detail: "exit code 1"},
		{name: "31 the code alone", format: c, exit: code(125), output: "docker: no such image\n", want: outcome.AgentFailed},
		{name: "31 the mark alone", format: c, exit: code(0), output: outcome.SetupFailedMark + "\n", want: outcome.OK},
		{name: "32 killed", format: c, exit: signal("SIGKILL"), output: orch(`"status":"ok"`), want: outcome.Killed},
		{name: "32 crashed", format: c, exit: signal("SIGSEGV"), want: outcome.Crashed},
		{name: "32 a child was killed", format: c, exit: code(137), want: outcome.Killed},
		{name: "32 a child was terminated", format: c, exit: code(143), want: outcome.Killed},
		{name: "32 a child crashed", format: c, exit: code(139), want: outcome.Crashed},
		{name: "32 never got so far", format: c, exit: process.Exit{Why: process.WhyExited, Error: "no directory"}, want: outcome.Crashed, detail: "no directory"},
	}
}
