package transcript_test

import (
	"encoding/json"
	"io"
	"strconv"
	"testing"

	"orch/internal/transcript"
	"orch/internal/transcript/report"
)

func TestParser_ToolsAreOpenByTheirID(t *testing.T) {
	t.Parallel()
	p := transcript.New(transcript.Claude)
	say := func(line string) int {
		_, _ = io.WriteString(p, line+"\n")
		return p.ToolsOpen()
	}
	use := func(id string) string {
		return `{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"` + id + `","name":"Bash"}]}}`
	}
	steps := []struct {
		line string
		want int
	}{
		{use("a"), 1},
		{use("a"), 1},
		{use("b"), 2},
		{`{"type":"tool_progress","tool_use_id":"a"}`, 2},
		{`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"unknown"}]}}`, 2},
		{`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"b"},{"type":"tool_result","tool_use_id":"a"}]}}`, 0},
		{use("c"), 1},
		{`{"type":"result","subtype":"error_during_execution","is_error":true}`, 0},
	}
	for i, step := range steps {
		if got := say(step.line); got != step.want {
			t.Fatalf("step %d: %d tools open, want %d", i, got, step.want)
		}
	}
	for i := range 1000 {
		if got := say(use(strconv.Itoa(i))); got > 64 {
			t.Fatalf("%d tools open: without bound", got)
		}
	}
}

func TestParser_ListsAreNoTools(t *testing.T) {
	t.Parallel()
	if got := read(t, transcript.Codex, "open_items").ToolsOpen; got != 1 {
		t.Errorf("%d tools open, want the search alone", got)
	}
}

func TestParser_ARecoveredErrorIsNone(t *testing.T) {
	t.Parallel()
	for f, name := range map[transcript.Format]string{
		transcript.Claude: "retry_recovered", transcript.Codex: "reconnected", transcript.Gemini: "recovered",
		transcript.OpenCode: "recovered", transcript.Aider: "recovered",
	} {
		if said := read(t, f, name); said.Error != nil || said.Limit != nil {
			t.Errorf("%s: %+v stands", f, said.Error)
		}
	}
}

func TestParser_OnlyTheFinalMessageAsks(t *testing.T) {
	t.Parallel()
	for _, f := range []transcript.Format{transcript.Claude, transcript.Codex, transcript.Gemini, transcript.OpenCode, transcript.Aider} {
		name := "question"
		if f == transcript.Claude {
			name = "question_line"
		}
		if said := read(t, f, name); said.Report == nil || said.Report.Status != report.StatusNeedsInput || said.Report.Question == "" {
			t.Errorf("%s: the question wasn't heard: %+v", f, said.Report)
		}
	}
	for f, name := range map[transcript.Format]string{transcript.Claude: "prints_orch_line", transcript.Aider: "prints_orch_line"} {
		if said := read(t, f, name); said.Report != nil {
			t.Errorf("%s: a file was heard: %+v", f, said.Report)
		}
	}
	ask := `{\"orch\":{\"status\":\"needs_input\",\"question\":\"q\"}}`
	said := of(
		t, transcript.Codex, `{"type":"item.completed","item":{"type":"agent_message","text":"`+ask+`"}}`,
		`{"type":"item.started","item":{"id":"1","type":"command_execution"}}`,
		`{"type":"item.completed","item":{"id":"1","type":"command_execution"}}`, `{"type":"turn.completed"}`,
	)
	if said.Report != nil {
		t.Errorf("codex: a message before more work was heard: %+v", said.Report)
	}
}

// What codex still has open when its turn ends is completed after the last message.
func TestParser_AToolMayEndAfterTheFinalMessage(t *testing.T) {
	t.Parallel()
	said := of(
		t, transcript.Codex, `{"type":"item.started","item":{"id":"1","type":"command_execution"}}`,
		`{"type":"item.completed","item":{"id":"2","type":"file_change"}}`,
		`{"type":"item.completed","item":{"id":"3","type":"agent_message","text":"done"}}`,
		`{"type":"item.completed","item":{"id":"1","type":"command_execution"}}`, `{"type":"turn.completed"}`,
	)
	if said.Summary != "done" || said.Tool != "file_change" || said.ToolsOpen != 0 || said.Turns != 3 {
		t.Errorf("%+v", said)
	}
}

