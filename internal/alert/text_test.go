package alert_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"orch/internal/alert"
)

// An operator reads one message, at night, and knows what happened, to what, and what to type.
func TestEachKindSaysWhatHappenedToWhatAndWhatToType(t *testing.T) {
	t.Parallel()
	said := map[alert.Kind][]string{
		alert.JobReaped:           {"Job 12 of task demo-65 was reaped to failed: its process is gone", "run r-1", "host h", "`orch task show demo-65`", "`orch task retry demo-65`"},
		alert.LeaseReclaimed:      {"A merge lease was taken from its holder: its process is gone", "repository demo", "pid 4711", "Nothing to do", "`orch doctor`"},
		alert.TaskBlocked:         {"Task demo-65 needs you: its process is gone", "`orch task show demo-65`", "`orch task retry demo-65`"},
		alert.AgentPaused:         {"Agent coder is paused for all tasks", "`orch agent list`", "`orch resume --agent coder`"},
		alert.LandingParked:       {"The landing of task demo-65 needs you", "`orch task retry demo-65`", "`orch task cancel demo-65`"},
		alert.DaemonRestarts:      {"A service of orch ends again and again", "host h", "`orch doctor`"},
		alert.MassDeath:           {"Too many runs seem dead at once to be believed", "Nothing is ended for now", "`orch doctor`"},
		alert.JobWaits:            {"Job 12 waits for very long", "`orch why demo-65`", "`orch task cancel demo-65`"},
		alert.JobFailed:           {"Job 12 failed for good", "`orch job show 12`", "`orch job retry 12`"},
		alert.QueueStuck:          {"The queue of orch is stuck", "`orch queue`", "`orch resume --lane system`"},
		alert.DatabaseUnreachable: {"orch can't reach its database", "Nothing new begins", "`orch doctor`"},
	}
	for _, kind := range alert.Kinds() {
		text := alert.Alert{
			Kind: kind, Task: "demo-65", Repo: "demo", Branch: "orch/demo-65", Agent: "coder", Code: "process_dead", Host: "h", JobID: 12, RunID: "r-1",
			PID: 4711, At: time.Unix(1e9, 0),
		}.Text(alert.MaxText)
		for _, want := range append(said[kind], "process_dead", "2001-09-09 01:46 UTC") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", kind, want, text)
			}
		}
		if len(said[kind]) == 0 || strings.Count(text, "`")%2 != 0 || strings.Contains(text, "..") {
			t.Errorf("%s: %s", kind, text)
		}
	}
	if len(said) != len(alert.Kinds()) {
		t.Errorf("%d kinds, %d are known here", len(alert.Kinds()), len(said))
	}
}

func TestWhatIsNotKnownIsNotSaid(t *testing.T) {
	t.Parallel()
	for _, kind := range alert.Kinds() {
		text := alert.Alert{Kind: kind, JobID: 12}.Text(alert.MaxText)
		for _, empty := range []string{"task ,", "repository ,", "branch ,", "pid 0", "code ,", "  ", " \n", "host\n"} {
			if strings.Contains(text, empty) {
				t.Errorf("%s: %q in\n%s", kind, empty, text)
			}
		}
	}
}

func TestQuestionIsAnsweredAndHintComesFirst(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"needs_input":      "Then: `orch task answer demo-1 \"…\"`",
		"auth":             "and resume it as `orch agent list` says",
		"checkout_dirty":   "First: commit them, or put them away\nThen: `orch task retry demo-1`",
		"a_code_of_2031":   "Task demo-1 needs you: a code of 2031.",
		"rounds_exhausted": "until all rounds were used up; a retry grants one more.",
		"":                 "no reason is known.",
	} {
		if text := (alert.Alert{Kind: alert.TaskBlocked, Task: "demo-1", Code: code}).Text(alert.MaxText); !strings.Contains(text, want) {
			t.Errorf("%s: no %q in\n%s", code, want, text)
		}
	}
}

func TestTextHasNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 3000)
	a := alert.Alert{Kind: alert.TaskBlocked, Task: long, Repo: long, Branch: long, Agent: long, Code: long, Reason: long, Host: long, RunID: long}
	for _, limit := range []int{1, 2, 10, 100, 1000, 5000} {
		if text := a.Text(limit); utf8.RuneCountInString(text) > limit || !utf8.ValidString(text) {
			t.Errorf("%d characters for a limit of %d", utf8.RuneCountInString(text), limit)
		}
	}
	whole := alert.Alert{Kind: alert.JobFailed, JobID: 1}.Text(alert.MaxText)
	if cut := (alert.Alert{Kind: alert.JobFailed, JobID: 1}).Text(utf8.RuneCountInString(whole)); cut != whole {
		t.Errorf("what fits is cut: %q", cut)
	}
	if text := (alert.Alert{Kind: alert.JobFailed, JobID: 1}).Text(5); text != "Job …" {
		t.Errorf("%q", text)
	}
}
