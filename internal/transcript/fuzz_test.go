package transcript_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"orch/internal/testagent"
	"orch/internal/transcript"
)

// sound is what holds of everything that is said, whatever was printed.
func sound(t interface{ Fatalf(string, ...any) }, said transcript.Said) {
	raw, err := json.Marshal(said)
	if err != nil || len(raw) > 32<<10 {
		t.Fatalf("%d bytes of JSON: %v", len(raw), err)
	}
	var again transcript.Said
	if err := json.Unmarshal(raw, &again); err != nil || !utf8.Valid(raw) || bytes.Contains(raw, []byte(`\u0000`)) {
		t.Fatalf("not what can be kept: %s: %v", raw, err)
	}
	if said.ToolsOpen < 0 || said.ToolsOpen > 64 || said.Turns < 0 || said.Tokens.Input < 0 || said.Tokens.Output < 0 || said.Tokens.Cached < 0 {
		t.Fatalf("counts: %s", raw)
	}
}

func FuzzClaude(f *testing.F)   { fuzz(f, transcript.Claude) }
func FuzzCodex(f *testing.F)    { fuzz(f, transcript.Codex) }
func FuzzGemini(f *testing.F)   { fuzz(f, transcript.Gemini) }
func FuzzOpenCode(f *testing.F) { fuzz(f, transcript.OpenCode) }
func FuzzAider(f *testing.F)    { fuzz(f, transcript.Aider) }
func FuzzCommand(f *testing.F)  { fuzz(f, transcript.Command) }

// fuzz reads foreign output whole, in pieces, and with lines in between that say nothing.
func fuzz(f *testing.F, format transcript.Format) {
	f.Helper()
	for _, name := range testagent.Names(f, string(format)) {
		f.Add(testagent.Recorded(f, string(format), name), uint8(3))
	}
	f.Fuzz(func(t *testing.T, output []byte, piece uint8) {
		whole, err := transcript.Read(format, bytes.NewReader(output))
		if err != nil {
			t.Fatal(err)
		}
		sound(t, whole)
		cut := transcript.New(format)
		for rest := output; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			_, _ = cut.Write(rest[:n])
			rest = rest[n:]
		}
		cut.Finish()
		if got := cut.Said(); !reflect.DeepEqual(got, whole) {
			t.Fatalf("in pieces %+v\nwhole %+v", got, whole)
		}
		if format == transcript.Aider { // a line of words is a word of the agent
			return
		}
		mixed, _ := transcript.Read(format, bytes.NewReader(bytes.ReplaceAll(output, []byte("\n"), []byte("\n{\"type\":\"x\"}\nwords\n"))))
		mixed.Lines = whole.Lines
		if !reflect.DeepEqual(mixed, whole) {
			t.Fatalf("with lines between %+v\nwithout %+v", mixed, whole)
		}
	})
}
