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

const (
	claudeInit  = `{"type":"system","subtype":"init","session_id":"9408bea7-1","model":"claude-opus-5","cwd":"/w","tools":["Bash"]}` + "\n"
	claudeText  = `{"type":"assistant","message":{"id":"msg_1","model":"claude-opus-5","role":"assistant","content":[{"type":"text","text":"working"}],"usage":{"input_tokens":2,"output_tokens":14}},"parent_tool_use_id":null,"session_id":"9408bea7-1"}` + "\n"
	claudeRetry = `{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":524,"error_status":401,"error":"authentication_failed","session_id":"9408bea7-1"}` + "\n"
)

func claudeResult(fields string) string {
	return `{"type":"result","num_turns":1,"session_id":"9408bea7-1","total_cost_usd":0.01,"usage":{"input_tokens":4,"output_tokens":98},` + fields + `}` + "\n"
}

func claudeLimit(status, more string) string {
	return `{"type":"rate_limit_event","rate_limit_info":{"status":"` + status + `","resetsAt":1782140400,"rateLimitType":"five_hour"` + more + `},"session_id":"9408bea7-1"}` + "\n"
}

func claudeError(kind string) string {
	return `{"type":"assistant","error":"` + kind + `","message":{"id":"msg_2","model":"<synthetic>","role":"assistant","content":[{"type":"text","text":"API Error"}]},"parent_tool_use_id":null,"session_id":"9408bea7-1"}` + "\n"
}

