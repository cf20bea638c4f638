package task

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
	"orch/internal/task/flow"
)

func TestAdvance_ThroughAllStages(t *testing.T) {
	t.Parallel()
	b := newBench(t, six())
	task := b.create(func(a *Add) { a.Pipeline = "six" })
	for _, stage := range []string{flow.Analysis, flow.Architecture, flow.Development, flow.Review, flow.Testing} {
		l := b.mustClaim(KindStage)
		at := At{task.ID, stage, 1}
		moved := b.move(l, b.advance(at))
		if moved.Superseded {
			t.Fatalf("%s: superseded at %+v", stage, moved.Task.At())
		}
		if again := b.inTx(b.advance(at)); !again.Superseded {
			t.Fatalf("%s: advanced twice", stage)
		}
	}
	job := b.job(task.ID)
	if job.Kind != KindMerge || job.Lane != LaneMerge {
		t.Errorf("%+v", job)
	}
	l := b.mustClaim(KindMerge)
	at := At{task.ID, flow.Deploy, 1}
	landed := b.move(l, b.land(at, Landing{Commit: "abc"}))
	if landed.Superseded || landed.Task.State != Done || landed.Task.LandedCommit != "abc" || landed.Task.FinishedAt == nil {
		t.Errorf("%+v", landed)
	}
	if again := b.inTx(b.land(at, Landing{Commit: "def"})); !again.Superseded {
		t.Error("landed twice")
	}
	counters, err := tally.NewStore(b.pool).Counters(t.Context())
	if err != nil || counters["landed_total"] != 1 {
		t.Errorf("%v, %v", counters, err)
	}
	if kinds := b.kinds(task.ID); kinds != "created advanced advanced advanced advanced advanced landed" {
		t.Error(kinds)
	}
	if b.job(task.ID) != nil || b.retires(task.ID) != 1 {
		t.Error("a done task has a job, or no clean-up")
	}
}

func TestAdvance_LastStageWithoutALanding(t *testing.T) {
	t.Parallel()
	b := newBench(t, flow.Pipeline{Name: "default", Stages: []flow.Stage{{Name: flow.Analysis, Agent: "a"}}})
	task := b.create()
	moved := b.move(b.mustClaim(KindStage), b.advance(task.At()))
	if moved.Task.State != Done || b.kinds(task.ID) != "created done" || b.retires(task.ID) != 1 {
		t.Errorf("%+v, %s", moved, b.kinds(task.ID))
	}
}

