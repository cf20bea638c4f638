package outcome_test

import (
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/transcript"
)

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
