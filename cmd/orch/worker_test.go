package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"orch/api"
	"orch/internal/testdb"
)

// A running process whose database is about to be migrated by a newer orch gives its work back and ends, so that the
// migration needn't wait for a person.
func TestANewerMigrationDrainsServerAndWorker(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	data := p.onDatabase(testdb.Empty(t))
	s := p.serve()
	s.started(s.add("Outlive it"))
	w := p.start("worker")
	w.works()
	data.exec(`update instance set migrating_to = 99, migrating_until = clock_timestamp() + interval '1 hour'`)
	s.refuses("is about to be, or was, migrated by a newer orch", "start the version of orch that migrates")
	w.refuses("is about to be, or was, migrated by a newer orch", "start the version of orch that migrates")
	if got := data.value(`select count(*) from workers where stopped_at is null`); got != "0" {
		t.Errorf("%s workers count as living", got)
	}
	late := p.start("worker")
	late.waits("newer_migration_running")
	data.exec(`update instance set migrating_until = clock_timestamp()`)
	late.works() // nobody renewed the announcement
	p.write("go", "")
	data.becomes("done", theTask)
	if starts := strings.Fields(p.read("starts")); len(starts) != 1 {
		t.Errorf("the agent was started %d times", len(starts))
	}
	late.stops()
}

func TestWorkerFollowsItsAgentWhileTheServerIsKilledAndOverItsOwnStop(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	data := p.onDatabase(testdb.Empty(t))
	idle := p.with("ORCH_WORKER_ENABLED=false")
	s := idle.serve()
	w := p.start("worker")
	key := s.add("Survive")
	run := s.started(key)
	_ = s.end(syscall.SIGKILL)
	w.stops()
	if !alive(*run.Pid) {
		t.Fatal("the agent ended with orch")
	}
	w = p.start("worker")
	data.becomes("running", `select state from jobs where run_id is not null`)
	p.write("go", "")
	data.becomes("done", theTask)
	s = idle.serve()
	s.one(s.landed(key))
	w.stops()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

// The private PostgreSQL is the server's: a worker joins it, waits while it is away, and never starts one.
func TestTwoWorkersAndAServerOnOneRootLandEachTaskOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	p.env = []string{"ORCH_POLL_S=0.1", "ORCH_MAX_CONCURRENCY=2"}
	s := p.serve()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	workers := []*daemon{p.start("worker"), p.start("worker")}
	for _, w := range workers {
		w.waits("database_unreachable")
	}
	for _, left := range processesOf(p.root) {
		if strings.Contains(left, "postgres") {
			t.Errorf("a worker started PostgreSQL: %s", left)
		}
	}
	s = p.serve()
	for _, w := range workers {
		w.works()
	}
	var keys, want []string
	for range 6 {
		key := s.add("Do it")
		keys, want = append(keys, key), append(want, "Do "+key)
	}
	for _, key := range keys {
		s.landed(key)
	}
	landed := strings.Fields(strings.ReplaceAll(p.git("log", "--format=%s", "main"), " ", "_"))
	slices.Sort(landed)
	for i, subject := range want {
		want[i] = strings.ReplaceAll(subject, " ", "_")
	}
	want = append(want, "first")
	slices.Sort(want)
	if !slices.Equal(landed, want) {
		t.Errorf("main holds %v, want %v", landed, want)
	}
	for _, w := range workers {
		w.stops()
	}
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestATaskWhoseRepositoryNoWorkerServesIsBlocked(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t))
	p.bound()
	file := p.read("root/orch.yaml")
	p.write("root/orch.yaml", "agents: {coder: {preset: command, command: 'true'}}\n")
	data.exec(`update jobs set run_at = run_at - interval '1 hour'`)
	s := p.serve()
	d := s.until("app-1", "blocked", func(d api.TaskDetail) bool { return d.Task.State == api.TaskBlocked })
	if *d.Task.ReasonCode != "repo_unknown" || !strings.Contains(*d.Task.Reason, `"app"`) || !strings.Contains(*d.Task.Reason, "orch task retry app-1") {
		t.Errorf("blocked for %s: %s", *d.Task.ReasonCode, *d.Task.Reason)
	}
	p.write("root/orch.yaml", file)
	p.orch("task", "retry", "app-1")
	s.landed("app-1")
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestOldJobsArePruned(t *testing.T) {
	t.Parallel()
	p := newPlace(t, committer)
	data := p.onDatabase(testdb.Empty(t), "ORCH_PRUNE_EVERY_S=0.2", "ORCH_PRUNE_AFTER_S=0.1")
	s := p.serve()
	s.landed(s.add("Be forgotten"))
	w := p.start("worker") // any number of them run one prune at a time
	w.works()
	data.becomes("0", `select count(*) from jobs where kind <> 'jobs.prune'`)
	if got := data.value(`select sum(total) from job_totals where kind = 'stage' and state = 'succeeded'`); got != "1" {
		t.Errorf("%s stage jobs are counted, want 1", got)
	}
	w.stops()
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
}

func TestKillAgentsSparesTheAgentThatAnotherProcessFollows(t *testing.T) {
	t.Parallel()
	p := newPlace(t, patientAgent())
	data := p.onDatabase(testdb.Empty(t))
	s := p.with("ORCH_WORKER_ENABLED=false").serve("--kill-agents")
	w := p.start("worker")
	run := s.started(s.add("Survive"))
	if err := s.end(syscall.SIGTERM); err != nil {
		t.Errorf("orch serve ended with %v", err)
	}
	if !alive(*run.Pid) {
		t.Error("the server killed an agent that isn't its own")
	}
	p.write("go", "")
	data.becomes("done", theTask)
	w.stops()
}
