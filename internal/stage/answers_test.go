package stage

import (
	"strings"
	"testing"
)

// What a person answered in the first round, the agent of the second one needn't ask again.
func TestAnswersOutliveARedGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome needs_input", commitWrong, commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Answer(t.Context(), added.Key, "me", "to the left"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(w.agents.prompts[1], "to the left"); n != 1 {
		t.Errorf("in the round that asked it is told %d times:\n%s", n, w.agents.prompts[1])
	}
	last := w.agents.prompts[2]
	if strings.Count(last, "the agent asks: left or right?\nA person answered: to the left") != 1 || !strings.Contains(last, "the answer is wrong") {
		t.Error(last)
	}
}