// Branch and workspace are in one data root: whoever begins the work on a task binds it, and all its jobs with it.
func TestBind(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	created := b.create()
	home, other := queuetest.Root(t, b.pool), queuetest.Root(t, b.pool)
	for _, root := range []uuid.UUID{home, other} { // the second one comes too late
		err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			bound, current, err := b.store.BindTx(t.Context(), tx, created.At(), root)
			if bound != home || !current {
				t.Errorf("bound to %s, %v", bound, current)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	moved := b.move(b.mustClaim(KindStage), func(tx pgx.Tx) (Moved, error) {
		return b.store.AdvanceTx(t.Context(), tx, created.At(), Advance{Commit: "abc"})
	})
	if moved.Task.PassedCommit != "abc" || *moved.Task.RootID != home {
		t.Errorf("%+v", moved.Task)
	}
	if job := b.job(created.ID); job.PinnedRoot == nil || *job.PinnedRoot != home {
		t.Errorf("the next job is pinned to %v, want %s", job.PinnedRoot, home)
	}
}

// Who lands is the merge gate's business: the change is tested as it would land first, whoever does it.
func TestWait_PersonLands(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create(func(a *Add) { a.Land = false })
	moved := b.move(b.mustClaim(KindStage), b.advance(task.At()))
	if job := b.job(task.ID); moved.Task.Stage != flow.Deploy || job == nil || job.Kind != KindMerge {
		t.Fatalf("%+v, job %+v", moved.Task, job)
	}
	waiting := b.move(b.mustClaim(KindMerge), func(tx pgx.Tx) (Moved, error) {
		return b.store.WaitTx(t.Context(), tx, moved.Task.At(), Wait{For: PersonLands})
	})
	if waiting.Task.State != Waiting || waiting.Task.WaitingFor != PersonLands || b.retires(task.ID) != 1 {
		t.Errorf("%+v, %d retire jobs", waiting.Task, b.retires(task.ID))
	}
	again, err := b.store.Retry(t.Context(), task.Key, "ada", "")
	if job := b.job(task.ID); err != nil || again.State != Active || again.WaitingFor != "" || job == nil || job.Kind != KindMerge {
		t.Errorf("looked at again: %+v, %v, job %+v", again, err, job)
	}
	// The person did.
	landed := b.inTx(b.land(moved.Task.At(), Landing{Actor: "person", Commit: "abc"}))
	if landed.Superseded || landed.Task.State != Done || landed.Task.WaitingFor != "" {
		t.Errorf("%+v", landed)
	}
}

// The current job has to end first: otherwise the next one would be taken for its twin and never be queued.
func TestAdvance_NeedsTheEndOfTheCurrentJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	l := b.mustClaim(KindStage)
	err := l.Tx(t.Context(), func(tx pgx.Tx) error {
		_, err := b.store.AdvanceTx(t.Context(), tx, task.At(), Advance{})
		return err
	})
	if !errors.Is(err, ErrBusy) || b.get(task.ID).Stage != flow.Development {
		t.Error(err)
	}
}

func TestReturn_RoundsAreCapped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	for round := 1; round <= 3; round++ {
		at := At{task.ID, flow.Development, round}
		r := Return{Gate: "command", Reason: "exit code 1", Feedback: "output of round " + string(rune('0'+round))}
		moved := b.move(b.mustClaim(KindStage), b.sendBack(at, r))
		if again := b.inTx(b.sendBack(at, r)); !again.Superseded {
			t.Fatal("returned twice")
		}
		if moved.Superseded || moved.Task.Feedback != r.Feedback {
			t.Fatalf("round %d: %+v", round, moved)
		}
	}
	stopped := b.get(task.ID)
	if stopped.State != Blocked || stopped.ReasonCode != CodeRoundsExhausted || stopped.Feedback != "output of round 3" || stopped.Round != 3 ||
		!strings.Contains(stopped.Reason, "orch task retry demo-1") || !strings.Contains(stopped.Reason, "exit code 1") {
		t.Errorf("%+v", stopped)
	}
	if kinds := b.kinds(task.ID); kinds != "created returned returned blocked" {
		t.Error(kinds)
	}
	if len(b.blocked) != 1 || b.job(task.ID) != nil || b.retires(task.ID) != 1 {
		t.Error(b.blocked)
	}
	// A person grants one more round, and one only.
	retried, err := b.store.Retry(t.Context(), task.Key, "me", "look at the clock")
	if err != nil || retried.State != Active || retried.Round != 4 || !strings.Contains(retried.Feedback, "look at the clock") ||
		!strings.Contains(retried.Feedback, "output of round 3") {
		t.Fatalf("%+v, %v", retried, err)
	}
	b.move(b.mustClaim(KindStage), b.sendBack(retried.At(), Return{Feedback: "still"}))
	if again := b.get(task.ID); again.State != Blocked || again.Feedback != "still" {
		t.Errorf("%+v", again)
	}
}

func TestReturn_GoesWhereTheTableSays(t *testing.T) {
	t.Parallel()
	b := newBench(t, six())
	task := b.create(func(a *Add) { a.Pipeline = "six" })
	b.exec(`update tasks set stage = 'testing' where id = $1`, task.ID)
	moved := b.inTx(func(tx pgx.Tx) (Moved, error) {
		if _, err := tx.Exec(t.Context(), `delete from jobs`); err != nil {
			return Moved{}, err
		}
		return b.store.ReturnTx(t.Context(), tx, At{task.ID, flow.Testing, 1}, Return{Feedback: "red\x00"})
	})
	if moved.Task.Stage != flow.Development || moved.Task.Round != 2 || moved.Task.Feedback != "red" || b.job(task.ID) == nil {
		t.Errorf("%+v", moved.Task)
	}
}

func TestBlock_AndRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	if _, err := b.store.Retry(t.Context(), task.Key, "me", ""); !errors.Is(err, ErrNotBlocked) {
		t.Error(err)
	}
	moved := b.move(b.mustClaim(KindStage), b.block(task.At(), Block{Code: CodeNeedsInput, Reason: "the agent asks: which one?"}))
	if moved.Task.State != Blocked {
		t.Errorf("%+v", moved.Task)
	}
	if again := b.inTx(b.block(task.At(), Block{Code: "other"})); !again.Superseded {
		t.Error("blocked twice")
	}
	if late := b.inTx(b.advance(task.At())); !late.Superseded {
		t.Error("a blocked task was advanced")
	}
	retried, err := b.store.Retry(t.Context(), task.Key, "me", "the left one")
	if err != nil || retried.State != Active || retried.At() != task.At() || retried.ReasonCode != "" || retried.Reason != "" ||
		retried.Feedback != "the agent asks: which one?\nAnswer: the left one" {
		t.Errorf("%+v, %v", retried, err)
	}
	if kinds := b.kinds(task.ID); kinds != "created blocked answered" {
		t.Error(kinds)
	}
	if b.claim(KindStage) == nil {
		t.Error("no job after the retry")
	}
}

