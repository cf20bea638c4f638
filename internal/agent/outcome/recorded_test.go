package outcome_test

import (
	"testing"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/testagent"
	"orch/internal/transcript"
)

// recordedRun is how a recorded transcript ended, and what that means.
type recordedRun struct {
	exit process.Exit
	want outcome.Outcome
}

func recordedRuns() map[transcript.Format]map[string]recordedRun {
	stalled := because(process.WhyStalled)
	return map[transcript.Format]map[string]recordedRun{
		transcript.Claude: {
			"bad_key": {code(1), outcome.Auth}, "crashed": {code(1), outcome.AgentFailed}, "denied": {code(0), outcome.NeedsInput},
			"limit_event": {code(1), outcome.Quota}, "limit_old": {code(1), outcome.Quota}, "limit_overage": {code(0), outcome.OK},
			"lost_session": {code(1), outcome.AgentFailed}, "max_budget": {code(1), outcome.AgentFailed}, "max_turns": {code(1), outcome.AgentFailed},
			"no_credit": {code(1), outcome.Quota}, "no_login": {code(1), outcome.Auth}, "no_model": {code(1), outcome.AgentFailed},
			"no_result": {code(0), outcome.AgentFailed}, "numbers_in_text": {code(0), outcome.OK}, "ok": {code(0), outcome.OK},
			"overloaded": {code(1), outcome.RateLimited}, "parallel_tools": {code(0), outcome.AgentFailed}, "prints_orch_line": {code(0), outcome.OK},
			"question": {code(0), outcome.NeedsInput}, "question_line": {code(0), outcome.NeedsInput},
			"real_401": {code(1), outcome.Auth}, "real_429": {code(1), outcome.Quota}, "real_edit_2_1_197": {code(0), outcome.OK},
			"real_edit_2_1_332": {code(0), outcome.OK}, "real_resumed_2_1_197": {code(0), outcome.OK}, "real_resumed_2_1_332": {code(0), outcome.OK},
			"retry_in": {code(1), outcome.RateLimited}, "retry_recovered": {code(0), outcome.OK}, "server_error": {code(1), outcome.AgentFailed},
			"session_limit": {code(1), outcome.Quota}, "startup_failed": {code(1), outcome.AgentFailed}, "subagent": {code(0), outcome.AgentFailed},
			"throttled": {code(1), outcome.RateLimited}, "token_expired": {code(1), outcome.Auth}, "too_long": {code(1), outcome.AgentFailed},
		},
		transcript.Codex: {
			"asks": {code(0), outcome.NeedsInput}, "bad_key": {code(1), outcome.Auth}, "capacity": {code(1), outcome.RateLimited},
			"credits": {code(1), outcome.Quota}, "disconnected": {code(1), outcome.AgentFailed}, "interrupted": {code(130), outcome.Killed},
			"lost_session": {code(1), outcome.AgentFailed}, "no_key": {code(1), outcome.Auth}, "no_message": {code(0), outcome.AgentFailed},
			"ok": {code(0), outcome.OK}, "open_items": {code(1), outcome.AgentFailed}, "question": {code(0), outcome.NeedsInput},
			"quota": {code(1), outcome.Quota}, "real_401": {code(1), outcome.Auth}, "real_429": {code(1), outcome.Quota},
			"real_429_retried": {code(1), outcome.RateLimited}, "real_500": {code(1), outcome.RateLimited}, "real_edit": {code(0), outcome.OK},
			"real_resumed": {code(0), outcome.OK}, "reconnected": {code(0), outcome.OK}, "too_long": {code(1), outcome.AgentFailed},
			"too_many": {code(1), outcome.RateLimited}, "usage_limit": {code(1), outcome.Quota}, "usage_limit_json": {code(1), outcome.Quota},
			"usage_limit_reset": {code(1), outcome.Quota},
		},
		transcript.Gemini: {
			"bad_key": {code(144), outcome.Auth}, "daily_quota": {code(173), outcome.Quota}, "empty": {code(0), outcome.AgentFailed},
			"loop": {code(0), outcome.AgentFailed}, "lost_session": {code(42), outcome.AgentFailed}, "max_turns": {code(53), outcome.AgentFailed},
			"no_auth": {code(41), outcome.Auth}, "ok": {code(0), outcome.OK}, "question": {code(0), outcome.NeedsInput},
			"real_401": {code(145), outcome.Auth}, "real_edit": {code(0), outcome.OK}, "real_no_auth": {code(41), outcome.Auth},
			"real_resumed": {code(0), outcome.OK}, "recovered": {code(0), outcome.OK}, "retry_quota": {code(173), outcome.RateLimited},
			"session_turns": {code(0), outcome.AgentFailed}, "tool_error": {code(0), outcome.OK}, "tools_open": {stalled, outcome.Stalled},
			"unauthorized": {code(145), outcome.Auth}, "untrusted": {code(55), outcome.AgentFailed},
		},
		transcript.OpenCode: {
			"aborted": {code(1), outcome.AgentFailed}, "asks": {code(0), outcome.NeedsInput}, "auto_rejected": {code(0), outcome.NeedsInput},
			"bad_key": {code(1), outcome.Auth}, "compacted": {code(0), outcome.OK}, "cut_off": {code(0), outcome.AgentFailed},
			"done": {code(0), outcome.OK}, "lost_session": {code(0), outcome.AgentFailed}, "no_provider": {code(1), outcome.Auth},
			"ok": {code(0), outcome.OK}, "payment": {code(1), outcome.Quota}, "question": {code(0), outcome.NeedsInput},
			"rate_limit": {code(1), outcome.RateLimited}, "real_401": {code(1), outcome.Auth}, "real_429": {stalled, outcome.Quota},
			"real_429_retried": {code(1), outcome.RateLimited}, "real_500": {stalled, outcome.Stalled}, "real_edit": {code(0), outcome.OK},
			"recovered": {code(0), outcome.OK}, "rejected": {code(0), outcome.NeedsInput}, "second_version": {code(1), outcome.AgentFailed},
			"sleeping_month": {stalled, outcome.Quota}, "sleeping_offline": {stalled, outcome.Stalled},
			"sleeping_rate_limit": {stalled, outcome.RateLimited}, "sleeping_usage_limit": {stalled, outcome.Quota},
			"title_failed": {code(0), outcome.OK}, "too_long": {code(1), outcome.AgentFailed},
		},
		transcript.Aider: {
			"bad_key": {code(0), outcome.Auth}, "cached": {code(0), outcome.OK}, "credits": {code(0), outcome.Quota}, "ok": {code(0), outcome.OK},
			"prints_orch_line": {code(0), outcome.OK}, "question": {code(0), outcome.NeedsInput}, "rate_limit": {code(0), outcome.RateLimited},
			"recovered": {code(0), outcome.OK}, "too_long": {code(0), outcome.AgentFailed}, "unpriced": {code(0), outcome.OK},
		},
		transcript.Command: {
			"auth": {code(1), outcome.Auth}, "everything": {code(0), outcome.OK}, "last_counts": {code(0), outcome.OK}, "ok": {code(0), outcome.OK},
			"question": {code(0), outcome.NeedsInput}, "quota": {code(1), outcome.Quota}, "rate_limited": {code(1), outcome.RateLimited},
			"says_nothing": {code(0), outcome.OK}, "unknown_status": {code(0), outcome.OK},
		},
	}
}

func TestRecordedRunsAreJudgedRight(t *testing.T) {
	t.Parallel()
	for format, runs := range recordedRuns() {
		for _, name := range testagent.Names(t, string(format)) {
			t.Run(string(format)+"/"+name, func(t *testing.T) {
				t.Parallel()
				run, known := runs[name]
				if !known {
					t.Fatal("nothing is said here of what it means")
				}
				got := judge(t, format, run.exit, string(testagent.Recorded(t, string(format), name)))
				if got.Outcome != run.want {
					t.Errorf("%s (%s), want %s", got.Outcome, got.Detail, run.want)
				}
			})
		}
	}
}
