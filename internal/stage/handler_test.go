package stage

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/queue"
	"orch/internal/task"
	"orch/internal/task/flow"
)

const (
	commitWrong = `echo 41 > answer && git add . && git commit -qm wrong`
	commitRight = `echo 42 > answer && git add . && git commit -qm right`
)

// The whole way: an agent that gets it wrong, is told why, gets it right, and the task goes on to its landing.
func TestStage_RedGateThenGreen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitWrong, commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	second := w.get(added.ID)
	if second.Round != 2 || second.Stage != flow.Development ||
		!strings.Contains(second.Feedback, "Gate command failed: the command ended with exit code 1") || !strings.Contains(second.Feedback, "the answer is wrong") {
		t.Fatalf("%+v", second)
	}
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	third := w.get(added.ID)
	if third.Stage != flow.Deploy || third.Feedback != "" || w.job(added.ID).Kind != task.KindMerge {
		t.Errorf("%+v", third)
	}
	want := "created stage_started run_finished gate_passed gate_failed returned stage_started run_finished gate_passed gate_passed advanced"
	if kinds := w.kinds(added.ID); kinds != want {
		t.Error(kinds)
	}
	if first, second := w.agents.prompts[0], w.agents.prompts[1]; strings.Contains(first, "the answer is wrong") ||
		!strings.Contains(second, "the answer is wrong") || !strings.Contains(first, "Commit all your work") || !strings.Contains(first, "Please") {
		t.Errorf("%s\n---\n%s", first, second)
	}
	var data map[string]any
	if err := json.Unmarshal(w.lastEvent(added.ID, task.EventGatePassed).Data, &data); err != nil || data["evidence_id"] == 0.0 || data["exit_code"] != 0.0 || data["run_id"] == nil {
		t.Errorf("%v, %v", data, err)
	}
	if w.unconsumed() != 0 || w.count(`select count(*) from jobs where run_id is not null and state = 'queued'`) != 0 {
		t.Error("a run wasn't consumed, or a job is tied to it")
	}
	if n := w.count(`select count(*) from jobs where pinned_root is distinct from $1`, w.worker.RootID); n != 0 {
		t.Errorf("%d jobs may run where the branch isn't", n)
	}
}

func TestStage_WorkThatIsntCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{`echo 42 > answer`}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if after := w.get(added.ID); after.Round != 2 || !strings.Contains(after.Feedback, "answer") || !strings.Contains(after.Feedback, "commit") {
		t.Errorf("%+v", after)
	}
}

// A worker that dies anywhere before the last transaction: the next claim takes the same results.
func TestStage_IsReentrant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	crash := errors.New("crash")
	broken := *w.stage
	broken.cfg.ConsumeTx = func(context.Context, pgx.Tx, uuid.UUID) error { return crash }
	if err := w.run(&broken, w.mustClaim(task.KindStage)); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if after := w.get(added.ID); after.Stage != flow.Development || w.kinds(added.ID) != "created stage_started" {
		t.Fatalf("%+v, %s", after, w.kinds(added.ID))
	}
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if w.agents.started != 1 || w.places.prepared != 1 || w.get(added.ID).Stage != flow.Deploy || w.unconsumed() != 0 {
		t.Errorf("%d runs, prepared %d times", w.agents.started, w.places.prepared)
	}
	var data map[string]any
	if err := json.Unmarshal(w.lastEvent(added.ID, task.EventGatePassed).Data, &data); err != nil || data["reused"] != true {
		t.Errorf("the green gate was asked again: %v, %v", data, err)
	}
}

func TestStage_Superseded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	added := w.create()
	l := w.mustClaim(task.KindStage)
	w.exec(`update tasks set round = 2 where id = $1`, added.ID)
	if err := w.run(w.stage, l); err != nil || l.Outcome() != queue.OutcomeSucceeded {
		t.Errorf("%v, %s", err, l.Outcome())
	}
	if w.agents.started != 0 || w.kinds(added.ID) != "created" {
		t.Error(w.kinds(added.ID))
	}
}

// The task is cancelled while nobody follows its run: the job that is pinned by it comes back to end it.
func TestStage_CancelledWhileNobodyFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	stop := *w.stage
	stop.cfg.Workspaces = stopping{w.places}
	if err := w.run(&stop, w.mustClaim(task.KindStage)); !errors.Is(err, queue.ErrStopping) {
		t.Fatal(err)
	}
	if _, err := w.store.Cancel(t.Context(), added.Key, "me"); err != nil {
		t.Fatal(err)
	}
	l := w.mustClaim(task.KindStage)
	l.RequestCancel()
	if err := w.run(w.stage, l); !errors.Is(err, queue.ErrCancelRequested) || len(w.ended) != 1 || l.Outcome() != queue.OutcomeCancelled {
		t.Errorf("%v, %v, %s", err, w.ended, l.Outcome())
	}
}

