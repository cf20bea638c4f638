package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"orch/internal/queue"
	"orch/internal/task"
	"orch/internal/task/flow"
)

func TestStage_FailedAttemptsAreUsedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome agent_failed", "outcome timeout", "outcome crashed"}
	added := w.create()
	for attempt := 1; attempt <= 3; attempt++ {
		if job := w.job(added.ID); job == nil || job.Attempt != attempt-1 {
			t.Fatalf("attempt %d: %+v", attempt, job)
		}
		if err := w.work(); err != nil {
			t.Fatal(err)
		}
	}
	after := w.get(added.ID)
	if after.State != task.Blocked || after.ReasonCode != "crashed" || !strings.Contains(after.Reason, `ended with crashed: last words, and all 3 attempts are used up`) || !strings.Contains(after.Reason, "orch task retry demo-1") {
		t.Errorf("%+v", after)
	}
	if w.agents.started != 3 || w.unconsumed() != 0 || len(w.blocked) != 1 || w.job(added.ID) != nil {
		t.Errorf("%d runs, blocked %v", w.agents.started, w.blocked)
	}
	if kinds := w.kinds(added.ID); kinds != "created stage_started run_finished run_finished run_finished blocked" {
		t.Error(kinds)
	}
}

// Without an OnFailed the handler blocks the task itself, with the end of the log.
func TestStage_UsedUpWithoutAHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queue = queue.New(w.pool, queue.Config{BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	w.agents.scripts = []string{"outcome stalled"}
	added := w.create()
	w.exec(`update jobs set max_attempts = 1`)
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if after := w.get(added.ID); after.State != task.Blocked || after.ReasonCode != "stalled" || after.Feedback != "last words" {
		t.Errorf("%+v", after)
	}
}

func TestStage_BlockedAtOnce(t *testing.T) {
	t.Parallel()
	for outcome, reason := range map[string]string{"not_found": "was not found", "auth": "renew its credentials", "needs_input": "the agent asks: left or right?"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agents.scripts = []string{"outcome " + outcome}
			added := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			if after := w.get(added.ID); after.State != task.Blocked || after.ReasonCode != outcome || !strings.Contains(after.Reason, reason) || w.unconsumed() != 0 {
				t.Errorf("%+v", after)
			}
		})
	}
}

func TestStage_AttemptGivenBack(t *testing.T) {
	t.Parallel()
	for outcome, recovery := range map[string]int{"interrupted": 1, "orphaned": 1, "never_started": 0, "quota": 0} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agents.scripts = []string{"outcome " + outcome, commitRight}
			added := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			job := w.job(added.ID)
			if job.Attempt != 0 || job.State != queue.StateQueued || job.Recoveries != recovery || job.RunID != nil || *job.PinnedRoot != w.worker.RootID || w.unconsumed() != 0 {
				t.Errorf("%+v", job)
			}
			if err := w.work(); err != nil || w.agents.started != 2 || w.get(added.ID).Stage != flow.Deploy {
				t.Errorf("%v, %d runs", err, w.agents.started)
			}
		})
	}
}

// An agent that takes its container with it each time is stopped for a person to look, once and for all; one that gets
// somewhere meanwhile is not.
func TestStage_InterruptedAgainAndAgainIsACrashLoop(t *testing.T) {
	t.Parallel()
	for _, hook := range []bool{true, false} {
		t.Run(fmt.Sprintf("hook %v", hook), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if !hook {
				w.queue = queue.New(w.pool, queue.Config{})
			}
			added := w.create()
			for n := 1; n <= queue.MaxRecoveries; n++ {
				w.agents.scripts = append(w.agents.scripts, "outcome interrupted")
				if err := w.work(); err != nil {
					t.Fatal(err)
				}
				if job := w.job(added.ID); job.State != queue.StateQueued || job.Attempt != 0 || job.Recoveries != n {
					t.Fatalf("%d: %+v", n, job)
				}
			}
			w.agents.scripts = append(w.agents.scripts, "outcome interrupted")
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			after := w.get(added.ID)
			if after.State != task.Blocked || after.ReasonCode != queue.CodeCrashLoop || !strings.Contains(after.Reason, "orch task retry demo-1") {
				t.Errorf("%+v", after)
			}
			if w.job(added.ID) != nil || w.unconsumed() != 0 || len(w.blocked) != 1 || w.agents.started != queue.MaxRecoveries+1 {
				t.Errorf("blocked %v, %d runs", w.blocked, w.agents.started)
			}
		})
	}
}

