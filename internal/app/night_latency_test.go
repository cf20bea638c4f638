package app

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"orch/api"
	"orch/internal/testdb"
)

const (
	intervalOfReaper = time.Second
	deadTicks        = 2
)

// spread is a row that says how long something took.
func spread(name string, took []time.Duration) string {
	slices.Sort(took)
	at := func(part float64) string {
		return took[int(part*float64(len(took)-1))].Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%s", name, len(took), at(0.5), at(0.95), at(1))
}

// trials is how often something is measured. Times are printed and not judged: they are the machine's as well.
func trials(t *testing.T) int {
	t.Helper()
	return number(t, "ORCH_NIGHT_TRIALS", 1)
}

// Whatever dies of an agent's run, and whoever should have noticed, its job is queued again.
func TestJobOfADeadAgentIsQueuedAgain(t *testing.T) {
	t.Parallel()
	rows := []string{"from the kill to the job queued again\ttrials\tmedian\t95 %\tlongest"}
	for _, way := range []struct {
		name        string
		agent, shim bool
		hangs       string
	}{
		{name: "the agent", agent: true},
		{name: "agent and shim", agent: true, shim: true},
		{name: "the agent, its monitor hangs at the end", agent: true, hangs: hangsAtTheEnd},
		{name: "the agent, its monitor hangs before", agent: true, hangs: hangsFollowing},
		{name: "agent and shim, their monitor hangs", agent: true, shim: true, hangs: hangsFollowing},
	} {
		s := newStand(t)
		s.furnishNight()
		s.on(testdb.ConnConfig(s.pool), fmt.Sprintf("ORCH_REAPER_INTERVAL_S=%g", intervalOfReaper.Seconds()), fmt.Sprintf("ORCH_REAPER_DEAD_TICKS=%d", deadTicks),
			"ORCH_LEASE_TTL_S=4", "ORCH_HEARTBEAT_S=0.5", "ORCH_POLL_S=0.1", "ORCH_STOP_GRACE_S=1")
		srv := s.start("serve-night", s.dir).dial()
		var took []time.Duration
		for range trials(t) {
			took = append(took, srv.dies(way.agent, way.shim, way.hangs))
		}
		rows = append(rows, spread(way.name, took))
		srv.end(unix.SIGTERM)
	}
	rows = append(rows, fmt.Sprintf("(the reaper's window: %d ticks of %s, and a second)\t\t\t\t", deadTicks, intervalOfReaper))
	newTable(t, rows)
}

// dies kills what it is told of one agent, and says how long it takes until its job is queued again.
func (s *serving) dies(agent, shim bool, hangs string) time.Duration {
	s.t.Helper()
	if hangs == hangsFollowing {
		s.hangAt(hangs)
	}
	key := s.add()
	run := s.at(key, "its agent works", func(d api.TaskDetail) bool {
		return len(d.Runs) > 0 && d.Runs[0].State == api.RunRunning && d.Runs[0].Pid != nil
	}).Runs[0]
	if hangs == hangsFollowing {
		s.until("its monitor hangs", func() bool { return s.file("hanging") != "" })
	} else if hangs != "" {
		s.hangAt(hangs)
	}
	epoch, shimPID := s.count(`select epoch from jobs where id = $1`, run.JobID), s.count(`select shim_pid from runs where id = $1`, run.ID)
	began := time.Now()
	if shim {
		_ = unix.Kill(shimPID, unix.SIGKILL)
	}
	if agent {
		_ = unix.Kill(*run.Pid, unix.SIGKILL)
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for s.count(`select count(*) from jobs where id = $1 and (state = 'queued' or epoch > $2)`, run.JobID, epoch) == 0 {
		if time.Since(began) > patience {
			s.t.Fatalf("%s: its job isn't queued again", key)
		}
		<-ticker.C
	}
	took := time.Since(began)
	s.remove("hanging")
	s.at(key, "the end of its agent was used", func(d api.TaskDetail) bool {
		return slices.ContainsFunc(d.Runs, func(r api.Run) bool { return r.ID == run.ID && r.Outcome != nil }) &&
			s.count(`select count(*) from runs where id = $1 and consumed_at is not null`, run.ID) == 1
	})
	if n := s.count(`select attempt from jobs where id = $1`, run.JobID); n > 2 {
		s.t.Errorf("%s: one death has spent %d attempts", key, n)
	}
	s.cancel(key)
	return took
}

func (s *serving) cancel(key string) {
	s.t.Helper()
	if _, err := s.client.CancelTask(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
	s.at(key, "it is cleaned up", func(d api.TaskDetail) bool { return d.Events[len(d.Events)-1].Kind == "retired" })
}

// All that a killed orch followed is followed again by the next one, whoever runs the database.
func TestJobsOfAKilledOrchAreFollowedAgain(t *testing.T) {
	t.Parallel()
	const agents = 4
	rows := []string{fmt.Sprintf("from the kill of orch to its %d jobs followed by the next\ttrials\tmedian\t95 %%\tlongest", agents)}
	for _, database := range []string{"a given database", "a database of its own, which dies with it"} {
		s := newStand(t)
		s.furnishNight()
		s.on(testdb.ConnConfig(s.pool), fmt.Sprintf("ORCH_MAX_CONCURRENCY=%d", agents), "ORCH_POSTGRES_BIN="+os.Getenv("ORCH_POSTGRES_BIN"))
		if database != "a given database" {
			s.env = slices.DeleteFunc(s.env, func(v string) bool { return strings.HasPrefix(v, "ORCH_DATABASE_URL=") })
		}
		srv := s.start("serve-night", s.dir).dial()
		runs := srv.occupy(agents)
		var took []time.Duration
		for range trials(t) {
			var d time.Duration
			srv, d = srv.again(runs)
			took = append(took, d)
		}
		for key, run := range runs {
			if !alive(*run.Pid) {
				t.Errorf("the agent of %s is gone", key)
			}
			srv.cancel(key)
		}
		srv.end(unix.SIGTERM)
		rows = append(rows, spread(database, took))
	}
	newTable(t, rows)
}

// occupy adds tasks, and waits until the agents of all of them work.
func (s *serving) occupy(agents int) map[string]api.Run {
	s.t.Helper()
	runs := map[string]api.Run{}
	for range agents {
		runs[s.add()] = api.Run{}
	}
	for key := range runs {
		runs[key] = s.at(key, "its agent works", func(d api.TaskDetail) bool {
			return len(d.Runs) > 0 && d.Runs[0].State == api.RunRunning && d.Runs[0].Pid != nil
		}).Runs[0]
	}
	return runs
}

// again kills orch and starts it again. It says how long it took from the kill until all of the runs were followed.
func (s *serving) again(runs map[string]api.Run) (*serving, time.Duration) {
	s.t.Helper()
	began := time.Now()
	s.end(unix.SIGKILL)
	next := s.start("serve-night", s.dir).dial()
	followed := map[string]time.Duration{}
	s.until("all are followed", func() bool {
		for _, l := range s.linesOf(next.log, "run followed") {
			at, err := time.Parse(time.RFC3339Nano, l.text("time"))
			if err != nil {
				s.t.Fatal(err)
			}
			followed[l.text("run_id")] = at.Sub(began)
		}
		return len(followed) == len(runs)
	})
	last := time.Duration(0)
	for key, run := range runs {
		d, there := followed[run.ID.String()]
		if !there {
			s.t.Errorf("%s has another agent", key)
		}
		last = max(last, d)
	}
	return next, last
}
