package outcome_test

import (
	"testing"

	"orch/internal/agent/outcome"
	"orch/internal/process"
	"orch/internal/transcript"
)

// The model's answer was in a line too long to be read: that the program ended well is still known.
func TestAnAnswerThatCouldNotBeReadIsNoMissingOne(t *testing.T) {
	t.Parallel()
	for bad, want := range map[int64]outcome.Outcome{0: outcome.AgentFailed, 1: outcome.OK} {
		said := transcript.Said{End: transcript.EndOK, Lines: 3, Bad: bad, Summary: "done"}
		if got := outcome.Judge(transcript.Claude, process.Exit{Why: process.WhyExited, Code: new(0)}, said, nil, now, nil); got.Outcome != want {
			t.Errorf("%d unread: %s, want %s: %s", bad, got.Outcome, want, got.Detail)
		}
	}
}
