package stage

import (
	"strings"
	"testing"
	"unicode/utf8"

	"orch/internal/task"
	"orch/internal/task/flow"
)

// The name of the gate and its reason survive, however long the output is.
func TestGateFeedback(t *testing.T) {
	t.Parallel()
	ref := flow.GateRef{Name: "command", Command: strings.Repeat("c", 100)}
	text := gateFeedback(ref, GateResult{Reason: "exit code 1", OutputTail: strings.Repeat("é", 20_000) + "end"})
	if len(text) > task.MaxText || !strings.HasPrefix(text, "Gate command failed: exit code 1") || !strings.HasSuffix(text, "end") || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %q", len(text), text[:60])
	}
}