func claudeRows() []row {
	const c = transcript.Claude
	failed := func(status, text string) string {
		return claudeInit + claudeResult(`"subtype":"success","is_error":true,"api_error_status":`+status+`,"terminal_reason":"api_error","result":"`+text+`"`)
	}
	success := func(text, more string) string {
		return claudeInit + claudeText + claudeResult(`"subtype":"success","is_error":false,"result":"`+text+`"`+more)
	}
	rows := []row{
		{name: "02 success", format: c, exit: code(0), output: success("done", `,"permission_denials":[]`), want: outcome.OK},
		{
			name: "02 success speaks of limits", format: c, exit: code(0), want: outcome.OK,
			output: success("handled 401, 429 and \\\"usage limit reached\\\"", ""),
		},
		{
			name: "03 asked", format: c, exit: code(0), want: outcome.NeedsInput, question: "Which port?",
			output: success("I asked.", `,"permission_denials":[{"tool_name":"AskUserQuestion","tool_use_id":"t1","tool_input":{"questions":[{"question":"Which port?"}]}}]`),
		},
		{
			name: "03 asked by orch's line", format: c, exit: code(0), want: outcome.NeedsInput, question: "Which port?",
			output: success(`I can't go on.\n{\"orch\":{\"status\":\"needs_input\",\"question\":\"Which port?\"}}`, ""),
		},
		{
			name: "03 says that it failed", format: c, exit: code(0), want: outcome.AgentFailed, detail: "no compiler",
			output: success(`{\"orch\":{\"status\":\"failed\",\"summary\":\"no compiler\"}}`, ""),
		},
		{
			name: "03 denied", format: c, exit: code(0), want: outcome.NeedsInput, question: "was not allowed to use Write",
			output: success("done", `,"permission_denials":[{"tool_name":"Write","tool_use_id":"t1","tool_input":{}}]`),
		},
		{
			name: "03 denied, and did without", format: c, exit: code(0), want: outcome.OK,
			output: success(`{\"orch\":{\"status\":\"ok\"}}`, `,"permission_denials":[{"tool_name":"Write","tool_use_id":"t1","tool_input":{}}]`),
		},
		{name: "04 not logged in", format: c, exit: code(1), output: failed("null", "Not logged in · Please run /login"), want: outcome.Auth, detail: "/login"},
		{name: "04 invalid key", format: c, exit: code(1), output: failed("401", "Invalid API key · Please run /login"), want: outcome.Auth},
		{name: "04 status 403", format: c, exit: code(1), output: failed("403", "API Error: forbidden"), want: outcome.Auth},
		{name: "04 token revoked", format: c, exit: code(1), output: failed("null", "OAuth token revoked"), want: outcome.Auth},
		{name: "04 token expired", format: c, exit: code(1), output: failed("null", "OAuth token has expired"), want: outcome.Auth},
		{name: "04 plain", format: c, exit: code(1), output: "Invalid API key · Please run /login\n", want: outcome.Auth},
		{
			name: "05 rejected", format: c, exit: code(1), want: outcome.Quota, in: 2 * time.Hour,
			output: claudeInit + claudeLimit("rejected", "") + claudeResult(`"subtype":"success","is_error":true,"api_error_status":429,"result":"limit"`),
		},
		{
			name: "05 rejected, but overage pays", format: c, exit: code(0), want: outcome.OK,
			output: claudeInit + claudeLimit("rejected", `,"overageStatus":"allowed","isUsingOverage":true`) + claudeText + claudeResult(`"subtype":"success","is_error":false,"result":"done"`),
		},
		{
			name: "05 allowed", format: c, exit: code(1), want: outcome.RateLimited,
			output: claudeInit + claudeLimit("allowed", "") + claudeResult(`"subtype":"success","is_error":true,"api_error_status":429,"result":"Request rejected (429)"`),
		},
		{
			name: "06 session limit", format: c, exit: code(1), want: outcome.Quota, in: 151 * time.Minute,
			output: failed("429", "You've hit your session limit · resets 8:30am (America/Los_Angeles)"),
		},
		{
			name: "06 weekly limit", format: c, exit: code(1), want: outcome.Quota, in: 51*time.Hour + time.Minute,
			output: failed("429", "You've hit your weekly limit · resets Jun 24 at 1pm (America/Recife)"),
		},
		{
			name: "06 a model's limit", format: c, exit: code(1), want: outcome.Quota,
			output: failed("429", "You've reached your Fable 5 limit. Run /usage-credits to go on."),
		},
		{
			name: "06 epoch", format: c, exit: code(1), want: outcome.Quota, in: 2 * time.Hour,
			output: failed("null", "Claude AI usage limit reached|1782140400"),
		},
		{name: "07 no credit", format: c, exit: code(1), output: failed("400", "Credit balance is too low"), want: outcome.Quota},
		{name: "07 status 402", format: c, exit: code(1), output: failed("402", "payment required"), want: outcome.Quota},
		{name: "08 too many", format: c, exit: code(1), output: failed("429", "Request rejected (429)"), want: outcome.RateLimited},
		{
			name: "08 with a time", format: c, exit: code(1), want: outcome.RateLimited, in: 2892 * time.Second,
			output: failed("429", "API Error (429 rate_limit_error) · Retrying in 2892 seconds… (attempt 1/10)"),
		},
		{name: "08 overloaded", format: c, exit: code(1), output: failed("529", "API Error: Repeated 529 Overloaded errors"), want: outcome.RateLimited},
		{
			name: "09 turns", format: c, exit: code(1), want: outcome.AgentFailed, detail: "error_max_turns",
			output: claudeInit + claudeText + claudeResult(`"subtype":"error_max_turns","is_error":true,"stop_reason":"tool_use"`),
		},
		{
			name: "09 budget", format: c, exit: code(1), want: outcome.AgentFailed, detail: "budget",
			output: claudeInit + claudeText + claudeResult(`"subtype":"error_max_budget_usd","is_error":true,"errors":["Reached maximum budget"]`),
		},
		{name: "09 too long", format: c, exit: code(1), output: failed("400", "Prompt is too long"), want: outcome.AgentFailed, detail: "Prompt is too long"},
		{name: "09 server", format: c, exit: code(1), output: failed("500", "API Error: 500 Internal server error"), want: outcome.AgentFailed, detail: "500"},
		{name: "10 no result, clean exit", format: c, exit: code(0), output: claudeInit + claudeText, want: outcome.AgentFailed, detail: "exit code 0"},
		{name: "10 no result, exit code", format: c, exit: code(1), output: claudeInit + claudeText, want: outcome.AgentFailed},
		{name: "10 crashed", format: c, exit: signal("SIGSEGV"), output: claudeInit + claudeText, want: outcome.Crashed},
		{name: "32 killed", format: c, exit: code(137), output: claudeInit + claudeText, want: outcome.Killed},
		{name: "nothing at all", format: c, exit: code(0), want: outcome.AgentFailed},
		{
			name: "success without a turn", format: c, exit: code(0), want: outcome.AgentFailed,
			output: claudeInit + claudeResult(`"subtype":"success","is_error":false,"result":""`),
		},
	}
	for _, kind := range []string{"authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required", "cloud_credential_error"} {
		rows = append(rows, row{
			name: "04 " + kind, format: c, exit: code(1), want: outcome.Auth,
			output: claudeInit + claudeError(kind) + claudeResult(`"subtype":"success","is_error":true,"api_error_status":null,"result":"API Error"`),
		})
	}
	return append(rows, row{
		name: "07 billing_error", format: c, exit: code(1), want: outcome.Quota,
		output: claudeInit + claudeError("billing_error") + claudeResult(`"subtype":"success","is_error":true,"api_error_status":null,"result":"API Error"`),
	})
}

