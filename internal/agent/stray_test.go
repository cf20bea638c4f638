package agent

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/agent/ledger"
	"orch/internal/db"
	"orch/internal/process"
)

func (b *bench) giveUp(t *testing.T, root uuid.UUID) {
	t.Helper()
	err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error { return ledger.GiveUpTx(t.Context(), tx, b.task, root) })
	if err != nil {
		t.Fatal(err)
	}
}

// A host that was cut off and given up comes back, and its agent still works.
func TestRunThatWasGivenUpIsEndedAndSaysNothingMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.killedExecutor(t)
	b.giveUp(t, b.root)
	if err := b.runs.EndStrays(bound(t)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program is gone", func() bool { return process.Probe(b.identity(t, run)) == process.Dead })
	if err := b.runs.Recover(bound(t)); err != nil {
		t.Error(err)
	}
	got := b.list(t)[0]
	if *got.Ended != string(process.WhyHostDead) || *got.Outcome != "orphaned" || got.ConsumedAt == nil || got.ExitCode != nil {
		t.Errorf("ended %s, outcome %s, consumed %v, code %v", *got.Ended, *got.Outcome, got.ConsumedAt, got.ExitCode)
	}
}

// Nobody else looks after it: no shim bounds it, and no job asks for it.
func TestWhatADeadShimLeftOfARunThatWasGivenUpIsEndedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.killedExecutor(t)
	b.giveUp(t, b.root)
	b.killShim(t, run.ID)
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Fatalf("the program is %s", v)
	}
	for range 3 {
		if err := b.runs.EndStrays(bound(t)); err != nil {
			t.Fatal(err)
		}
		if v := process.Probe(b.identity(t, run)); v != process.Dead {
			t.Errorf("the program is %s", v)
		}
	}
	if recorded, err := process.Recorded(b.runs.dir(run.ID)); err != nil || !recorded {
		t.Errorf("recorded %v, %v: it is looked at for ever", recorded, err)
	}
}

func TestRunsThatWereNotGivenUpAreNoStrays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := b.killedExecutor(t)
	b.giveUp(t, uuid.New())
	if err := b.runs.EndStrays(bound(t)); err != nil {
		t.Fatal(err)
	}
	if v := process.Probe(b.identity(t, run)); v != process.Alive {
		t.Errorf("the program is %s", v)
	}
	if got := b.list(t)[0]; got.State != StateRunning {
		t.Errorf("run is %s", got.State)
	}
}

func TestOutputThatIsNotKeptIsSaidToBeRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := b.execute(t, b.claim(t), b.request("echo something"))
	b.exec(t, `update runs set removed_at = now()`)
	if _, err := b.runs.OpenLog(t.Context(), res.RunID); !errors.Is(err, ErrRemoved) {
		t.Error(err)
	}
}
