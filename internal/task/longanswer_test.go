package task

import (
	"strings"
	"testing"
)

// Whoever answers at length is heard to the end, and from the beginning.
func TestALongAnswerIsToldWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asking := b.ask()
	answer := "First " + strings.Repeat("and then ", 7000) + "at last"
	answered, err := b.store.Answer(t.Context(), asking.Key, "me", answer)
	if err != nil || !strings.HasSuffix(answered.Feedback, "left or right?\nAnswer: "+answer) {
		t.Errorf("%d bytes of %d, %v", len(answered.Feedback), len(answer), err)
	}
}