// stopping is told to stop when the gates begin.
type stopping struct{ *places }

func (stopping) Inspect(context.Context, task.Task) (Head, error) { return Head{}, queue.ErrStopping }

// Cancelled while the agent ends: its result is consumed, the task stays cancelled.
func TestStage_CancelledMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome agent_failed"}
	added := w.create()
	w.agents.after = func(*queue.Lease) {
		if _, err := w.store.Cancel(w.ctx, added.Key, "me"); err != nil {
			t.Error(err)
		}
	}
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if after := w.get(added.ID); after.State != task.Cancelled || w.job(added.ID) != nil || w.unconsumed() != 0 || w.kinds(added.ID) != "created stage_started cancelled" {
		t.Errorf("%+v, %s", after, w.kinds(added.ID))
	}
}

// The run has ended, so its result counts, although the job was asked to stop in the same moment.
func TestStage_ResultIsWrittenAlthoughTheContextIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome agent_failed"}
	w.agents.after = func(l *queue.Lease) { l.RequestCancel() }
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if job := w.job(added.ID); job.Attempt != 1 || w.unconsumed() != 0 {
		t.Errorf("%+v", job)
	}
}

// What fails only because the job is to stop is no failure of the workspace.
func TestStage_CancelledWhilePreparing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create()
	l := w.mustClaim(task.KindStage)
	w.places.failing, w.places.preparing = errors.New("signal: killed"), l.RequestCancel
	if err := w.run(w.stage, l); !errors.Is(err, queue.ErrCancelRequested) {
		t.Error(err)
	}
}

// A holder that lost its lease while the agent worked writes nothing, whatever the result.
func TestStage_LostLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	for _, script := range []string{commitRight, commitWrong, "outcome agent_failed", "outcome auth", "outcome interrupted"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, flow.Pipeline{Name: "default", Stages: []flow.Stage{{Name: flow.Development, Agent: "a"}, {Name: flow.Deploy}}})
			w.agents.scripts = []string{script}
			w.agents.after = func(*queue.Lease) { w.exec(`update jobs set epoch = epoch + 1`) }
			added := w.create()
			if err := w.work(); !errors.Is(err, queue.ErrLeaseLost) {
				t.Error(err)
			}
			if w.kinds(added.ID) != "created stage_started" || w.unconsumed() != 1 {
				t.Error(w.kinds(added.ID))
			}
		})
	}
}

func TestStage_PendingGateGivesTheJobBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flow.Pipeline{Name: "default", Stages: []flow.Stage{{Name: flow.Development, Agent: "a", Gates: []flow.GateRef{{Name: "pending"}}}}})
	w.agents.scripts = []string{commitRight}
	added := w.create()
	for range 2 {
		var snooze *queue.SnoozeError
		if err := w.work(); !errors.As(err, &snooze) || snooze.WaitingFor != "gate_pending" {
			t.Fatal(err)
		}
	}
	if job := w.job(added.ID); job.Attempt != 0 || w.agents.started != 1 {
		t.Errorf("%+v, %d runs", job, w.agents.started)
	}
}

func TestStage_WithoutAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, flow.Pipeline{Name: "default", Stages: []flow.Stage{
		{Name: flow.Development, Agent: "a"},
		{Name: flow.Testing, Gates: []flow.GateRef{{Name: "command", Command: "grep 42 answer"}}},
	}})
	w.agents.scripts = []string{commitWrong, commitRight}
	added := w.create()
	for range 4 {
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.get(added.ID); after.State != task.Done || after.Round != 2 || w.agents.started != 2 {
		t.Errorf("%+v", after)
	}
}

// A stage that lands since the pipeline was edited is handed to the merge gate.
func TestStage_HandsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	added := w.create()
	w.pipelines = task.Pipelines{{Name: "default", Stages: []flow.Stage{{Name: flow.Analysis, Agent: "a"}, {Name: flow.Development, Gates: []flow.GateRef{{Name: flow.BranchMergeable}}}}}}
	if err := w.work(); err != nil || w.job(added.ID).Kind != task.KindMerge {
		t.Errorf("%v", err)
	}
}

