package testagent

import (
	"regexp"
	"strings"
)

// manner is how a program says things.
type manner struct {
	ways map[Kind]way
	// lost is what it says of a session that isn't there.
	lost way
	// session is the one in its transcripts.
	session string
	// sums are what it keeps for a session, over all runs in it.
	sums map[string]sum
}

// way is a transcript, with pairs of what is said instead, and the exit code that goes with it.
type way struct {
	print   string
	code    int
	replace []string
	// sleeps means that the program waits for what hinders it to go away.
	sleeps bool
}

// sum is a number that grows by so much with each run in a session. The pattern's first group stands before the number.
type sum struct {
	pattern *regexp.Regexp
	each    int
}

func says(name string, code int, replace ...string) way {
	return way{print: name, code: code, replace: replace}
}

func sumOf(field, number string, each int) sum {
	return sum{pattern: regexp.MustCompile(`("` + field + `":)` + number), each: each}
}

// Costs and tokens that a run of claude or codex adds to the sums of its session.
const (
	ClaudeMicroUSD = 32467
	ClaudeInput    = 700
	ClaudeOutput   = 20
	CodexInput     = 31003
	CodexCached    = 19968
	CodexOutput    = 135
)

// general puts placeholders for what differs from run to run.
func (m manner) general(text string) string {
	if m.session != "" {
		text = strings.ReplaceAll(text, m.session, "@SESSION@")
	}
	for name, sum := range m.sums {
		text = sum.pattern.ReplaceAllString(text, "${1}@"+name+"@")
	}
	return text
}

// manners are those of each format. Exit codes are the programs' own.
func manners() map[string]manner {
	return map[string]manner{
		"claude": {
			session: "9408bea7-1c2d-4e5f-8a90-b1c2d3e4f506", lost: says("lost_session", 1),
			ways: map[Kind]way{
				Works: says("ok", 0), Asks: says("question", 0, "Which database do you want?", Question),
				Quota: says("limit_event", 1, "1787520600", "@RESET@"), RateLimited: says("throttled", 1),
				Auth: says("bad_key", 1), NoResult: says("no_result", 0),
			},
			// Each of its results tells of two models.
			sums: map[string]sum{
				"COST": sumOf("total_cost_usd", `0\.\d+`, ClaudeMicroUSD), "INPUT": sumOf("inputTokens", `\d+`, 100),
				"CACHED": sumOf("cacheReadInputTokens", `\d+`, 200), "CREATED": sumOf("cacheCreationInputTokens", `\d+`, 50),
				"OUTPUT": sumOf("outputTokens", `\d+`, ClaudeOutput/2),
			},
		},
		"codex": {
			session: "01a02e3d-3743-7ac1-8c30-6c7254135573", lost: says("lost_session", 1),
			ways: map[Kind]way{
				Works: says("ok", 0), Asks: says("question", 0, "Which port?", Question),
				Quota:       says("usage_limit_reset", 1, "1777936568", "@RESET@", `,\"resets_in_seconds\":13872`, ""),
				RateLimited: says("too_many", 1), Auth: says("bad_key", 1), NoResult: says("interrupted", 0),
			},
			sums: map[string]sum{
				"INPUT": sumOf("input_tokens", `\d+`, CodexInput), "CACHED": sumOf("cached_input_tokens", `\d+`, CodexCached),
				"OUTPUT": sumOf("output_tokens", `\d+`, CodexOutput),
			},
		},
		"gemini": {
			session: "sess-abc", lost: says("lost_session", 42),
			ways: map[Kind]way{
				Works: says("ok", 0), Asks: says("question", 0, "Which one?", Question),
				Quota:       says("daily_quota", 173, "on this model.", "on this model. Please retry in @LEFT@s."),
				RateLimited: says("retry_quota", 173), Auth: says("unauthorized", 41), NoResult: says("tools_open", 0),
			},
		},
		"opencode": {
			session: "ses_fd1c2b3a4d5e6f70", lost: says("lost_session", 0),
			ways: map[Kind]way{
				Works: says("ok", 0), Asks: says("question", 0, "Which?", Question),
				Quota:       {print: "sleeping_usage_limit", replace: []string{"2026-06-22 13:59:38", "@CLOCK@"}, sleeps: true},
				RateLimited: says("rate_limit", 1), Auth: says("bad_key", 1), NoResult: says("cut_off", 0),
			},
		},
		"aider": {
			ways: map[Kind]way{
				Works: says("ok", 0), Asks: says("question", 0, "Which one?", Question), Quota: says("credits", 0),
				RateLimited: says("rate_limit", 0), Auth: says("bad_key", 0),
			},
		},
		"command": {
			session: "abc-1",
			ways: map[Kind]way{
				Works: says("everything", 0), Asks: says("question", 0, "Which database?", Question),
				Quota:       says("quota", 1, `"2026-12-01T16:00:00+01:00"`, "@RESET@"),
				RateLimited: says("rate_limited", 1, "1787520600", "@RESET@"), Auth: says("auth", 1),
			},
		},
	}
}
