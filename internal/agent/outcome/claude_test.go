package outcome_test

import (
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/transcript"
)

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
