package transcript_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"orch/internal/testagent"
	"orch/internal/transcript"
)

// of reads what is written here line by line.
func of(t *testing.T, f transcript.Format, lines ...string) transcript.Said {
	t.Helper()
	said, err := transcript.Read(f, strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestParser_IsTheSameForAnySplit(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			names := testagent.Names(t, string(f))
			rapid.Check(t, func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "name")
				cut := transcript.New(f)
				for rest := testagent.Recorded(t, string(f), name); len(rest) > 0; {
					n := rapid.IntRange(1, min(len(rest), 700)).Draw(rt, "n")
					if took, err := cut.Write(rest[:n]); took != n || err != nil {
						rt.Fatalf("took %d of %d bytes: %v", took, n, err)
					}
					rest = rest[n:]
				}
				cut.Finish()
				if whole := read(t, f, name); !reflect.DeepEqual(cut.Said(), whole) {
					rt.Fatalf("in pieces: %+v\nwhole: %+v", cut.Said(), whole)
				}
			})
		})
	}
}

func TestParser_KeepsATornLineForTheNextWrite(t *testing.T) {
	t.Parallel()
	p := transcript.New(transcript.Codex)
	_, _ = io.WriteString(p, `{"type":"thread.started","thread_`)
	if p.Changed() || p.Said().SessionID != "" {
		t.Error("half a line has been understood")
	}
	_, _ = io.WriteString(p, `id":"t1"}`)
	if p.Said().SessionID != "" {
		t.Error("a line has been taken for whole before its newline")
	}
	p.Finish()
	if got := p.Said().SessionID; got != "t1" {
		t.Errorf("session %q at the end", got)
	}
}

func TestParser_TellsWhenSomethingChanged(t *testing.T) {
	t.Parallel()
	p := transcript.New(transcript.Codex)
	_, _ = io.WriteString(p, `{"type":"thread.started","thread_id":"t1"}`+"\n")
	if !p.Changed() {
		t.Error("a session is no change")
	}
	_, _ = io.WriteString(p, `{"type":"of.tomorrow"}`+"\nwords\n\n")
	if p.Changed() {
		t.Error("what isn't understood is a change")
	}
	if got := p.Said().Lines; got != 3 {
		t.Errorf("%d lines, want 3: empty ones don't count", got)
	}
}

func TestParser_HearsNothingWithoutAFormat(t *testing.T) {
	t.Parallel()
	for _, f := range []transcript.Format{transcript.None, "of-tomorrow"} {
		said := of(t, f, `{"type":"thread.started","thread_id":"t1"}`, `{"orch":{"status":"failed"}}`)
		if !reflect.DeepEqual(said, transcript.Said{}) {
			t.Errorf("format %q: %+v", f, said)
		}
	}
}

func TestParser_SharesNothing(t *testing.T) {
	t.Parallel()
	p := transcript.New(transcript.OpenCode)
	_, _ = p.Write(testagent.Recorded(t, "opencode", "rejected"))
	first := p.Said()
	_, _ = p.Write(testagent.Recorded(t, "opencode", "ok"))
	_, _ = io.WriteString(p, `{"type":"done","rejected":["edit"]}`+"\n")
	if *first.CostUSD != 0.025 || !reflect.DeepEqual(first.Denied, []string{"bash"}) {
		t.Errorf("what was said has changed afterwards: %v %v", *first.CostUSD, first.Denied)
	}
}

// A tool that prints a file of 9 MB does it in one line; the events around it count, and memory stays small.
func TestParser_SkipsLongValues(t *testing.T) { //nolint:paralleltest // counts the memory of the process
	p := transcript.New(transcript.Claude)
	_, _ = io.WriteString(p, `{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t1","name":"Read"}]}}`+"\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = io.WriteString(p, `{"type":"user","message":{"content":[{"type":"tool_result","content":"`)
	chunk := bytes.Repeat([]byte(`{\"type\":\"result\",\"is_error\":true}\n`), 1000)
	for range 9_000_000 / len(chunk) {
		_, _ = p.Write(chunk)
	}
	_, _ = io.WriteString(p, `","tool_use_id":"t1"}]}}`+"\n")
	runtime.ReadMemStats(&after)
	said := p.Said()
	if said.ToolsOpen != 0 || said.Bad != 0 || said.End != transcript.EndNone {
		t.Errorf("after a long result: %+v", said)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("9 MB took %d bytes of memory", used)
	}
}

func TestParser_DropsALineThatIsTooLong(t *testing.T) {
	t.Parallel()
	p := transcript.New(transcript.Codex)
	_, _ = io.WriteString(p, `{"type":"thread.started","x":"`)
	_, _ = p.Write(bytes.Repeat([]byte("x"), 10_000_000))
	_, _ = io.WriteString(p, `","thread_id":"t1"}`+"\n"+`{"type":"turn.started"}`+"\n")
	if said := p.Said(); said.Bad != 1 || said.SessionID != "" || said.Lines != 2 {
		t.Errorf("after a line of more than 10 MB: %+v", said)
	}
}

func TestParser_DropsALineOfTooMuchThatIsWanted(t *testing.T) {
	t.Parallel()
	block := `{"type":"tool_use","id":"x","name":"` + strings.Repeat("n", 1000) + `"},`
	line := `{"type":"assistant","message":{"content":[` + strings.Repeat(block, 300) + `{"type":"text"}]}}`
	if said := of(t, transcript.Claude, line); said.Bad != 1 || said.Begun {
		t.Errorf("%+v", said)
	}
}

func TestParser_KeepsTheEndOfALongMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 8 << 10, 20 << 10, 40 << 10, 100 << 10, 3 << 20} {
		message := strings.Repeat("wört\\\"\\u00e4 ", size/12) + `\n{\"orch\":{\"status\":\"needs_input\",\"question\":\"Which?\"}}`
		said := of(t, transcript.Claude, `{"type":"result","subtype":"success","is_error":false,"result":"`+message+`"}`)
		if said.Report == nil || said.Report.Question != "Which?" || said.Bad != 0 {
			t.Errorf("message of %d bytes: %+v", size, said.Report)
		}
	}
}

