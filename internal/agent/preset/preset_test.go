package preset_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"orch/internal/agent/outcome"
	"orch/internal/agent/preset"
	"orch/internal/process"
	"orch/internal/transcript"
)

const prompt = "Fix the bug\nin \"main.go\".\n"

func build(t *testing.T, e preset.Entry, session string) preset.Command {
	t.Helper()
	c, err := preset.Build(e, preset.Start{Prompt: []byte(prompt), PromptFile: "/run/prompt", Session: session})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestArgvOfEachPreset(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"aider": "aider --message-file /run/prompt --yes-always --no-stream --no-pretty --no-check-update --no-show-release-notes " +
			"--analytics-disable --no-detect-urls --no-suggest-shell-commands --no-gitignore --model m --extra",
		"claude":   "claude -p --output-format stream-json --verbose --permission-mode bypassPermissions --model m --extra",
		"codex":    `codex exec --json --skip-git-repo-check --color never --sandbox danger-full-access -c approval_policy="never" --model m --extra -`,
		"gemini":   "gemini --output-format stream-json --approval-mode yolo --skip-trust --model m --extra",
		"opencode": "opencode run --format json --auto --print-logs --log-level ERROR --model m --extra",
	}
	for _, name := range preset.Names() {
		if name == "command" {
			continue
		}
		got := build(t, preset.Entry{Preset: name, Model: "m", Args: []string{"--extra"}}, "")
		if name == "aider" { // within a script
			got.Argv = got.Argv[4:]
		}
		if line := strings.Join(got.Argv, " "); line != want[name] {
			t.Errorf("%s:\n%s, want\n%s", name, line, want[name])
		}
	}
}

func TestResumeArgv(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"claude": {"--resume", "s-1", "--extra"}, "codex": {"--extra", "resume", "s-1", "-"},
		"gemini": {"--resume", "s-1", "--extra"}, "opencode": {"--session", "s-1", "--extra"},
	} {
		e := preset.Entry{Preset: name, Args: []string{"--extra"}}
		got := build(t, e, "s-1").Argv
		if end := got[len(got)-len(want):]; !slices.Equal(end, want) || !e.CanResume() {
			t.Errorf("%s ends with %q, want %q", name, end, want)
		}
	}
	for session, want := range map[string]bool{"s-1": true, "": false, "--dangerous": false, "a b": false, strings.Repeat("x", 257): false} {
		if (preset.Entry{Preset: "claude"}).GoesOn(session) != want {
			t.Errorf("goes on with %q: %v", session, !want)
		}
	}
	for _, e := range []preset.Entry{{Preset: "aider"}, {Preset: "command", Command: preset.Template{Shell: "agent"}}, {Preset: "nope"}} {
		if e.CanResume() || e.GoesOn("s-1") {
			t.Errorf("%s resumes", e.Preset)
		}
	}
}

func TestBudgetAndTurnFlags(t *testing.T) {
	t.Parallel()
	got := build(t, preset.Entry{Preset: "claude", MaxTurns: 200, MaxCostUSD: new(4.5)}, "").Argv
	if line := strings.Join(got, " "); !strings.Contains(line, "--max-turns 200 --max-budget-usd 4.5") {
		t.Error(line)
	}
	// Others are looked after from outside.
	if _, err := preset.Build(preset.Entry{Preset: "codex", MaxCostUSD: new(4.5)}, preset.Start{}); err != nil {
		t.Error(err)
	}
}

func TestPromptNeverInArgv(t *testing.T) {
	t.Parallel()
	for _, name := range preset.Names() {
		e := preset.Entry{Preset: name}
		if name == "command" {
			e.Command = preset.Template{Argv: []string{"agent"}}
		}
		got := build(t, e, "")
		if strings.Contains(strings.Join(got.Argv, "\n"), "Fix the bug") {
			t.Errorf("%s: %q", name, got.Argv)
		}
		if given := string(got.Stdin); given != prompt && (name != "aider" || given != "") {
			t.Errorf("%s reads %q", name, given)
		}
	}
}

func TestAnotherProgramTakesThePlaceOfTheUsualOne(t *testing.T) {
	t.Parallel()
	template := preset.Template{Argv: []string{"npx", "codex@1"}}
	got := build(t, preset.Entry{Preset: "codex", Command: template}, "").Argv
	if !slices.Equal(got[:3], []string{"npx", "codex@1", "exec"}) {
		t.Errorf("%q", got)
	}
	if len(template.Argv) != 2 {
		t.Errorf("the entry became %q", template.Argv)
	}
}

func TestOwnCommandIsStartedAsWritten(t *testing.T) {
	t.Parallel()
	own := func(c preset.Template) preset.Entry { return preset.Entry{Preset: "command", Command: c} }
	got := build(t, own(preset.Template{Shell: "agent --yes | tee log"}), "s-1").Argv
	if !slices.Equal(got, []string{"sh", "-c", "agent --yes | tee log"}) {
		t.Errorf("%q", got)
	}
	resuming := own(preset.Template{Argv: []string{"agent", "--session={{session}}", "-v"}})
	if got := build(t, resuming, "").Argv; !slices.Equal(got, []string{"agent", "-v"}) {
		t.Errorf("a new session: %q", got)
	}
	if got := build(t, resuming, "s-1").Argv; !slices.Equal(got, []string{"agent", "--session=s-1", "-v"}) || !resuming.CanResume() {
		t.Errorf("an old session: %q", got)
	}
}

