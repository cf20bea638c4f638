package outcome_test

import (
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/transcript"
)

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