// Whoever starts agents may find that a person has to look at the task first.
func TestStage_NoAgentMayBeStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.before = func(*queue.Lease) error {
		return fmt.Errorf("start: %w", &BlockError{Code: "budget_task", Reason: "the task has used too much"})
	}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	after := w.get(added.ID)
	if after.State != task.Blocked || after.ReasonCode != "budget_task" || after.Reason != "the task has used too much" || w.retires(added.ID) != 1 {
		t.Errorf("%+v", after)
	}
}

// What a run met that holds for its agent is written with the use of its result, once, whatever becomes of the task.
func TestStage_PauseIsWrittenWithTheResult(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Hour)
	w := newWorld(t)
	w.agents.scripts = []string{"outcome quota"}
	w.agents.change = func(r *AgentResult) {
		r.RetryAfter, r.Pause = time.Hour, &Pause{Agent: "coder", Code: "quota", Until: until, Reason: "the week is over"}
	}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	job := w.job(added.ID)
	if job.Attempt != 0 || job.Phase == nil || *job.Phase != "agent_paused:coder" || time.Until(job.RunAt) < 50*time.Minute || w.unconsumed() != 0 {
		t.Errorf("%+v", job)
	}
	if w.count(`select count(*) from pauses where scope = 'agent' and name = 'coder' and code = 'quota'`) != 1 {
		t.Error("the agent isn't paused")
	}
	var data map[string]any
	if err := json.Unmarshal(w.lastEvent(added.ID, task.EventRunFinished).Data, &data); err != nil || data["reset_at"] != until.UTC().Format(time.RFC3339) {
		t.Errorf("%v, %v", data, err)
	}
}

func TestStage_PauseIsWrittenThoughTheTaskIsCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome auth"}
	w.agents.change = func(r *AgentResult) { r.Pause = &Pause{Agent: "coder", Code: "auth"} }
	added := w.create()
	w.agents.after = func(*queue.Lease) {
		if _, err := w.store.Cancel(w.ctx, added.Key, "me"); err != nil {
			t.Error(err)
		}
	}
	if err := w.work(); err != nil || w.count(`select count(*) from pauses where name = 'coder'`) != 1 {
		t.Errorf("not paused: %v", err)
	}
}

func TestStage_FallbackTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"quota", "auth"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agents.scripts = []string{"outcome " + outcome, commitRight}
			w.agents.change = func(r *AgentResult) {
				if r.Outcome == outcome {
					r.Pause, r.Retry, r.Fallback = &Pause{Agent: "coder", Code: outcome}, RetryGiven, "spare"
				}
			}
			added := w.create()
			if err := w.work(); err != nil {
				t.Fatal(err)
			}
			job := w.job(added.ID)
			if job.Attempt != 0 || job.Recoveries != 0 || job.Phase != nil || time.Until(job.RunAt) > 0 {
				t.Errorf("%+v", job)
			}
			if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy {
				t.Errorf("%v, %+v", err, w.get(added.ID))
			}
		})
	}
}

// What a failed setup command costs is an attempt, and nobody is told that the agent did it.
func TestStage_SetupThatFailsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{"outcome setup_failed"}
	added := w.create()
	w.exec(`update jobs set max_attempts = 1`)
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	after := w.get(added.ID)
	if after.State != task.Blocked || after.ReasonCode != CodeSetupFailed || !strings.HasPrefix(after.Reason, "the setup command of repository demo failed, so that agent \"coder\" wasn't started") {
		t.Errorf("%+v", after)
	}
}

