package agent

import (
	"errors"
	"os"
	"testing"

	"orch/internal/process"
	"orch/internal/queue"
)

// That a look fails, for whatever reason, says nothing about the run: it must not cost its job an attempt.
func TestRunThatCannotBeLookedAtIsLookedAtLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.left(t)
	dir := b.runs.dir(run.ID)
	if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l := b.claim(t)
	_, err := b.runs.Execute(bound(t), l, b.request(waiting).request())
	if wait, ok := errors.AsType[*queue.SnoozeError](err); !ok || wait.WaitingFor != "run_unknown" {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	b.letGo(t)
	if res := b.execute(t, l, b.request(waiting)); res.RunID != run.ID || res.Exit.Why != process.WhyExited {
		t.Errorf("%+v", res)
	}
	b.wantStarted(t, 1)
}