// A task's branch and workspace are in one root: a job that another one claims goes there, and nothing is done here.
func TestStage_WrongRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitWrong, commitRight}
	added := w.create()
	right, wrong := w.worker, w.otherRoot()
	if err := w.work(); err != nil || *w.get(added.ID).RootID != right.RootID {
		t.Fatalf("%v, %+v", err, w.get(added.ID))
	}
	w.exec(`update jobs set pinned_root = null`) // as of a job that was queued before anything was known of roots
	w.worker = wrong
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if job := w.job(added.ID); job.State != queue.StateQueued || job.Attempt != 0 || job.Recoveries != 0 || *job.PinnedRoot != right.RootID {
		t.Errorf("%+v", job)
	}
	if w.agents.started != 1 || w.places.prepared != 1 || strings.Count(w.kinds(added.ID), "stage_started") != 1 {
		t.Errorf("something was done in the wrong root: %s", w.kinds(added.ID))
	}
	if w.claim(task.KindStage) != nil {
		t.Error("the wrong root has it again")
	}
	w.worker = right
	if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy || w.agents.started != 2 {
		t.Errorf("%v, %+v", err, w.get(added.ID))
	}
}

// A task that is cancelled just before its work begins: no agent is started.
func TestStage_MovedBeforeTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	added := w.create()
	w.onPipeline = func() {
		if _, err := w.store.Cancel(w.ctx, added.Key, "me"); err != nil {
			t.Error(err)
		}
	}
	if err := w.work(); err != nil || w.agents.started != 0 || w.places.prepared != 0 || w.job(added.ID) != nil {
		t.Errorf("%v, %d runs", err, w.agents.started)
	}
}

// orch.yaml is edited while an agent works: its job must not block the task, since that ends the agent.
func TestStage_EditWhileARunLives(t *testing.T) {
	t.Parallel()
	edits := map[string]func(w *world){
		"stage":    func(w *world) { w.pipelines[0].Stages = []flow.Stage{{Name: flow.Review, Agent: "coder"}} },
		"pipeline": func(w *world) { w.pipelines = nil },
		"landing": func(w *world) {
			w.pipelines[0].Stages = []flow.Stage{{Name: flow.Development, Gates: []flow.GateRef{{Name: flow.BranchMergeable}}}}
		},
		"agent": func(w *world) {
			w.agents.before = func(*queue.Lease) error {
				return queue.Terminal("agent_unknown", errors.New("no agent is called coder"))
			}
		},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			added := w.create()
			l := w.mustClaim(task.KindStage)
			if err := insertRun(t.Context(), l, uuid.New(), "agent", "agent:development:1", added); err != nil {
				t.Fatal(err)
			}
			w.exec(`update runs set state = 'running', finished_at = null, ended = null`)
			edit(w)
			for range 4 {
				var snooze *queue.SnoozeError
				if err := w.run(w.stage, l); !errors.As(err, &snooze) || snooze.WaitingFor != "configuration" || snooze.After != 30*time.Second {
					t.Fatal(err)
				}
				w.due()
				l = w.mustClaim(task.KindStage)
			}
			if after := w.get(added.ID); after.State != task.Active || w.retires(added.ID) != 0 || l.Job().RunID == nil {
				t.Fatalf("%+v", after)
			}
			w.exec(`update runs set state = 'finished', finished_at = now(), ended = 'exited'`)
			err := w.run(w.stage, l)
			if after := w.get(added.ID); name != "landing" && after.State != task.Blocked || name == "landing" && w.job(added.ID).Kind != task.KindMerge {
				t.Errorf("%v, %+v", err, after)
			}
		})
	}
}

// What an agent did to its branch is told to it like any red gate.
func TestStage_BranchThatCantBeTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight, commitRight + "; true"}
	added := w.create()
	const detail = "the workspace is on the branch feature with commits that the branch orch/demo-1 doesn't have"
	w.places.blind = &BranchError{Detail: detail}
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	after := w.get(added.ID)
	if after.State != task.Active || after.Round != 2 || !strings.HasPrefix(after.Feedback, "Gate commits failed: "+detail) ||
		!strings.Contains(after.Feedback, "committed on the branch "+added.Branch) || w.unconsumed() != 0 {
		t.Fatalf("%+v", after)
	}
	var data map[string]any
	event := w.lastEvent(added.ID, task.EventGateFailed)
	if err := json.Unmarshal(event.Data, &data); err != nil || data["gate"] != "commits" || data["command"] != nil || data["evidence_id"] != nil || !strings.Contains(event.Reason, detail) {
		t.Errorf("%s: %s", event.Reason, event.Data)
	}
	w.places.blind = nil
	if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy || !strings.Contains(w.agents.prompts[1], detail) {
		t.Errorf("%v, %+v", err, w.get(added.ID))
	}
}
