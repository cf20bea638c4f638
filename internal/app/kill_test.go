package app

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/queue/queuetest"
	"orch/internal/stage/prompt"
	"orch/internal/task"
	"orch/internal/task/flow"
	"orch/internal/testdb"
)

// orch is killed at each step of an agent's run, of a gate's, and between them. A process that is started afterwards takes
// over whatever it finds: the task lands, with one run for each thing that was to be run, and nothing is left behind.
func TestKilledAtEachStepEndsRightAfterARestart(t *testing.T) {
	t.Parallel()
	var points []string
	for _, step := range []string{"intending", "intended", "created", "launched", "followed", "exited", "noted"} {
		points = append(points, step, "gate:"+step)
	}
	for _, point := range append(points, "gates", "settling", "settled") {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			first := s.serve(point)
			key := first.add()
			// What is to be alive at the kill ends only after it.
			if point != "followed" {
				s.write("go", "")
			}
			if point != "gate:followed" {
				s.write("pass", "")
			}
			if how := first.ended(); !strings.Contains(how, "killed") {
				t.Fatalf("orch ended with %s", how)
			}
			second := s.serve("")
			s.write("go", "")
			s.write("pass", "")
			d := second.landed(key)
			s.once(second, d)
			second.end(unix.SIGTERM)
		})
	}
}

// once checks that everything was done once, and is known in whole.
func (s *stand) once(at *serving, d api.TaskDetail) {
	s.t.Helper()
	if agents, tests := s.lines("starts"), s.lines("tests"); agents != 1 || tests != 1 {
		s.t.Errorf("the agent was started %d times, the test %d times", agents, tests)
	}
	if n := s.count(`select count(*) from (select from runs where outcome is distinct from 'never_started'
		group by job_id, attempt, key having count(*) > 1) twice`); n != 0 {
		s.t.Errorf("%d attempts have several runs", n)
	}
	if n := s.count(`select count(*) from runs where state <> 'finished' or consumed_at is null`); n != 0 {
		s.t.Errorf("%d runs haven't ended, or weren't used", n)
	}
	if n := s.count(`select count(*) from jobs where kind = 'stage' and attempt <> 1`); n != 0 {
		s.t.Errorf("%d jobs needed another attempt", n)
	}
	for _, run := range d.Runs {
		if run.Outcome == nil || *run.Outcome == "never_started" {
			continue
		}
		want := map[string]string{"agent": "before\nafter\n", "gate": "checking\n"}[run.Purpose]
		log, err := at.client.ReadLog(s.t.Context(), run.ID, 0, 0)
		if err != nil || !strings.HasPrefix(string(log.Text), want) || want == "" || *run.Outcome != "ok" {
			s.t.Errorf("run for %s: %s, output %q, %v", run.Purpose, *run.Outcome, log.Text, err)
		}
	}
	if got := s.repo.Git("log", "--format=%s", "main"); !strings.HasPrefix(got, "Do it\n") || strings.Count(got, "\n") != 1 {
		s.t.Errorf("main holds %q", got)
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// The database is away until long after all leases have run out: the agent works on, and is followed again. Nothing is
// started, nothing counts as a recovery.
func TestDatabaseAwayLongerThanTheLeaseLeavesTheAgent(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	proxy := queuetest.NewProxy(t, testdb.ConnConfig(s.pool))
	s.on(proxy.Config(), "ORCH_LEASE_TTL_S=4", "ORCH_HEARTBEAT_S=0.5", "ORCH_POLL_S=0.2")
	s.write("pass", "")
	srv := s.serve("")
	key := srv.add()
	run := srv.working(key)
	epoch := s.count(`select epoch from jobs where run_id = $1`, run.ID)
	proxy.Set(queuetest.Refuse, "")
	s.until("the lease has run out twice", func() bool {
		return s.count(`select count(*) from jobs where lease_expires_at < clock_timestamp() - interval '4 seconds'`) == 1
	})
	if !alive(*run.Pid) {
		t.Fatal("the agent ended with the database")
	}
	proxy.Set(queuetest.Pass, "")
	s.until("the agent is followed again", func() bool {
		return s.count(`select count(*) from jobs where run_id = $1 and pid = $2 and epoch > $3 and state = 'running'`, run.ID, *run.Pid, epoch) == 1
	})
	if !alive(*run.Pid) {
		t.Error("the agent is another one")
	}
	s.write("go", "")
	d := srv.landed(key)
	s.once(srv, d)
	if n := s.count(`select coalesce(sum(recoveries), 0) from jobs`); n != 0 {
		t.Errorf("%d recoveries", n)
	}
	srv.end(unix.SIGTERM)
}

// A task is cancelled while no orch is there to follow its agent: the next one ends it.
func TestCancelWhileDetached(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	first := s.serve("")
	key := first.add()
	run := first.working(key)
	first.end(unix.SIGKILL)
	store, err := task.NewStore(s.pool, task.StoreConfig{Pipelines: task.Pipelines{flow.Short("default", "coder", "true")}, CheckPrompt: prompt.Check})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Cancel(t.Context(), key, "me"); err != nil {
		t.Fatal(err)
	}
	if !alive(*run.Pid) {
		t.Fatal("the agent is gone before anybody could end it")
	}
	second := s.serve("")
	d := second.at(key, "it is cleaned up", func(d api.TaskDetail) bool { return d.Events[len(d.Events)-1].Kind == "retired" })
	if d.Task.State != api.TaskCancelled || len(d.Runs) != 1 || *d.Runs[0].Outcome != "cancelled" || alive(*run.Pid) || s.lines("starts") != 1 {
		t.Errorf("%+v, runs %+v, alive %v", d.Task, d.Runs, alive(*run.Pid))
	}
	second.end(unix.SIGTERM)
}
