package agent

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"orch/internal/process"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	code := func(n int) process.Exit { return process.Exit{Code: &n, Why: process.WhyExited} }
	because := func(why process.Why) process.Exit { return process.Exit{Signal: "SIGTERM", Why: why} }
	for _, tt := range []struct {
		name  string
		exit  process.Exit
		said  ReportStatus
		want  Outcome
		class Class
	}{
		{"clean exit", code(0), "", OutcomeOK, Done},
		{"clean exit, says ok", code(0), StatusOK, OutcomeOK, Done},
		{"clean exit, says failed", code(0), StatusFailed, OutcomeAgentFailed, Retryable},
		{"clean exit, asks", code(0), StatusNeedsInput, OutcomeNeedsInput, Terminal},
		{"code, asks", code(2), StatusNeedsInput, OutcomeNeedsInput, Terminal},
		{"code", code(1), "", OutcomeAgentFailed, Retryable},
		{"code, says ok", code(1), StatusOK, OutcomeAgentFailed, Retryable},
		{"not executable", code(126), "", OutcomeNotFound, Terminal},
		{"not found", code(127), "", OutcomeNotFound, Terminal},
		{"shell's child was killed", code(137), "", OutcomeKilled, Retryable},
		{"shell's child was terminated", code(143), "", OutcomeKilled, Retryable},
		{"shell's child crashed", code(139), "", OutcomeCrashed, Retryable},
		{"killed", process.Exit{Signal: "SIGKILL", Why: process.WhyExited}, StatusOK, OutcomeKilled, Retryable},
		{"crashed", process.Exit{Signal: "SIGSEGV", Why: process.WhyExited}, "", OutcomeCrashed, Retryable},
		{"couldn't be started", process.Exit{Why: process.WhyExited, Error: "no directory"}, "", OutcomeCrashed, Retryable},
		{"shim died", process.Exit{Why: process.WhyShimDead}, StatusOK, OutcomeCrashed, Retryable},
		{"timeout", because(process.WhyTimeout), StatusOK, OutcomeTimeout, Retryable},
		{"stalled", because(process.WhyStalled), "", OutcomeStalled, Retryable},
		{"orphaned", because(process.WhyOrphaned), "", OutcomeOrphaned, Retryable},
		{"interrupted", because(process.WhyInterrupted), "", OutcomeInterrupted, GiveBack},
		{"cancelled", because(process.WhyCancelled), "", OutcomeCancelled, GiveBack},
		{"never started", because(process.WhyNeverStarted), "", OutcomeNeverStarted, GiveBack},
	} {
		got := classify(tt.exit, Report{Status: tt.said})
		if got != tt.want || got.Class() != tt.class {
			t.Errorf("%s: %s (%s), want %s (%s)", tt.name, got, got.Class(), tt.want, tt.class)
		}
	}
	for outcome, class := range map[Outcome]Class{
		OutcomeAuth: Terminal, OutcomeQuota: GiveBack, OutcomeRateLimited: GiveBack, "of tomorrow": Retryable,
	} {
		if got := outcome.Class(); got != class {
			t.Errorf("%s: %s, want %s", outcome, got, class)
		}
	}
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, output string
		status       ReportStatus
		summary      string
	}{
		{"nothing", "", "", ""},
		{"no report", "hello\nworld\n", "", ""},
		{"report", "x\n" + `{"orch":{"status":"ok","summary":"done"}}` + "\n", StatusOK, "done"},
		{"last one counts", `{"orch":{"status":"failed"}}` + "\n" + `{"orch":{"status":"ok"}}` + "\n", StatusOK, ""},
		{"talk after it", `{"orch":{"status":"failed"}}` + "\nbye\n\n", StatusFailed, ""},
		{"no newline", "x\n" + ` {"orch":{"status":"ok"}}`, StatusOK, ""},
		{"carriage return", `{"orch":{"status":"ok"}}` + "\r\n", StatusOK, ""},
		{"torn last line", `{"orch":{"status":"ok"}}` + "\n" + `{"orch":{"status":"fai`, StatusOK, ""},
		{"torn first line", `us":"ok"}}` + "\nx\n", "", ""},
		{"unknown status", `{"orch":{"status":"great","summary":"s"}}`, "", "s"},
		{"other JSON", `{"type":"orch"}` + "\n" + `{"orch":null}` + "\n" + `{"orch":7}`, "", ""},
		{"unknown fields", `{"orch":{"status":"ok","more":[1]},"x":1}`, StatusOK, ""},
		{"invalid UTF-8", "\xff\xfe\n{\"orch\":{\"status\":\"ok\",\"summary\":\"a\xffb\\u0000c\"}}\n\xff", StatusOK, "a\uFFFDbc"},
		{"long line", `{"orch":{"status":"ok","summary":"` + strings.Repeat("x", maxReportLine) + `"}}`, "", ""},
	} {
		if got := parseReport([]byte(tt.output)); got.Status != tt.status || got.Summary != tt.summary {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	for raw, want := range map[string]float64{"0": 0, "1.5": 1.5, "-1": math.NaN(), "1e300": math.NaN(), "null": math.NaN()} {
		got := parseReport([]byte(`{"orch":{"cost_usd":` + raw + `}}`)).CostUSD
		if math.IsNaN(want) != (got == nil) || (got != nil && *got != want) {
			t.Errorf("cost %s: %v", raw, got)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"orch":{"status":"ok","cost_usd":1,"summary":"s","question":"q"}}`))
	f.Add([]byte("x\n{\"orch\":{\"status\":\"\xff\"}}\n"))
	f.Add([]byte("\n\n{"))
	f.Fuzz(func(t *testing.T, output []byte) {
		said := parseReport(output)
		for _, text := range []string{said.Summary, said.Question, lastOf(output)} {
			if !utf8.ValidString(text) || len(text) > maxReportText || strings.ContainsRune(text, 0) {
				t.Errorf("unfit text %q", text)
			}
		}
		if c := said.CostUSD; c != nil && (*c < 0 || *c > maxCostUSD) {
			t.Errorf("cost %v", *c)
		}
		known := []ReportStatus{"", StatusOK, StatusFailed, StatusNeedsInput}
		if !slices.Contains(known, said.Status) {
			t.Errorf("status %q", said.Status)
		}
		// What comes before a line doesn't change what the line says.
		if said.Status != "" {
			if again := parseReport(append([]byte("before\n"), output...)); again.Status != said.Status {
				t.Errorf("%q became %q", said.Status, again.Status)
			}
		}
	})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		template CommandTemplate
		want     []string
	}{
		{CommandTemplate{Argv: []string{"a", "b c"}}, []string{"a", "b c"}},
		{CommandTemplate{Shell: "a | b"}, []string{"sh", "-c", "a | b"}},
		{CommandTemplate{}, nil},
		{CommandTemplate{Shell: "  "}, nil},
		{CommandTemplate{Argv: []string{""}}, nil},
		{CommandTemplate{Argv: []string{"a"}, Shell: "a"}, nil},
	} {
		got, err := Command(tt.template)
		if !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) || (err != nil && !errors.Is(err, ErrBadRequest)) {
			t.Errorf("%+v: %v, %v", tt.template, got, err)
		}
	}
}
