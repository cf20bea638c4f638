package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"orch/api"
	"orch/internal/testdb"
)

// patientAgent commits only once the file go is there. It notes each start and writes to its log before and after.
func patientAgent() string {
	return `here=$(dirname "$0")
echo $$ >> "$here/starts"
echo before
while [ ! -e "$here/go" ]; do sleep 0.02; done
echo after
echo "$ORCH_TASK" > "$ORCH_TASK.txt"
git add .
git commit -qm "Do $ORCH_TASK"
`
}

// started waits until the agent of the task runs and returns its run.
func (s *server) started(key string) api.Run {
	s.p.t.Helper()
	d := s.until(key, "agent runs", func(d api.TaskDetail) bool {
		return len(d.Runs) > 0 && d.Runs[0].State == api.RunRunning && strings.Contains(s.p.read("starts"), "\n")
	})
	return d.Runs[0]
}

// one checks that the task had one run of its agent, with its whole output, and one landing.
func (s *server) one(d api.TaskDetail) {
	s.p.t.Helper()
	var agents []api.Run
	for _, run := range d.Runs {
		if run.Purpose == "agent" {
			agents = append(agents, run)
		}
	}
	if len(agents) != 1 {
		s.p.t.Fatalf("%d runs of the agent, want 1: %+v", len(agents), agents)
	}
	log, err := s.client.ReadLog(s.p.t.Context(), agents[0].ID, 0, 0)
	if err != nil {
		s.p.t.Fatal(err)
	}
	if got := string(log.Text); got != "before\nafter\n" {
		s.p.t.Errorf("output %q, want before and after", got)
	}
	if starts := strings.Fields(s.p.read("starts")); len(starts) != 1 {
		s.p.t.Errorf("the agent was started %d times", len(starts))
	}
	if got := s.p.git("log", "--format=%s", "main"); got != "Do "+d.Task.Key+"\nfirst" {
		s.p.t.Errorf("main holds %q", got)
	}
	if *d.Task.LandedCommit != s.p.git("rev-parse", "main") {
		s.p.t.Errorf("landed %s, main is %s", *d.Task.LandedCommit, s.p.git("rev-parse", "main"))
	}
	if got := s.p.git("status", "--porcelain"); got != "" {
		s.p.t.Errorf("the checkout is dirty: %s", got)
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestQueueShowsTheRunningJob(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	p.onGivenDatabase()
	s := p.serve()
	key := s.add("Show me")
	run := s.started(key)
	var q api.Queue
	eventually(t, "the running job in GET /queue", func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/queue", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		q = api.Queue{}
		return json.NewDecoder(response.Body).Decode(&q) == nil && len(q.Running) == 1 && q.Running[0].Pid != nil && *q.Running[0].Pid == *run.Pid
	})
	job := q.Running[0]
	if *job.Task != key || *job.Agent != "coder" || *job.Stage != "development" || job.HeartbeatAgeS == nil || job.Attempt != 1 {
		t.Errorf("running job %+v", job)
	}
	if out := p.orch("queue"); !strings.Contains(out, key) || !strings.Contains(out, strconv.Itoa(*run.Pid)) || !strings.Contains(out, "coder") {
		t.Errorf("orch queue:\n%s", out)
	}
	p.write("go", "")
	s.one(s.landed(key))
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestAgentOutlivesStop(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	s := p.serve()
	key := s.add("Outlive it")
	run := s.started(key)
	if err := s.end(syscall.SIGINT); err != nil {
		t.Fatalf("orch serve ended with %v", err)
	}
	if !alive(*run.Pid) {
		t.Fatal("the agent ended with orch")
	}
	for _, left := range processesOf(p.root) {
		if strings.Contains(left, "postgres") {
			t.Errorf("PostgreSQL is still there: %s", left)
		}
	}
	p.write("go", "")
	s = p.serve()
	s.one(s.landed(key))
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestKillAgentsLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	s := p.serve("--kill-agents")
	key := s.add("Be ended")
	run := s.started(key)
	if err := s.end(syscall.SIGINT); err != nil {
		t.Fatalf("orch serve ended with %v", err)
	}
	if alive(*run.Pid) {
		t.Error("the agent outlived orch")
	}
	if left := processesOf(p.dir); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	p.write("go", "")
	s = p.serve()
	d := s.landed(key)
	if job := d.Runs[len(d.Runs)-1]; job.Ended == nil || *job.Ended != "interrupted" {
		t.Errorf("the first run ended as %v, want interrupted", job.Ended)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestKilledServerFollowsItsAgentAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	s := p.serve()
	key := s.add("Survive")
	run := s.started(key)
	_ = s.end(syscall.SIGKILL)
	if !alive(*run.Pid) {
		t.Fatal("the agent died with orch")
	}
	s = p.serve()
	d := s.until(key, "followed again", func(d api.TaskDetail) bool { return d.Job != nil && d.Job.Pid != nil && *d.Job.Pid == *run.Pid })
	if d.Job.Attempt != 1 {
		t.Errorf("attempt %d, want 1: the death of orch isn't the agent's", d.Job.Attempt)
	}
	p.write("go", "")
	s.one(s.landed(key))
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestTwoTasksLandOneAfterTheOther(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	p.onGivenDatabase()
	s := p.serve()
	first, second := s.add("One"), s.add("Two")
	eventually(t, "both agents run", func(context.Context) bool { return strings.Count(p.read("starts"), "\n") == 2 })
	p.write("go", "")
	a, b := s.landed(first), s.landed(second)
	if got := strings.Count(p.git("log", "--format=%s", "main"), "\n"); got != 2 {
		t.Errorf("main:\n%s", p.git("log", "--format=%s", "main"))
	}
	if parents := p.git("log", "--format=%p", "main"); strings.Contains(parents, " ") {
		t.Errorf("main isn't linear:\n%s", p.git("log", "--graph", "--oneline", "main"))
	}
	// Each branch is tested once by itself, and the one that lands second once more on the result of the first.
	if got := strings.Count(p.read("tests"), "tested"); got != 3 {
		t.Errorf("%d tests ran, want 3", got)
	}
	if *a.Task.LandedCommit == *b.Task.LandedCommit {
		t.Error("both tasks landed the same commit")
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

// Two servers with a data root each work on one database: what the gates passed is what lands, wherever a task began.
func TestTwoRootsOnOneDatabase(t *testing.T) {
	t.Parallel()
	const agent = `if [ "$ORCH_ROUND" = 1 ]; then echo BAD > "$ORCH_TASK.txt"; else test -s "$ORCH_TASK.txt" && echo GOOD > "$ORCH_TASK.txt"; fi
git add . && git commit -qm "$ORCH_TASK $ORCH_ROUND"
`
	p := newPlace(t, agent)
	p.env = []string{"ORCH_DATABASE_URL=" + testdb.URL(testdb.Empty(t)), "ORCH_AUTO_MIGRATE=true", "ORCH_POLL_S=0.2"}
	p.write("root/orch.yaml", `
repos: [{name: app, path: `+p.repo+`, test: none}]
agents: {coder: {preset: command, command: sh `+p.dir+`/agent.sh}}
pipelines:
  default:
    - {stage: development, agent: coder, gates: [commits, {command: "! grep -l BAD app-*.txt"}]}
    - {stage: deploy, gates: [branch_mergeable]}
`)
	other := *p
	other.root = filepath.Join(p.dir, "other")
	other.write("other/orch.yaml", p.read("root/orch.yaml"))
	one, two := p.serve(), other.serve()
	var keys []string
	for range 4 {
		keys = append(keys, one.add("Be good"), two.add("Be good"))
	}
	for _, key := range keys {
		d := one.landed(key)
		if got := p.git("show", *d.Task.LandedCommit+":"+key+".txt"); got != "GOOD" || d.Task.Round != 2 {
			t.Errorf("%s landed as %q in round %d", key, got, d.Task.Round)
		}
	}
	for _, root := range []string{p.root, other.root} {
		if left, err := filepath.Glob(filepath.Join(root, "workspaces", "app", "*")); err != nil || len(left) > 0 {
			t.Errorf("workspaces left: %s, %v", left, err)
		}
	}
	for _, s := range []*server{one, two} {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Errorf("orch serve ended with %v", err)
		}
	}
}

func TestCancelEndsTheAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	p.onGivenDatabase()
	s := p.serve()
	key := s.add("Never mind")
	run := s.started(key)
	if out := p.orch("task", "cancel", key); !strings.Contains(out, "is cancelled") {
		t.Errorf("orch task cancel: %s", out)
	}
	if alive(*run.Pid) {
		t.Error("the agent still runs")
	}
	if _, err := os.Stat(filepath.Join(p.root, "workspaces", "app", key)); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}
