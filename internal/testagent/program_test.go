package testagent_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"orch/internal/testagent"
	"orch/internal/transcript"
)

// start runs a program in a directory.
func start(t *testing.T, p *testagent.Program, dir, prompt string, args ...string) (output []byte, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.Path, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(prompt)
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output, cmd.ProcessState.ExitCode()
}

func said(t *testing.T, format string, output []byte) transcript.Said {
	t.Helper()
	said, err := transcript.Read(transcript.Format(format), bytes.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func programs() []string {
	return []string{"claude", "codex", "gemini", "opencode", "aider", "command"}
}

func TestInstall_EachProgramSpeaksItsFormat(t *testing.T) {
	t.Parallel()
	for _, format := range programs() {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			for kind, check := range map[testagent.Kind]func(transcript.Said) bool{
				testagent.Works: func(s transcript.Said) bool { return s.Error == nil && s.Limit == nil },
				testagent.Asks: func(s transcript.Said) bool {
					return s.Question == testagent.Question || s.Report != nil && s.Report.Question == testagent.Question
				},
				testagent.Quota: func(s transcript.Said) bool { return s.Limited() || s.Report != nil && s.Report.Status == "quota" },
				testagent.RateLimited: func(s transcript.Said) bool {
					return s.Limited() || s.Report != nil && s.Report.Status == "rate_limited"
				},
				testagent.Auth: func(s transcript.Said) bool { return s.Error != nil || s.Report != nil && s.Report.Status == "auth" },
			} {
				p := testagent.Install(t, t.TempDir(), format, testagent.Agent{
					Format: format, Turns: []testagent.Turn{{Kind: kind, Sleep: time.Millisecond}},
				})
				output, _ := start(t, p, t.TempDir(), "do it")
				if got := said(t, format, output); !check(got) || got.Bad > 0 {
					t.Errorf("%s: %+v of\n%s", kind, got, output)
				}
			}
		})
	}
}

func TestInstall_ResumesOnlySessionsThatAreThere(t *testing.T) {
	t.Parallel()
	for format, args := range map[string][]string{
		"claude": {"-p", "--resume"}, "codex": {"exec", "--json", "resume"}, "gemini": {"--resume"}, "opencode": {"run", "-s"},
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			p := testagent.Install(t, t.TempDir(), format, testagent.Agent{Format: format, Turns: []testagent.Turn{{Kind: testagent.Works}}})
			output, code := start(t, p, t.TempDir(), "first")
			first := said(t, format, output)
			if code != 0 || first.SessionID == "" {
				t.Fatalf("code %d: %s", code, output)
			}
			output, _ = start(t, p, t.TempDir(), "again", append(args, first.SessionID)...)
			if got := said(t, format, output); got.SessionID != first.SessionID || got.End != transcript.EndOK {
				t.Errorf("resumed: %+v", got)
			}
			output, _ = start(t, p, t.TempDir(), "again", append(args, "unknown")...)
			if got := said(t, format, output); !got.SessionLost {
				t.Errorf("an unknown session: %+v of\n%s", got, output)
			}
			calls := p.Calls(t)
			if len(calls) != 3 || calls[1].Prompt != "again" || calls[1].Session != first.SessionID || calls[2].Session != "" {
				t.Errorf("%+v", calls)
			}
		})
	}
}

func TestInstall_SumsOfASessionGrow(t *testing.T) {
	t.Parallel()
	p := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{{Kind: testagent.Works}}})
	output, _ := start(t, p, t.TempDir(), "")
	first := said(t, "claude", output)
	output, _ = start(t, p, t.TempDir(), "", "--resume", first.SessionID)
	second := said(t, "claude", output)
	for i, got := range []transcript.Said{first, second} {
		runs := int64(i + 1)
		if want := float64(runs*testagent.ClaudeMicroUSD) / 1e6; got.CostUSD == nil || *got.CostUSD != want || !got.Cumulative {
			t.Errorf("after run %d: cost %v, want %v", runs, got.CostUSD, want)
		}
		if got.Tokens.Input != runs*testagent.ClaudeInput || got.Tokens.Output != runs*testagent.ClaudeOutput {
			t.Errorf("after run %d: %+v", runs, got.Tokens)
		}
	}
}