const (
	codexBegin = `{"type":"thread.started","thread_id":"01a02e3d-3743"}` + "\n" + `{"type":"turn.started"}` + "\n"
	codexTool  = `{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"cat log","aggregated_output":"","exit_code":null,"status":"in_progress"}}` + "\n" +
		`{"type":"item.completed","item":{"id":"item_0","type":"command_execution","command":"cat log","aggregated_output":"HTTP 429, usage limit reached\n","exit_code":0,"status":"completed"}}` + "\n"
	codexEnd = `{"type":"turn.completed","usage":{"input_tokens":31003,"cached_input_tokens":19968,"output_tokens":135}}` + "\n"
)

func codexSays(text string) string {
	return `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"` + text + `"}}` + "\n"
}

func codexRows() []row {
	const c = transcript.Codex
	failed := func(text string) string {
		return codexBegin + `{"type":"error","message":"` + text + `"}` + "\n" + `{"type":"turn.failed","error":{"message":"` + text + `"}}` + "\n"
	}
	rows := []row{
		{name: "11 success", format: c, exit: code(0), output: codexBegin + codexTool + codexSays("done") + codexEnd, want: outcome.OK},
		{
			name: "11 success after a reconnect", format: c, exit: code(0), want: outcome.OK,
			output: codexBegin + `{"type":"error","message":"Reconnecting... 1/5 (unexpected status 401 Unauthorized: no)"}` + "\n" + codexSays("done") + codexEnd,
		},
		{name: "11 empty last message", format: c, exit: code(0), output: codexBegin + codexTool + codexSays("") + codexEnd, want: outcome.AgentFailed},
		{
			name: "12 unauthorized", format: c, exit: code(1), want: outcome.Auth, detail: "401",
			output: failed("unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1/v1/responses"),
		},
		{name: "12 forbidden", format: c, exit: code(1), output: failed("unexpected status 403 Forbidden: no, url: http://127.0.0.1/v1/responses"), want: outcome.Auth},
		{name: "12 retries used up", format: c, exit: code(1), output: failed("exceeded retry limit, last status: 401 Unauthorized"), want: outcome.Auth},
		{name: "12 no key", format: c, exit: code(1), output: "Missing environment variable: `STUB_KEY`.\n", want: outcome.Auth},
		{name: "12 refresh", format: c, exit: code(1), output: failed("Your access token could not be refreshed because your refresh token was already used."), want: outcome.Auth},
		{
			name: "13 today", format: c, exit: code(1), want: outcome.Quota, in: 4*time.Hour + 27*time.Minute,
			output: failed("You’ve hit your usage limit. Visit https://chatgpt.com/codex/settings/usage to purchase more credits or try again at 5:26 PM."),
		},
		{
			name: "13 another day", format: c, exit: code(1), want: outcome.Quota, in: 24*time.Hour + 9*time.Hour + 4*time.Minute,
			output: failed("You've hit your usage limit. Upgrade to Pro or try again at Jun 23rd, 2026 10:03 PM."),
		},
		{name: "13 some day", format: c, exit: code(1), output: failed("You've hit your usage limit. Try again later."), want: outcome.Quota},
		{
			name: "13 body", format: c, exit: code(1), want: outcome.Quota, in: 4*time.Hour + 27*time.Minute,
			output: failed(`{\"type\":\"error\",\"status\":429,\"error\":{\"type\":\"rate_limit_error\",\"message\":\"You've hit your usage limit. Upgrade or try again at 5:26 PM.\"}}`),
		},
		{
			name: "13 body with resets_at", format: c, exit: code(1), want: outcome.Quota, in: 2 * time.Hour,
			output: failed(`{\"error\":{\"type\":\"usage_limit_reached\",\"plan_type\":\"plus\",\"resets_at\":1782140400}}`),
		},
		{name: "13 quota", format: c, exit: code(1), output: failed("Quota exceeded. Check your plan and billing details."), want: outcome.Quota},
		{name: "13 credits", format: c, exit: code(1), output: failed("Your workspace is out of credits. Add some."), want: outcome.Quota},
		{name: "13 spend cap", format: c, exit: code(1), output: failed("You hit your spend cap for this workspace."), want: outcome.Quota},
		{name: "14 too many", format: c, exit: code(1), output: failed("exceeded retry limit, last status: 429 Too Many Requests, request id: 1"), want: outcome.RateLimited},
		{name: "14 at capacity", format: c, exit: code(1), output: failed("Selected model is at capacity. Please try a different model."), want: outcome.RateLimited},
		{name: "14 high demand", format: c, exit: code(1), output: failed("We’re currently experiencing high demand, which may cause temporary errors."), want: outcome.RateLimited},
		{name: "14 in seconds", format: c, exit: code(1), output: failed("rate_limit_exceeded: Please try again in 20s."), want: outcome.RateLimited, in: time.Minute},
		{name: "15 failed", format: c, exit: code(1), output: failed("stream disconnected before completion: closed"), want: outcome.AgentFailed, detail: "disconnected"},
		{name: "15 too long", format: c, exit: code(1), output: failed("Codex ran out of room in the model's context window. 402913 tokens."), want: outcome.AgentFailed},
		{name: "15 no end", format: c, exit: code(0), output: codexBegin + codexTool + codexSays("done"), want: outcome.AgentFailed},
		{
			name: "15 asked by orch's line", format: c, exit: code(0), want: outcome.NeedsInput, question: "Which port?",
			output: codexBegin + codexSays(`{\"orch\":{\"status\":\"needs_input\",\"question\":\"Which port?\"}}`) + codexEnd,
		},
		{
			name: "15 interrupted", format: c, exit: code(130), output: codexBegin + codexTool, want: outcome.Killed,
		},
	}
	return rows
}