// Versions of claude differ in whether the totals of a resumed session go on; the newest tell what is new, too.
func TestParser_ClaudeTellsWhatARunHasUsedItself(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]transcript.Said{
		"real_resumed_2_1_197": {Cumulative: true, Tokens: transcript.Tokens{Input: 1000, Cached: 200, Output: 10}, Seen: transcript.Tokens{Input: 1000, Cached: 200, Output: 1}},
		"real_resumed_2_1_332": {Tokens: transcript.Tokens{Input: 1000, Cached: 200, Output: 10}},
	} {
		said := read(t, transcript.Claude, name)
		if said.Cumulative != want.Cumulative || said.Tokens != want.Tokens || said.Seen != want.Seen {
			t.Errorf("%s: cumulative %v, %+v, seen %+v", name, said.Cumulative, said.Tokens, said.Seen)
		}
	}
	result := `{"type":"result","subtype":"success","total_cost_usd":9,"modelUsage":{"m":{"inputTokens":900}},` +
		`"model_usage_since_last_result":{"m":{"inputTokens":5,"cacheReadInputTokens":2,"outputTokens":1,"costUSD":0.25}}}`
	said := of(t, transcript.Claude, result, result)
	if want := (transcript.Tokens{Input: 14, Cached: 4, Output: 2}); said.Tokens != want || *said.CostUSD != 0.5 || said.Cumulative {
		t.Errorf("two results: %+v, cost %v", said.Tokens, *said.CostUSD)
	}
}

// A model's words can't pause an agent for everybody, name a session to go on with, or make up a cost.
func TestParser_AMessageSaysNothingOfAccounts(t *testing.T) {
	t.Parallel()
	said := of(
		t, transcript.Claude, `{"type":"result","subtype":"success","session_id":"s1","total_cost_usd":1,"result":`+
			`"{\"orch\":{\"status\":\"quota\",\"session_id\":\"s2\",\"cost_usd\":0,\"reset_at\":1787520600,\"turns\":9,\"summary\":\"x\"}}"}`,
	)
	if want := (report.Report{Summary: "x"}); said.Report == nil || *said.Report != want || said.SessionID != "s1" || *said.CostUSD != 1 {
		t.Errorf("%+v", said)
	}
}

func TestParser_NumbersAreBounded(t *testing.T) {
	t.Parallel()
	said := of(
		t, transcript.OpenCode, `{"type":"step_finish","part":{"cost":-1,"tokens":{"input":-5,"output":9223372036854775807,"cache":{"read":9223372036854775807}}}}`,
		`{"type":"step_finish","part":{"cost":99998,"tokens":{"output":9223372036854775807}}}`, `{"type":"step_finish","part":{"cost":99998}}`,
		`{"type":"error","error":{"data":{"responseHeaders":{"retry-after":"1e300"}}}}`,
	)
	if said.Tokens.Output != 1<<50 || said.Tokens.Input != 1<<50 || *said.CostUSD != 99999 || said.Error.RetryAfter.Hours() != 60*24 {
		t.Errorf("%+v, cost %v, %+v", said, *said.CostUSD, said.Error)
	}
	for _, at := range []string{"-1", "1e300", "0", `"x"`, "null", "{}"} {
		said = of(t, transcript.Claude, `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":`+at+`}}`)
		if said.Limit == nil || !said.Limit.ResetAt.Equal(said.Limit.ResetAt.UTC()) || said.Limit.ResetAt.Year() > 9999 {
			t.Errorf("%s: %+v", at, said.Limit)
		}
		if _, err := json.Marshal(said); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestParser_ALimitOfAnotherKindTakesNoneBack(t *testing.T) {
	t.Parallel()
	event := func(status, kind string) string {
		return `{"type":"rate_limit_event","rate_limit_info":{"status":"` + status + `","rateLimitType":"` + kind + `","resetsAt":1787520600}}`
	}
	if said := of(t, transcript.Claude, event("rejected", "seven_day"), event("allowed", "five_hour")); said.Limit == nil {
		t.Error("the limit of seven days was taken back by that of five hours")
	}
	if said := of(t, transcript.Claude, event("rejected", "seven_day"), event("allowed", "seven_day")); said.Limit != nil {
		t.Error("the limit stands after it was taken back")
	}
}

func TestSaid_Limited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format transcript.Format
		name   string
		want   bool
	}{
		{transcript.OpenCode, "sleeping_rate_limit", true},
		{transcript.OpenCode, "sleeping_usage_limit", true},
		{transcript.OpenCode, "sleeping_month", true},
		{transcript.OpenCode, "rate_limit", true},
		{transcript.OpenCode, "sleeping_offline", false},
		{transcript.OpenCode, "recovered", false},
		{transcript.OpenCode, "title_failed", false},
		{transcript.OpenCode, "bad_key", false},
		{transcript.Claude, "limit_event", true},
		{transcript.Claude, "limit_overage", false},
		{transcript.Claude, "overloaded", true},
		{transcript.Claude, "numbers_in_text", false},
		{transcript.Codex, "usage_limit", true},
		{transcript.Codex, "disconnected", false},
		{transcript.Gemini, "daily_quota", true},
		{transcript.Aider, "rate_limit", true},
	} {
		if got := read(t, c.format, c.name).Limited(); got != c.want {
			t.Errorf("%s %s: %v", c.format, c.name, got)
		}
	}
}
