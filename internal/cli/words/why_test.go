package words_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"orch/api"
	"orch/internal/cli/words"
)

func TestWhy(t *testing.T) {
	t.Parallel()
	now := time.Now()
	queued := func(in time.Duration) *api.Job {
		return &api.Job{ID: 9, State: api.JobQueued, Lane: "agents", RunAt: now.Add(in), Attempt: 1, MaxAttempts: 3}
	}
	waiting := func(phase string) *api.Job {
		j := queued(time.Hour)
		j.Phase = &phase
		return j
	}
	failed := queued(time.Hour)
	failed.ErrorCode, failed.Error = new("agent_failed"), new("exit code 3\nand more")
	told := waiting("checkout_dirty")
	told.ErrorCode, told.Error, told.Attempt = told.Phase, new("/srv/e has changes: commit them"), 0
	run := uuid.New()
	gating := &api.Job{State: api.JobRunning, Kind: "stage", Phase: new("following"), HeartbeatAt: &now, RunID: &run}
	pauses := []api.Pause{
		{Scope: api.PauseLane, Name: "agents", Reason: "budget is spent", Actor: "cli", Since: now.Add(-time.Hour)},
		{Scope: api.PauseRepo, Name: "demo", Reason: "freeze", Actor: "api", Since: now.Add(-time.Hour)},
	}
	active := api.Task{Key: "demo-1", Stage: "development", State: api.TaskActive, Round: 1}
	for name, c := range map[string]struct {
		detail api.TaskDetail
		want   []string
		not    string
	}{
		"paused": {
			api.TaskDetail{Task: active, Job: queued(0), Paused: pauses},
			[]string{
				"demo-1 is at development: queued", "lane agents was paused 1h00m ago by cli: budget is spent", "`orch resume --lane agents`",
				"repository demo was paused", "by api: freeze", "`orch resume --repo demo`",
			},
			"free slot",
		},
		"agent paused": {
			api.TaskDetail{Task: active, Job: waiting("agent_paused:coder"), Paused: []api.Pause{
				{Scope: api.PauseAgent, Name: "coder", Reason: "you've hit\x1b[2J your limit\nand more", Actor: "orch", Since: now.Add(-time.Hour), Code: new("quota"), Until: new(now.Add(48 * time.Hour))},
			}},
			[]string{
				"agent coder was paused 1h00m ago by orch: you've hit", "your limit, until " + now.Add(48*time.Hour).Format("2006-01-02 15:04:05"),
				"`orch resume --agent coder` lets it go on at once", "looked at again in 59m",
			},
			"\x1b",
		},
		"agent resumed":   {api.TaskDetail{Task: active, Job: waiting("agent_paused:coder")}, []string{"Agent coder, which was paused, is to begin it."}, "agent_paused"},
		"over the budget": {api.TaskDetail{Task: active, Job: waiting("budget_day")}, []string{"Today's budget is used up: it goes on at 00:00 UTC", "`orch agent list`"}, "budget_day"},
		"no room":         {api.TaskDetail{Task: active, Job: waiting("disk_space")}, []string{"It waits for room on the disk."}, "disk_space"},
		"in line":         {api.TaskDetail{Task: active, Job: waiting("merge_lease")}, []string{"It waits for its turn to land", "`orch queue`"}, "merge_lease"},
		"landing frozen":  {api.TaskDetail{Task: active, Job: waiting("repo_paused:demo"), Paused: pauses[1:]}, []string{"repository demo was paused", "by api: freeze"}, "repo_paused"},
		"a problem": {
			api.TaskDetail{Task: active, Job: told},
			[]string{"It waits (checkout_dirty): /srv/e has changes: commit them", "looked at again in 59m", "none of 3 attempts is used up"},
			"last attempt",
		},
		"landing tested": {
			api.TaskDetail{Task: active, Job: &api.Job{State: api.JobRunning, Kind: "merge", Phase: new("following"), HeartbeatAt: &now}},
			[]string{"the merged commit is tested"},
			"agent",
		},
		"gate runs": {
			api.TaskDetail{Task: active, Job: gating, Runs: []api.Run{{ID: run, Purpose: "gate"}}},
			[]string{"a gate's command runs"},
			"agent",
		},
		"elsewhere": {
			api.TaskDetail{Task: active, Job: queued(0), Elsewhere: &api.DataRoot{Host: "build-2", Path: "/var/lib/orch", SeenAt: now}},
			[]string{"Job 9 goes on in data root /var/lib/orch on build-2 only", "heard of 0.0s ago"},
			"slot",
		},
		"elsewhere, and nobody is there": {
			api.TaskDetail{Task: active, Job: queued(0), Elsewhere: &api.DataRoot{Host: "build-2", Path: "/var/lib/orch", SeenAt: now.Add(-time.Hour)}},
			[]string{"heard of 1h00m ago", "Start `orch serve` or `orch worker` there", "ORCH_HOST_DEAD_S"},
			"slot",
		},
		"away":         {api.TaskDetail{Task: active, Job: waiting("repository_away")}, []string{"It waits for its repository"}, "_"},
		"another wait": {api.TaskDetail{Task: active, Job: waiting("gate_run_timeout")}, []string{"It waits for gate run timeout."}, "_"},
		"due":          {api.TaskDetail{Task: active, Job: queued(0)}, []string{"waits for a free slot in lane agents"}, "paused"},
		"not due":      {api.TaskDetail{Task: active, Job: failed}, []string{"agent_failed: exit code 3", "looked at again in 59m"}, "and more"},
		"running": {
			api.TaskDetail{Task: active, Job: &api.Job{ID: 9, State: api.JobRunning, Host: new("build-1"), HeartbeatAt: &now, Phase: new("gates")}},
			[]string{"demo-1 is at development: running", "Job 9 is at work on build-1, gates are checked", "last heard of"},
			"free slot",
		},
		"to be landed": {
			api.TaskDetail{Task: api.Task{Key: "demo-1", State: api.TaskWaiting, WaitingFor: new("person_lands"), Branch: "orch/demo-1", Base: "main"}},
			[]string{"waiting for you to land it", "merge branch orch/demo-1 into main", "`orch task cancel demo-1`"},
			"log of the server",
		},
		"landing that waits for a person": {
			api.TaskDetail{Job: waiting("checkout_dirty"), Task: api.Task{
				Key: "demo-1", Stage: "deploy", State: api.TaskActive, Round: 1, NeedsYou: true, WaitingFor: new("checkout_dirty"), Reason: new("a checkout has changes"),
			}},
			[]string{"demo-1 is at deploy: needs you: checkout dirty", "  a checkout has changes", "The next step is yours; then it goes on by itself.", "looked at again in 59m"},
			"It waits for",
		},
		"no job": {api.TaskDetail{Task: active}, []string{"No job moves it"}, "free slot"},
		"blocked": {
			api.TaskDetail{Task: api.Task{Key: "demo-1", State: api.TaskBlocked, Reason: new("Which port?\n\x1b[2J8080?")}},
			[]string{"needs you", "  Which port?", "8080?", "`orch task retry demo-1 --note …`", "`orch task cancel demo-1`"},
			"\x1b",
		},
		"asks": {
			api.TaskDetail{Task: api.Task{Key: "demo-1", State: api.TaskBlocked, ReasonCode: new("needs_input"), Reason: new("the agent asks: which port?")}},
			[]string{"which port?", "`orch task answer demo-1 \"…\"`", "`orch task cancel demo-1`"},
			"task retry",
		},
		"ended": {
			api.TaskDetail{Task: api.Task{Key: "demo-1", State: api.TaskCancelled, FinishedAt: &now}}, []string{"cancelled", "It has ended"}, "job",
		},
	} {
		got := strings.Join(words.Why(c.detail), "\n")
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
		if strings.Contains(got, c.not) {
			t.Errorf("%s: %q in\n%s", name, c.not, got)
		}
	}
}
