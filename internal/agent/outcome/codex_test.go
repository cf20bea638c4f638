package outcome_test

import (
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/transcript"
)

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