// A task that asks keeps its workspace, and the agent goes on in it with the answer.
func TestStage_AnswerFindsTheWorkspaceAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{`outcome needs_input`, `test -f half && rm half && ` + commitRight}
	added := w.create()
	if err := w.work(); err != nil {
		t.Fatal(err)
	}
	if w.retires(added.ID) != 0 {
		t.Fatal("the workspace of a task that asks is cleared away")
	}
	if _, err := shell(w.places.Dir(added), `echo half > half`); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Answer(t.Context(), added.Key, "me", "left"); err != nil {
		t.Fatal(err)
	}
	w.agents.keep = true
	if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy {
		t.Fatalf("%v, %+v", err, w.get(added.ID))
	}
	if told := w.agents.going[0]; !strings.Contains(told, "the agent asks: left or right?\nAnswer: left") || !strings.Contains(told, "is as you left it") {
		t.Error(told)
	}
}

func TestStage_WorkspaceFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.places.failing = errors.New("the mirror is torn")
	added := w.create()
	var failure *queue.Failure
	if err := w.work(); !errors.As(err, &failure) || failure.Code != "workspace" || failure.Terminal {
		t.Fatal(err)
	}
	for range 2 {
		_ = w.work()
	}
	if after := w.get(added.ID); after.State != task.Blocked || after.ReasonCode != "workspace" || !strings.Contains(after.Reason, "the mirror is torn") || w.agents.started != 0 {
		t.Errorf("%+v", after)
	}
}

// A repository that is away is nobody's failed attempt, however long it is: the job goes on when it is back.
func TestStage_RepositoryAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.scripts = []string{commitRight}
	added := w.create()
	w.places.failing = &AwayError{Err: errors.New("there is no directory /srv/demo")}
	rests := func(want time.Duration) {
		t.Helper()
		var snooze *queue.SnoozeError
		if err := w.work(); !errors.As(err, &snooze) || snooze.WaitingFor != "repository_away" || snooze.After != want {
			t.Fatalf("%v, %+v", err, snooze)
		}
	}
	for range 4 {
		rests(30 * time.Second)
	}
	w.exec(`update jobs set waiting_since = now() - interval '1 day'`)
	rests(5 * time.Minute)
	if job := w.job(added.ID); job.Attempt != 0 || job.Phase == nil || *job.Phase != "repository_away" || w.get(added.ID).State != task.Active {
		t.Errorf("%+v", job)
	}
	w.places.failing = nil
	if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy {
		t.Errorf("%v, %+v", err, w.get(added.ID))
	}
}

// A full disk is nobody's fault: the job waits, however long.
func TestStage_DiskFull(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]error{
		"system": &fs.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC},
		"git":    fmt.Errorf("make it: %w", said("fatal: cannot create directory at 'a': No space left on device")),
	} {
		for _, where := range []string{"prepare", "launch", "inspect"} {
			t.Run(where+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.agents.scripts = []string{commitRight}
				added := w.create()
				switch where {
				case "prepare":
					w.places.failing = full
				case "launch":
					w.agents.before = func(*queue.Lease) error { return fmt.Errorf("create run directory: %w", full) }
				case "inspect":
					w.places.blind = &BranchError{Detail: "the workspace's commits can't be taken over", Err: full}
				}
				for range 4 {
					var snooze *queue.SnoozeError
					if err := w.work(); !errors.As(err, &snooze) || snooze.WaitingFor != "disk_space" || snooze.After != 30*time.Second {
						t.Fatal(err)
					}
				}
				if job := w.job(added.ID); job.Attempt != 0 || w.get(added.ID).State != task.Active {
					t.Errorf("%+v", job)
				}
				w.places.failing, w.places.blind, w.agents.before = nil, nil, nil
				if err := w.work(); err != nil || w.get(added.ID).Stage != flow.Deploy {
					t.Errorf("%v, %+v", err, w.get(added.ID))
				}
			})
		}
	}
}

// said is an error of a program, as git's is.
type said string

func (s said) Error() string { return "exit 128" }
func (s said) Said() string  { return string(s) }

func TestStage_StopIsPassedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents.before = func(*queue.Lease) error { return queue.ErrStopping }
	added := w.create()
	if err := w.work(); !errors.Is(err, queue.ErrStopping) {
		t.Error(err)
	}
	if job := w.job(added.ID); job.State != queue.StateQueued || job.Attempt != 0 {
		t.Errorf("%+v", job)
	}
}