const (
	geminiInit  = `{"type":"init","timestamp":"2026-06-22T00:00:00.000Z","session_id":"sess-abc","model":"gemini-3"}` + "\n"
	geminiText  = `{"type":"message","timestamp":"2026-06-22T00:00:00.000Z","role":"assistant","content":"done","delta":true}` + "\n"
	geminiStats = `"stats":{"total_tokens":17158,"input_tokens":17031,"output_tokens":34,"cached":0,"input":17031,"duration_ms":5878,"tool_calls":0}`
)

func geminiRows() []row {
	const g = transcript.Gemini
	failed := func(kind, text string) string {
		return geminiInit + `{"type":"result","status":"error","error":{"type":"` + kind + `","message":"` + text + `"},` + geminiStats + `}` + "\n"
	}
	success := `{"type":"result","status":"success",` + geminiStats + `}` + "\n"
	rows := []row{
		{name: "16 success", format: g, exit: code(0), output: geminiInit + geminiText + success, want: outcome.OK},
		{
			name: "16 success after retries", format: g, exit: code(0), want: outcome.OK,
			output: geminiInit + "Attempt 1 failed with status 429. Retrying with backoff... _ApiError: {}\n" + geminiText + success,
		},
		{name: "17 exit 41 without an event", format: g, exit: code(41), output: "Please set an Auth method in your /h/.gemini/settings.json\n", want: outcome.Auth, detail: "Auth method"},
		{name: "17 exit 145", format: g, exit: code(401 & 0xff), output: failed("unknown", "[API Error: no]"), want: outcome.Auth},
		{name: "17 exit 147", format: g, exit: code(403 & 0xff), output: failed("ApiError", "[API Error: no]"), want: outcome.Auth},
		{name: "17 bad key", format: g, exit: code(400 & 0xff), output: failed("ApiError", "[API Error: API key not valid. Please pass a valid API key.]"), want: outcome.Auth},
		{name: "17 unauthenticated", format: g, exit: code(1), output: failed("ApiError", "[API Error: no (Status: UNAUTHENTICATED)]"), want: outcome.Auth},
		{name: "18 daily quota", format: g, exit: code(1), output: failed("TerminalQuotaError", "[API Error: You have exhausted your daily quota on this model.]"), want: outcome.Quota},
		{
			name: "18 with a time", format: g, exit: code(1), want: outcome.Quota, in: 2*time.Hour + 5*time.Minute,
			output: failed("TerminalQuotaError", "[API Error: Quota exceeded. Please retry in 2h5m0s.]"),
		},
		{name: "18 a limit of none", format: g, exit: code(429 & 0xff), output: failed("ApiError", "Quota exceeded for metric: requests, limit: 0"), want: outcome.Quota},
		{
			name: "19 retryable", format: g, exit: code(429 & 0xff), want: outcome.RateLimited, in: 90 * time.Second,
			output: failed("RetryableQuotaError", "You exceeded your current quota. Please retry in 90.0s."),
		},
		{name: "19 exit 173", format: g, exit: code(429 & 0xff), output: failed("ApiError", "no"), want: outcome.RateLimited},
		{name: "19 exit 247", format: g, exit: code(503 & 0xff), output: failed("ApiError", "no"), want: outcome.RateLimited},
		{
			name: "19 suggested", format: g, exit: code(1), want: outcome.RateLimited, in: 2 * time.Minute,
			output: failed("ApiError", "429 RESOURCE_EXHAUSTED. Suggested retry after 120s."),
		},
		{name: "20 input", format: g, exit: code(42), output: "No input provided via stdin.\n", want: outcome.AgentFailed, detail: "No input"},
		{name: "20 sandbox", format: g, exit: code(44), output: "no docker\n", want: outcome.AgentFailed},
		{name: "20 config", format: g, exit: code(52), output: "bad settings.json\n", want: outcome.AgentFailed, detail: "settings"},
		{name: "20 untrusted", format: g, exit: code(55), output: "untrusted folder\n", want: outcome.AgentFailed, detail: "untrusted"},
		{name: "21 turns", format: g, exit: code(53), output: failed("FatalTurnLimitedError", "Reached max session turns"), want: outcome.AgentFailed, detail: "turns"},
		{name: "21 error with a clean exit", format: g, exit: code(0), output: failed("ApiError", "[API Error: empty stream]"), want: outcome.AgentFailed},
		{
			name: "21 loop", format: g, exit: code(0), want: outcome.AgentFailed, detail: "Loop",
			output: geminiInit + geminiText + `{"type":"error","severity":"error","message":"Loop detected, stopping execution"}` + "\n" + success,
		},
		{name: "21 no result", format: g, exit: code(0), output: geminiInit + geminiText, want: outcome.AgentFailed},
		{name: "32 status isn't a signal", format: g, exit: code(500 & 0xff), output: failed("ApiError", "boom"), want: outcome.AgentFailed},
	}
	for _, kind := range []string{"FatalAuthenticationError", "UnauthorizedError", "ForbiddenError", "AccountSuspendedError", "ValidationRequiredError"} {
		rows = append(rows, row{name: "17 " + kind, format: g, exit: code(1), output: failed(kind, "no"), want: outcome.Auth})
	}
	return rows
}

