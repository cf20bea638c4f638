package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"orch/internal/process"
	"orch/internal/process/runtest"
	"orch/internal/transcript"
)

// Lines of claude.
const (
	claudeBegins = `echo '{"type":"system","subtype":"init","session_id":"se-ss-ion","model":"m"}'
`
	claudeTool = `echo '{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash"}]},"session_id":"se-ss-ion"}'
`
	claudeToolEnds = `echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"x"}]},"session_id":"se-ss-ion"}'
`
	claudeEnds = `echo '{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"all done","session_id":"se-ss-ion"}'
`
)

func TestStallWaitsForATool(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins+claudeTool+"sleep 9\n"+claudeToolEnds+claudeEnds,
		claude, stallTimeout(7*time.Second), toolStallTimeout(time.Hour))
	if exit := runtest.Wait(t, r); exit.Why != process.WhyExited {
		t.Fatal(runtest.Show(exit))
	}
}

func TestStallOfATool(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins+claudeTool+"exec sleep 1000",
		claude, stallTimeout(time.Hour), toolStallTimeout(50*time.Millisecond))
	if exit := runtest.Wait(t, r); exit.Why != process.WhyStalled {
		t.Fatal(runtest.Show(exit))
	}
}

func TestStallAfterTheToolEnded(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins+claudeTool+claudeToolEnds+"exec sleep 1000",
		claude, stallTimeout(6*time.Second), toolStallTimeout(time.Hour))
	if exit := runtest.Wait(t, r); exit.Why != process.WhyStalled {
		t.Fatal(runtest.Show(exit))
	}
	if said, err := r.Said(); err != nil || said.ToolsOpen != 0 || said.Tool != "Bash" {
		t.Fatalf("%+v, %v", said, err)
	}
}

func TestSaidOutlivesACappedLog(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins+"head -c 1000000 /dev/zero | tr '\\0' '\\n'\n"+claudeEnds, claude, logCap(8<<10))
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if bytes.Contains([]byte(runtest.Output(t, r)), []byte("init")) {
		t.Fatal("the log holds everything")
	}
	said, err := r.Said()
	if err != nil || said.SessionID != "se-ss-ion" || said.Model != "m" || said.Summary != "all done" || said.End != transcript.EndOK {
		t.Fatalf("%+v, %v", said, err)
	}
}

func TestSaidWhileItRuns(t *testing.T) {
	t.Parallel()
	r, work := runtest.Start(t, claudeBegins+claudeTool+"until [ -e go ]; do sleep 0.01; done\n"+claudeToolEnds+claudeEnds, claude)
	said := func() transcript.Said {
		said, err := r.Said()
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	runtest.Eventually(t, "session and tool", func() bool {
		said := said()
		return said.SessionID == "se-ss-ion" && said.ToolsOpen == 1 && said.End == transcript.EndNone
	})
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if said := said(); said.End != transcript.EndOK || said.ToolsOpen != 0 {
		t.Fatalf("%+v", said)
	}
}

// TestSaidWithoutAnEndOfLine tells that what came last counts, however it ends.
func TestSaidWithoutAnEndOfLine(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins+`printf %s "$(`+claudeEnds+`)"`, claude)
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if said, err := r.Said(); err != nil || said.End != transcript.EndOK {
		t.Fatalf("%+v, %v", said, err)
	}
}

func TestSaidHoldsNoSecrets(t *testing.T) {
	t.Parallel()
	dir, _ := runtest.Create(t, claudeBegins, claude)
	r := runtest.LaunchWith(t, dir, runtest.Shim(), process.Bundle{
		Env: runtest.Env(), Secrets: []process.Secret{{Name: "KEY", Value: "se-ss-ion"}},
	})
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if said, err := r.Said(); err != nil || said.SessionID != "[KEY]" {
		t.Fatalf("%+v, %v", said, err)
	}
}

func TestNothingSaidWithoutAFormat(t *testing.T) {
	t.Parallel()
	r, _ := runtest.Start(t, claudeBegins)
	runtest.WantCode(t, runtest.Wait(t, r), 0)
	if said, err := r.Said(); err != nil || said.Lines != 0 {
		t.Fatalf("%+v, %v", said, err)
	}
	if _, err := os.Stat(filepath.Join(r.Spec().RunID, "said.json")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
}

func TestToolMarksInTextDontCount(t *testing.T) {
	t.Parallel()
	o, err := newOutput(t.TempDir(), process.Spec{Format: transcript.Claude})
	if err != nil {
		t.Fatal(err)
	}
	line := `{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"Bash\"}"}]}}` + "\n" +
		`{"type": "tool_use", "id": "t1", "name": "Bash"}` + "\n"
	if _, err := o.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	if _, _, tools := o.look(); tools {
		t.Error("a text is taken for a tool")
	}
	said, _, err := o.close()
	if err != nil || said.Turns != 1 || said.Bad != 0 {
		t.Fatalf("%+v, %v", said, err)
	}
}

// stumbler is a parser that fails at a word.
type stumbler struct{ listener }

func (s stumbler) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("stone")) {
		panic("stumbled")
	}
	return s.listener.Write(b)
}

func TestParserPanicLeavesTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o, err := newOutput(dir, process.Spec{Format: transcript.Claude})
	if err != nil {
		t.Fatal(err)
	}
	o.parser = stumbler{o.parser}
	write := func(text string) {
		t.Helper()
		if n, err := o.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	write(`{"type":"system","subtype":"init","session_id":"s1"}` + "\n" +
		`{"type":"assistant","message":{"id":"m1","content":[{"type":"tool_use","id":"t1","name":"Bash"}]}}` + "\n")
	if _, _, tools := o.look(); !tools {
		t.Fatal("no tool")
	}
	if said, ok := o.say(); !ok || said.ToolsOpen != 1 {
		t.Fatalf("%+v, %v", said, ok)
	}
	write("a stone\n")
	if unsaid, _, tools := o.look(); !unsaid || tools {
		t.Fatal("a parser that is gone waits for a tool")
	}
	write("more\n")
	said, spoke, err := o.close()
	if err != nil || !spoke || said.SessionID != "s1" || said.Bad != 1 || said.ToolsOpen != 0 {
		t.Fatalf("%+v, %v, %v", said, spoke, err)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || !bytes.HasSuffix(raw, []byte("a stone\nmore\n")) {
		t.Fatalf("%q, %v", raw, err)
	}
}