// The end that is kept of a message may begin within a line: it is no line of its own.
func TestParser_TakesNoTornLineForOrchs(t *testing.T) {
	t.Parallel()
	for shift := range 12 {
		message := strings.Repeat("x", 60<<10+shift*100) + strings.Repeat(`{\"orch\":{\"status\":\"failed\"}}`, 1200)
		said := of(t, transcript.Claude, `{"type":"result","subtype":"success","is_error":false,"result":"`+message+`"}`)
		if said.Report != nil {
			t.Fatalf("shift %d: %+v", shift, said.Report)
		}
	}
}

func TestParser_IgnoresUnknownEventsAndFields(t *testing.T) {
	t.Parallel()
	for _, f := range formats() {
		said := of(
			t, f, `{"type":"of.tomorrow","data":{"a":[1,{"b":null}]}}`, `{}`, `{"type":["x"],"item":7,"message":[[{"id":1}]],"part":"p"}`,
			`{"type":"system","subtype":"x","message":{"content":{"a":1}},"usage":{"input_tokens":1e400}}`, `{"orch":"x"}`, `[1,2]`, `null`,
		)
		want := transcript.Said{Lines: 7}
		if !reflect.DeepEqual(said, want) {
			t.Errorf("%s: %+v", f, said)
		}
	}
}

func TestParser_CountsWhatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{`, `{"type":"turn.started"`, `{"type":}`, `{"type" "x"}`, `{"type":"turn.started"} x`, `{x}`, `{"type":"x",}}`, `{"type":tru}`,
		`{"type":"x"]`, `{"type":"\q"}`, `{"type":` + strings.Repeat("1", 100) + `}`,
	} {
		if said := of(t, transcript.Codex, line, `{"type":"thread.started","thread_id":"t1"}`); said.Bad != 1 || said.SessionID != "t1" {
			t.Errorf("%s: %d bad, session %q", line, said.Bad, said.SessionID)
		}
		if said := of(t, transcript.Command, line); said.Bad != 0 {
			t.Errorf("%s is counted, though any program may print it", line)
		}
	}
}

func TestParser_ReadsTwoObjectsOfALine(t *testing.T) {
	t.Parallel()
	said := of(t, transcript.Codex, ` {"type":"thread.started","thread_id":"t1"} {"type":"turn.failed","error":{"message":"no"}}`+"\r")
	if said.SessionID != "t1" || said.End != transcript.EndError || said.Bad != 0 || said.Lines != 2 {
		t.Errorf("%+v", said)
	}
}

func TestParser_TextsAreClean(t *testing.T) {
	t.Parallel()
	said := of(t, transcript.Codex, "{\"type\":\"turn.failed\",\"error\":{\"message\":\"a\\u0000b\x00c\xffd\\ud800e\x1b[31m\\u001b[0mf\\ng\\t<&>\"}}")
	const want = "ab cde [31m[0mf\ng\t<&>"
	if said.Bad != 0 || said.Error == nil || said.Error.Text != want {
		t.Errorf("%+v, want %q", said.Error, want)
	}
	said = of(t, transcript.OpenCode, "\x1b[1m! permission\x00 requested: b\xffash (ls); auto-rejecting\x1b[")
	if !reflect.DeepEqual(said.Denied, []string{"bash"}) {
		t.Errorf("denied: %q", said.Denied)
	}
}

// Whatever is said, said.json stays small.
func TestSaid_IsSmallWhenEncoded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`<&>\u2028`, 4000)
	lines := []string{
		`{"type":"system","subtype":"init","session_id":"` + long + `","model":"` + long + `"}`,
		`{"type":"assistant","message":{"content":[{"type":"tool_use","id":"x","name":"` + long + `"}]}}`,
		`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","rateLimitType":"` + long + `"}}`,
	}
	var denied []string
	for i := range 100 {
		denied = append(denied, fmt.Sprintf(`{"tool_name":"%d%s"}`, i, long[:1000]))
	}
	ends := `{"type":"result","subtype":"success","result":"` + long + `\n{\"orch\":{\"status\":\"failed\",\"summary\":\"` +
		strings.Repeat(`<\u2028`, 1000) + `\",\"question\":\"` + strings.Repeat("&", 2500) + `\"}}","permission_denials":[` +
		`{"tool_name":"AskUserQuestion","tool_input":{"questions":[{"question":"` + long + `"}]}},` + strings.Join(denied, ",") + `]}`
	lines = append(lines, ends, lines[2], `{"type":"system","subtype":"api_retry","error":"`+long+`"}`)
	said := of(t, transcript.Claude, lines...)
	raw, err := json.Marshal(said)
	if err != nil || len(raw) > 32<<10 {
		t.Errorf("%d bytes: %v", len(raw), err)
	}
	if said.Report == nil || said.Report.Question == "" || said.Question == "" || len(said.Denied) != 16 || said.Limit == nil || said.Error == nil {
		t.Errorf("something is missing: %s", raw)
	}
}

func TestRead_SaysWhatItHasReadBeforeAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk is gone")
	said, err := transcript.Read(transcript.Codex, io.MultiReader(
		strings.NewReader(`{"type":"thread.started","thread_id":"t1"}`+"\n"), iotest.ErrReader(broken),
	))
	if !errors.Is(err, broken) || said.SessionID != "t1" {
		t.Errorf("%+v, %v", said, err)
	}
}