func TestBadEntriesAreRefused(t *testing.T) {
	t.Parallel()
	start := preset.Start{PromptFile: "/run/prompt"}
	for _, tt := range []struct {
		entry preset.Entry
		start preset.Start
		want  string
	}{
		{preset.Entry{Preset: "nope"}, start, `no preset is called "nope"; known: aider, claude, codex, command, gemini, opencode`},
		{preset.Entry{Preset: "aider", MaxTurns: 3}, start, "preset aider takes no max_turns"},
		{preset.Entry{Preset: "claude", MaxTurns: -3}, start, "above zero"},
		{preset.Entry{Preset: "claude", MaxCostUSD: new(0.0)}, start, "above zero"},
		{preset.Entry{Preset: "claude", Command: preset.Template{Shell: "claude --x"}}, start, "write a list"},
		{preset.Entry{Preset: "claude", Command: preset.Template{Argv: []string{""}}}, start, "empty command"},
		{preset.Entry{Preset: "command"}, start, "empty command"},
		{preset.Entry{Preset: "command", Command: preset.Template{Shell: " \n"}}, start, "empty command"},
		{preset.Entry{Preset: "command", Command: preset.Template{Shell: "a", Argv: []string{"b"}}}, start, "not both"},
		{preset.Entry{Preset: "command", Command: preset.Template{Shell: "a"}, Model: "m"}, start, "no model"},
		{preset.Entry{Preset: "command", Command: preset.Template{Shell: "a"}, Args: []string{"-x"}}, start, "no args"},
		{preset.Entry{Preset: "aider"}, preset.Start{}, "reads its prompt from a file"},
		{preset.Entry{Preset: "claude"}, preset.Start{Session: "--dangerous"}, "no session"},
		{preset.Entry{Preset: "claude"}, preset.Start{Session: "a b"}, "no session"},
	} {
		if _, err := preset.Build(tt.entry, tt.start); !errors.Is(err, preset.ErrBadEntry) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.entry, err, tt.want)
		}
	}
}

func TestEachPresetSaysWhatItCan(t *testing.T) {
	t.Parallel()
	for _, name := range preset.Names() {
		p, known := preset.Of(name)
		if !known || p.Name != name || string(p.Format) != name {
			t.Errorf("%s: %+v", name, p)
		}
		if name == "command" {
			continue
		}
		if p.Program == "" || p.Stall < time.Minute || len(p.Keys) == 0 || p.ToolStall != 0 && p.ToolStall < p.Stall {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, known := preset.Of(""); known {
		t.Error("there is a preset without a name")
	}
}

// runs is the result of a command: what it printed, and what orch makes of it.
func runs(t *testing.T, dir string, argv []string, format transcript.Format) (string, outcome.Outcome) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, strings.NewReader(prompt), &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	exit := process.Exit{Why: process.WhyExited, Code: new(cmd.ProcessState.ExitCode())}
	return out.String(), outcome.Judge(format, exit, transcript.Said{}, out.Bytes(), time.Now(), nil).Outcome
}

func TestAiderLeavesNoCacheInTheWorkspace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	aider := filepath.Join(t.TempDir(), "aider")
	const script = "#!/bin/sh\nmkdir .aider.tags.cache.v4; : > kept; echo 'Tokens: 1 sent, 1 received.'; exit 3\n"
	if err := os.WriteFile(aider, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	argv := build(t, preset.Entry{Preset: "aider", Command: preset.Template{Argv: []string{aider}}}, "").Argv
	if said, got := runs(t, dir, argv, transcript.Aider); got != outcome.AgentFailed {
		t.Errorf("%s: %s", got, said)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || filepath.Base(left[0]) != "kept" {
		t.Errorf("%q, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".aider*")); err != nil || len(left) != 0 {
		t.Errorf("%q, %v", left, err)
	}
	argv = build(t, preset.Entry{Preset: "aider", Command: preset.Template{Argv: []string{aider + "-not"}}}, "").Argv
	if said, got := runs(t, dir, argv, transcript.Aider); got != outcome.NotFound {
		t.Errorf("%s: %s", got, said)
	}
}

// TestSetupRunsBeforeTheAgent runs what is built, and judges it as orch does.
func TestSetupRunsBeforeTheAgent(t *testing.T) {
	t.Parallel()
	agent := []string{"sh", "-c", `cat; exit "$1"`, "agent"}
	for _, tt := range []struct {
		name, setup string
		argv        []string
		want        outcome.Outcome
	}{
		{"no setup", " ", append(agent, "0"), outcome.OK},
		{"setup", "touch ready", append(agent, "0"), outcome.OK},
		{"setup reads nothing", "cat >read; touch ready", append(agent, "0"), outcome.OK},
		{"setup fails", "touch ready; exit 3", append(agent, "0"), outcome.SetupFailed},
		{"agent fails", "touch ready", append(agent, "1"), outcome.AgentFailed},
		{"agent's code is the setup's", "touch ready", append(agent, "125"), outcome.AgentFailed},
		{"no agent", "touch ready", []string{"orch-no-such-program"}, outcome.NotFound},
		{"a line without its program", "touch ready", []string{"sh", "-c", "orch-no-such-program"}, outcome.AgentFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			said, got := runs(t, dir, preset.AfterSetup(tt.setup, tt.argv), transcript.Command)
			if got != tt.want {
				t.Errorf("%s, want %s: %s", got, tt.want, said)
			}
			if got == outcome.OK && !strings.HasSuffix("\n"+said, "\n"+prompt) {
				t.Errorf("the agent read %q", said)
			}
			if _, err := os.Stat(filepath.Join(dir, "ready")); strings.Contains(tt.setup, "ready") && err != nil {
				t.Error(err)
			}
		})
	}
}