func TestBlock_WaitingTask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	moved := b.move(b.mustClaim(KindStage), b.wait(task.At(), Wait{For: "ci"}))
	if b.job(task.ID) != nil {
		t.Errorf("%+v", moved.Task)
	}
	if again := b.inTx(b.wait(task.At(), Wait{For: "more"})); !again.Superseded {
		t.Error("waits twice")
	}
	if blocked := b.inTx(b.block(task.At(), Block{Code: "gone"})); blocked.Task.State != Blocked || blocked.Task.WaitingFor != "" {
		t.Errorf("%+v", blocked.Task)
	}
}

// A pipeline that was edited under its tasks: a stage that is gone blocks them.
func TestAdvance_StageIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	b.store.cfg.Catalog = Pipelines{{Name: "default", Stages: []flow.Stage{{Name: flow.Analysis, Agent: "a"}}}}
	moved := b.move(b.mustClaim(KindStage), b.advance(task.At()))
	if moved.Task.State != Blocked || moved.Task.ReasonCode != CodeStageUnknown {
		t.Errorf("%+v", moved.Task)
	}
	if _, err := b.store.Retry(t.Context(), task.Key, "me", ""); !errors.Is(err, ErrUnknownPipeline) {
		t.Error(err)
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	for at, want := range map[At]bool{task.At(): true, {task.ID, flow.Deploy, 1}: false, {task.ID, flow.Development, 2}: false} {
		err := db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, held, err := b.store.HoldTx(t.Context(), tx, at)
			if held != want {
				t.Errorf("%+v: %v", at, held)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var last Task
	for range 5 {
		last = b.create()
	}
	b.create(func(a *Add) { a.Repo = "other" })
	if _, err := b.store.Cancel(t.Context(), "demo-2", "me"); err != nil {
		t.Fatal(err)
	}
	page, err := b.store.List(t.Context(), Filter{Repo: "demo", Limit: 2})
	if err != nil || len(page) != 2 || page[0].Key != "demo-5" {
		t.Fatalf("%+v, %v", page, err)
	}
	page, err = b.store.List(t.Context(), Filter{Repo: "demo", States: []State{Active}, Before: page[1].ID})
	if err != nil || len(page) != 2 || page[0].Key != "demo-3" || page[1].Key != "demo-1" {
		t.Errorf("%+v, %v", page, err)
	}
	b.inTx(func(tx pgx.Tx) (Moved, error) {
		return b.store.BlockTx(t.Context(), tx, last.At(), Block{Code: "x", Reason: strings.Repeat("long ", 5000)})
	})
	counts, err := b.store.Counts(t.Context())
	if err != nil || counts != (Counts{Active: 4, NeedsYou: 1}) {
		t.Errorf("%+v, %v", counts, err)
	}
	event := b.lastEvent(last.ID, EventBlocked)
	var data map[string]any
	if err := json.Unmarshal(event.Data, &data); err != nil || data["code"] != "x" || len(event.Reason) > maxReason {
		t.Errorf("%s, %v", event.Data, err)
	}
	later, err := b.store.EventsAfter(t.Context(), last.ID, event.ID-1, 10)
	if err != nil || len(later) != 1 {
		t.Errorf("%d events, %v", len(later), err)
	}
}

// Whoever landed a task for a root that is away has its work: the next round is done there.
func TestReturnedTaskGoesOnInTheRootThatHasItsWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	task := b.create()
	b.move(b.mustClaim(KindStage), b.advance(task.At()))
	away := uuid.New()
	b.exec(`insert into roots (id, host, path) values ($1, 'away', '/away')`, away)
	b.exec(`update tasks set root_id = $1`, away)
	l := b.mustClaim(KindMerge)
	b.move(l, b.sendBack(b.get(task.ID).At(), Return{Gate: flow.BranchMergeable, Reason: "red", Root: b.worker.RootID}))
	got, job := b.get(task.ID), b.job(task.ID)
	if got.Stage != flow.Development || got.RootID == nil || *got.RootID != b.worker.RootID || job.PinnedRoot == nil || *job.PinnedRoot != b.worker.RootID {
		t.Errorf("task %+v, job %+v", got, job)
	}
}