const (
	openCodeStart = `{"type":"step_start","timestamp":1787482258116,"sessionID":"ses_1","part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_1","type":"step-start"}}` + "\n"
	openCodeText  = `{"type":"text","timestamp":1787482261701,"sessionID":"ses_1","part":{"type":"text","text":"done","time":{"start":1,"end":2}}}` + "\n"
)

func openCodeFinish(reason string) string {
	return `{"type":"step_finish","timestamp":1787482259168,"sessionID":"ses_1","part":{"type":"step-finish","reason":"` + reason + `","messageID":"msg_1","cost":0.025,"tokens":{"total":8011,"input":7952,"output":35,"reasoning":24,"cache":{"read":0,"write":0}}}}` + "\n"
}

func openCodeLimit(text string) string {
	return `timestamp=2026-06-22T12:55:00.000Z level=ERROR run=2ed64d00 message="stream error" providerID=opencode modelID=m session.id=ses_1 small=false agent=build mode=primary error.error="AI_APICallError: ` + text + `"` + "\n"
}

func openCodeRows() []row {
	const o = transcript.OpenCode
	failed := func(name, data string) string {
		return openCodeStart + `{"type":"error","timestamp":1778226217218,"sessionID":"ses_1","error":{"name":"` + name + `","data":{` + data + `}}}` + "\n"
	}
	success := openCodeStart + openCodeFinish("tool-calls") + openCodeStart + openCodeText + openCodeFinish("stop")
	return []row{
		{name: "22 success", format: o, exit: code(0), output: success, want: outcome.OK},
		{name: "22 exit code after a recovered error", format: o, exit: code(1), output: openCodeLimit("Rate limit exceeded.") + success, want: outcome.OK},
		{name: "22 done", format: o, exit: code(0), output: success + `{"type":"done","sessionID":"ses_1","reason":"idle","rejected":[]}` + "\n", want: outcome.OK},
		{
			name: "23 rejected", format: o, exit: code(0), want: outcome.NeedsInput, question: "bash",
			output: success + `{"type":"done","sessionID":"ses_1","reason":"idle","rejected":["bash"]}` + "\n",
		},
		{
			name: "23 auto-rejected", format: o, exit: code(0), want: outcome.NeedsInput, question: "bash",
			output: openCodeStart + "\x1b[93m\x1b[1m!\x1b[0m permission requested: bash (ls *); auto-rejecting\n" + openCodeText + openCodeFinish("stop"),
		},
		{name: "24 provider", format: o, exit: code(0), output: failed("ProviderAuthError", `"providerID":"p","message":"no"`), want: outcome.Auth},
		{name: "24 status 401", format: o, exit: code(0), output: failed("APIError", `"message":"no","statusCode":401,"isRetryable":false`), want: outcome.Auth},
		{name: "24 status 403", format: o, exit: code(0), output: failed("APIError", `"message":"no","statusCode":403,"isRetryable":false`), want: outcome.Auth},
		{
			name: "25 asleep on a limit", format: o, exit: because(process.WhyStalled), want: outcome.Quota, in: 59*time.Minute + 38*time.Second,
			output: openCodeLimit("Usage limit reached for 5 hour. Your limit will reset at 2026-06-22 13:59:38"),
		},
		{
			name: "25 exhausted", format: o, exit: because(process.WhyTimeout), want: outcome.Quota, in: 8 * 24 * time.Hour,
			output: openCodeLimit("Weekly/Monthly Limit Exhausted. Your limit will reset at 2026-07-25 21:49:08"),
		},
		{name: "25 monthly", format: o, exit: because(process.WhyStalled), output: openCodeLimit("Monthly usage limit reached"), want: outcome.Quota},
		{name: "25 free", format: o, exit: because(process.WhyStalled), output: openCodeLimit("Free usage exceeded"), want: outcome.Quota},
		{name: "25 named", format: o, exit: code(0), output: failed("GoUsageLimitError", `"message":"no"`), want: outcome.Quota},
		{name: "25 status 402", format: o, exit: code(0), output: failed("APIError", `"message":"no","statusCode":402`), want: outcome.Quota},
		{name: "25 no money", format: o, exit: code(0), output: failed("APIError", `"message":"insufficient_quota","statusCode":429`), want: outcome.Quota},
		{name: "26 asleep", format: o, exit: because(process.WhyStalled), output: openCodeLimit("Rate limit exceeded. Please try again later."), want: outcome.RateLimited},
		{
			name: "26 status 429", format: o, exit: code(0), want: outcome.RateLimited, in: 5 * time.Minute,
			output: failed("APIError", `"message":"no","statusCode":429,"isRetryable":true,"responseHeaders":{"retry-after":"300"}`),
		},
		{name: "26 overloaded", format: o, exit: code(0), output: failed("APIError", `"message":"Overloaded"`), want: outcome.RateLimited},
		{name: "26 went on after it", format: o, exit: because(process.WhyStalled), output: openCodeLimit("Rate limit exceeded.") + openCodeStart + openCodeFinish("tool-calls"), want: outcome.Stalled},
		{
			name: "27 no such session", format: o, exit: code(0), want: outcome.AgentFailed, detail: "Session not found",
			output: `timestamp=2026-06-22T12:55:00.000Z level=ERROR run=2ed64d00 message="NotFoundError" error="Session not found: ses_9"` + "\n",
		},
		{name: "27 cut off", format: o, exit: code(0), output: openCodeStart + openCodeFinish("tool-calls"), want: outcome.AgentFailed},
		{name: "27 other error", format: o, exit: code(0), output: failed("UnknownError", `"message":"boom"`), want: outcome.AgentFailed, detail: "boom"},
	}
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
