package agent

import (
	"testing"

	"orch/internal/agent/outcome"
	"orch/internal/process"
)

// What a container leaves that was restarted must not be kept until the machine is.
func TestRunOfAContainerThatIsGoneCanBeRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.orphaned(t)
	b.moved(t, run.ID, otherNamespace)
	if err := b.runs.Recover(bound(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.list(t)[0]; got.State != StateFinished || *got.Outcome != outcome.Interrupted {
		t.Fatalf("run is %s, %v", got.State, got.Outcome)
	}
	dir, err := process.OpenRun(b.runs.dir(run.ID))
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Remove(bound(t)); err != nil {
		t.Error(err)
	}
}
