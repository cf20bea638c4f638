package task

import (
	"testing"

	"orch/internal/queue/tally"
	"orch/internal/task/flow"
)

// What changes nothing is done, and nobody is told that it landed.
func TestNothingToLandIsDoneAndDidntLand(t *testing.T) {
	t.Parallel()
	b := newBench(t, flow.Short("default", "coder", "make test"))
	task := b.create()
	b.move(b.mustClaim(KindStage), b.advance(task.At()))
	moved := b.move(b.mustClaim(KindMerge), b.land(At{task.ID, flow.Deploy, 1}, Landing{Code: CodeNothingToLand, Note: "its commits change nothing"}))
	got, err := b.store.ByID(t.Context(), task.ID)
	if err != nil || moved.Superseded || got.State != Done || got.LandedCommit != "" || got.ReasonCode != CodeNothingToLand || got.Reason != "its commits change nothing" {
		t.Errorf("%+v, %v", got, err)
	}
	counters, err := tally.NewStore(b.pool).Counters(t.Context())
	if err != nil || counters["landed_total"] != 0 || b.kinds(task.ID) != "created advanced done" || b.retires(task.ID) != 1 {
		t.Errorf("%v, %v, %s", counters, err, b.kinds(task.ID))
	}
}