func TestInstall_TakesTurns(t *testing.T) {
	t.Parallel()
	p := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{
		{Kind: testagent.NoResult},
		{Print: "crashed", Code: 3, Work: `echo "$call" >made`},
		{Kind: testagent.Works, Replace: []string{`"result":"done"`, `"result":"all of it"`}},
	}})
	dir := t.TempDir()
	output, code := start(t, p, dir, "")
	if got := said(t, "claude", output); code != 0 || got.End != transcript.EndNone {
		t.Errorf("first: code %d, %+v", code, got)
	}
	output, code = start(t, p, dir, "")
	if got := said(t, "claude", output); code != 3 || got.Subtype != "error_during_execution" {
		t.Errorf("second: code %d, %+v", code, got)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Errorf("it didn't work: %v", err)
	}
	for range 2 {
		output, _ = start(t, p, dir, "")
		if got := said(t, "claude", output); got.Summary != "all of it" {
			t.Errorf("then: %+v", got)
		}
	}
}

func TestInstall_TurnsOfEachDirectory(t *testing.T) {
	t.Parallel()
	p := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{
		Format: "claude", PerDir: true, Turns: []testagent.Turn{{Kind: testagent.NoResult}, {Kind: testagent.Works}},
	})
	for _, dir := range []string{t.TempDir(), t.TempDir()} {
		for _, want := range []transcript.End{transcript.EndNone, transcript.EndOK} {
			output, _ := start(t, p, dir, "")
			if got := said(t, "claude", output); got.End != want {
				t.Errorf("end %q, want %q", got.End, want)
			}
		}
	}
}

func TestInstall_ALimitLastsUntilItsReset(t *testing.T) {
	t.Parallel()
	p := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{
		{Kind: testagent.Quota, Lasts: time.Hour}, {Kind: testagent.Works},
	}})
	before := time.Now().Truncate(time.Second)
	var resets []time.Time
	for range 2 {
		output, code := start(t, p, t.TempDir(), "")
		got := said(t, "claude", output)
		if code != 1 || got.Limit == nil {
			t.Fatalf("code %d: %+v", code, got)
		}
		resets = append(resets, got.Limit.ResetAt)
	}
	if !resets[0].Equal(resets[1]) || resets[0].Before(before.Add(time.Hour)) {
		t.Errorf("resets at %v, the first start was after %v", resets, before)
	}
	over := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{
		{Kind: testagent.Quota, Lasts: time.Nanosecond}, {Kind: testagent.Works},
	}})
	output, _ := start(t, over, t.TempDir(), "")
	if got := said(t, "claude", output); got.End != transcript.EndOK {
		t.Errorf("after the reset: %+v", got)
	}
}

func TestInstall_HoldsBetweenItsParts(t *testing.T) {
	t.Parallel()
	hold := filepath.Join(t.TempDir(), "go on")
	p := testagent.Install(t, t.TempDir(), "claude", testagent.Agent{Format: "claude", Turns: []testagent.Turn{
		{Kind: testagent.Works, InTool: true, Hold: hold},
	}})
	cmd := exec.CommandContext(t.Context(), p.Path)
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	parser := transcript.New(transcript.Claude)
	buf := make([]byte, 4096)
	for parser.ToolsOpen() == 0 {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = parser.Write(buf[:n])
	}
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest := new(bytes.Buffer)
	_, _ = rest.ReadFrom(out)
	_, _ = parser.Write(rest.Bytes())
	if err := cmd.Wait(); err != nil || parser.Said().End != transcript.EndOK || parser.ToolsOpen() != 0 {
		t.Errorf("%v: %+v", err, parser.Said())
	}
}

func TestProgram_CallsTellHowItWasStarted(t *testing.T) {
	t.Parallel()
	p := testagent.Install(t, t.TempDir(), "aider", testagent.Agent{Format: "aider", Turns: []testagent.Turn{{Kind: testagent.Works}}})
	dir := t.TempDir()
	file := filepath.Join(dir, "message")
	if err := os.WriteFile(file, []byte("say hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if calls := p.Calls(t); len(calls) != 0 {
		t.Errorf("before any: %+v", calls)
	}
	start(t, p, dir, "", "--message-file", file, "a b\nc", "")
	start(t, p, dir, "")
	calls := p.Calls(t)
	if len(calls) != 2 {
		t.Fatalf("%+v", calls)
	}
	if want := []string{"--message-file", file, "a b\nc", ""}; !reflect.DeepEqual(calls[0].Args, want) {
		t.Errorf("arguments %q, want %q", calls[0].Args, want)
	}
	if calls[0].Prompt != "say hello" || calls[0].Dir != dir || len(calls[0].Env) == 0 || len(calls[1].Args) != 0 {
		t.Errorf("%+v", calls)
	}
}
